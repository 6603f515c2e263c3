//! The agents with shards: processes that are killed and replaced like pods.
//!
//! Each has a ServiceAccount, an identity in the Leases and a data directory of its own, as a pod that replaces another.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Error, access};
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

/// The cost of an agent.
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
    deaths: HashMap<String, Instant>,
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
            deaths: HashMap::new(),
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
    pub(super) async fn add(&mut self, stand: &Stand) -> Result<(), Error> {
        self.started += 1;
        let name = format!("agent-{:03}", self.started);
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

    /// Returns the time of an agent's death. `None` for a running agent.
    pub(super) fn died(&self, name: &str) -> Option<Instant> {
        self.deaths.get(name).copied()
    }

    /// Kills an agent. Returns its name and the time of its death.
    pub(super) async fn kill(&mut self, at: usize) -> Result<(String, Instant), Error> {
        self.running[at].count().await;
        let mut agent = self.running.swap_remove(at);
        self.ended.push(agent.usage("killed"));
        agent.process.kill().await?;
        let died = Instant::now();
        self.deaths.insert(agent.name.clone(), died);
        Ok((agent.name, died))
    }

    /// Replaces agents that have ended by themselves, as a kubelet does. Returns their names with the time.
    pub(super) async fn replace_ended(&mut self, stand: &Stand) -> Result<Vec<(String, Instant)>, Error> {
        let mut found = Vec::new();
        for at in (0..self.running.len()).rev() {
            if self.running[at].process.has_ended()? {
                let agent = self.running.swap_remove(at);
                self.ended.push(agent.usage("**ended by itself**"));
                found.push((agent.name, Instant::now()));
            }
        }
        for (name, died) in &found {
            self.failed += 1;
            self.deaths.insert(name.clone(), *died);
            self.add(stand).await?;
        }
        Ok(found)
    }

    /// Returns the cost of each agent so far, in the order of their start.
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
