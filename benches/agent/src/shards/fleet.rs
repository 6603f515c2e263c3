//! The agents with shards: processes that are killed like containers that restart, or like pods that are replaced.
//!
//! Each has a ServiceAccount, an identity in the Leases and a data directory of its own, as a pod. A container that restarts
//! keeps them.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use kube::Api;
use serde_json::Value;

use super::{
    Error, access,
    deaths::{Dead, Death, Lost},
    watch,
};
use crate::{
    counters::{Counters, Requests},
    process::Process,
    stand::{NAMESPACE, Stand, free_port},
};

/// A running agent.
struct Agent {
    name: String,
    process: Process,
    port: u16,
    since: Instant,
    /// Its requests when they were read last.
    requests: Requests,
}

impl Agent {
    /// Reads the requests, if the agent answers.
    async fn count(&mut self) {
        if let Ok(requests) = Counters::Agent(format!("http://127.0.0.1:{}/metrics", self.port)).read().await {
            self.requests = requests;
        }
    }

    fn usage(&self, end: &'static str) -> Usage {
        Usage {
            name: self.name.clone(),
            end,
            life: self.since.elapsed(),
            requests: self.requests.since(&Requests::default()),
            // An agent that has ended by itself has no memory any more.
            peak_mib: self.process.peak_mib().unwrap_or_default(),
            processor_seconds: self.process.processor_seconds().unwrap_or_default(),
        }
    }
}

/// The cost of a process of an agent.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    pub name: String,
    /// How it ended.
    pub end: &'static str,
    pub life: Duration,
    /// Requests without watches and Leases.
    pub requests: Requests,
    pub peak_mib: f64,
    pub processor_seconds: f64,
}

/// All agents.
pub(super) struct Fleet {
    cluster: Value,
    directory: PathBuf,
    shards: u8,
    running: Vec<Agent>,
    ended: Vec<Usage>,
    dead: Dead,
    /// Number of agents that were started.
    started: usize,
    /// Number of agents that ended by themselves.
    pub failed: usize,
}

impl Fleet {
    /// Starts an agent for each shard, and waits until they answer.
    pub(super) async fn start(stand: &Stand, shards: u8) -> Result<Self, Error> {
        let mut fleet = Self {
            cluster: access::cluster_of(stand.kubeconfig())?,
            directory: stand.directory().join("agents"),
            shards,
            running: Vec::new(),
            ended: Vec::new(),
            dead: Dead::default(),
            started: 0,
            failed: 0,
        };
        fs::create_dir_all(&fleet.directory).map_err(Error::Directory)?;
        for _ in 0..shards {
            fleet.add(stand).await?;
        }
        for agent in &mut fleet.running {
            agent.process.answers(&format!("http://127.0.0.1:{}/readyz", agent.port)).await?;
        }
        Ok(fleet)
    }

    /// Starts another agent, and does not wait for it.
    async fn add(&mut self, stand: &Stand) -> Result<(), Error> {
        self.started += 1;
        self.launch(stand, format!("agent-{:03}", self.started)).await
    }

    /// Starts the process of an agent with this identity. Its data directory may exist.
    async fn launch(&mut self, stand: &Stand, name: String) -> Result<(), Error> {
        // A token of an earlier process may expire soon.
        let token = stand.user_token(&name).await?;
        let kubeconfig = self.directory.join(format!("{name}.kubeconfig"));
        fs::write(&kubeconfig, access::kubeconfig(&self.cluster, &token)).map_err(Error::Directory)?;
        let port = free_port()?;
        let mut arguments: Vec<OsString> = ["agent", "--allow-local", "-n", NAMESPACE].map(Into::into).to_vec();
        arguments.push(format!("--listen=127.0.0.1:{port}").into());
        arguments.push("--audit-interval=0".into());
        arguments.push(format!("--shards={}", self.shards).into());
        arguments.push(format!("--identity={name}").into());
        arguments.extend(["--kubeconfig".into(), kubeconfig.into()]);
        arguments.extend(["--data".into(), self.directory.join(&name).into()]);
        let process = Process::start(&arguments, stand.environment(), &self.directory)?;
        self.running.push(Agent { name, process, port, since: Instant::now(), requests: Requests::default() });
        Ok(())
    }

    /// Returns the number of running agents.
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether an agent with this identity runs.
    pub(super) fn has(&self, name: &str) -> bool {
        self.running.iter().any(|agent| agent.name == name)
    }

    /// Returns the death of an agent. `None` for a running agent. `written` is the resource version of its newest Lease.
    pub(super) fn died(&self, name: &str, written: u64) -> Option<Death> {
        self.dead.of(name, written)
    }

    /// Kills an agent. [`Self::replace`] starts its successor.
    pub(super) async fn kill(&mut self, stand: &Stand, at: usize, lost: Lost) -> Result<Death, Error> {
        self.running[at].count().await;
        let mut agent = self.running.swap_remove(at);
        self.ended.push(agent.usage(match lost {
            Lost::Container => "container killed",
            Lost::Pod => "pod killed",
        }));
        agent.process.kill().await?;
        let death = Death { at: Instant::now(), agent: agent.name, lost };
        let version = match lost {
            Lost::Container => Some(watch::version(&Api::namespaced(stand.client.clone(), NAMESPACE)).await?),
            Lost::Pod => None,
        };
        self.dead.add(death.clone(), version);
        Ok(death)
    }

    /// Starts the container of a dead agent, or the pod that replaces it, and does not wait for it.
    pub(super) async fn replace(&mut self, stand: &Stand, death: &Death) -> Result<(), Error> {
        match death.lost {
            Lost::Container => self.launch(stand, death.agent.clone()).await,
            Lost::Pod => self.add(stand).await,
        }
    }

    /// Replaces the pods of agents that have ended by themselves. Returns their deaths.
    pub(super) async fn replace_ended(&mut self, stand: &Stand) -> Result<Vec<Death>, Error> {
        let mut found = Vec::new();
        for at in (0..self.running.len()).rev() {
            if self.running[at].process.has_ended()? {
                let agent = self.running.swap_remove(at);
                self.ended.push(agent.usage("**ended by itself**"));
                found.push(Death { at: Instant::now(), agent: agent.name, lost: Lost::Pod });
            }
        }
        for death in &found {
            self.failed += 1;
            self.dead.add(death.clone(), None);
            self.replace(stand, death).await?;
        }
        Ok(found)
    }

    /// Returns the cost of each process so far, ordered by agent and start.
    pub(super) async fn usages(&mut self) -> Vec<Usage> {
        for agent in &mut self.running {
            agent.count().await;
        }
        let running = self.running.iter().map(|agent| agent.usage("running"));
        let mut all: Vec<Usage> = self.ended.iter().cloned().chain(running).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }
}
