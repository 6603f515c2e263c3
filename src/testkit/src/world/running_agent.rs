//! The agent of a world: its start, its end, its requests, and their faults.

use std::time::Duration;

use devcluster::fault_injection::{Fault, FaultInjection};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gate::Gated;
use crate::server::TestServer;
use mainstay::agent::{self, Settings};
use mainstay_cluster::Cluster;
use mainstay_manifest::render::Words;

use super::{NAMESPACE, World};

/// A running agent.
pub struct Agent {
    stop: CancellationToken,
    /// Ends the requests of the agent.
    killed: CancellationToken,
    task: JoinHandle<Result<(), agent::Error>>,
}

impl Agent {
    /// Kills the agent between two of its steps, like SIGKILL.
    pub async fn kill(self) {
        self.killed.cancel();
        self.task.abort();
        // An error is ignored: the task was aborted or has failed before, and has ended in both cases.
        let _ = self.task.await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.turn.is_none() {
            return;
        }
        if let Some(agent) = self.agent.take() {
            agent.killed.cancel();
            agent.task.abort();
            while !agent.task.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if let TestServer::External(external) = self.server {
            external.clean();
        }
    }
}

impl World {
    /// Starts the agent without leader election.
    pub fn start(&mut self) {
        self.start_as("agent", false);
    }

    /// Starts the agent.
    pub fn start_as(&mut self, identity: &str, elect: bool) {
        let killed = CancellationToken::new();
        let client = || {
            let cluster = self.server.agent_client(NAMESPACE);
            let cluster = self.wire.as_ref().map_or_else(|| cluster.clone(), |wire| wire(cluster.clone()));
            Gated::client(cluster, &self.gate, &killed)
        };
        let cluster = Cluster::from_clients(client(), client());
        let mut source = mainstay_git::Settings::new(self.mirrors.path().join(identity));
        source.allow_local = true;
        source.proxy = mainstay_git::DefaultProxy::None;
        source.deadlines = self.deadlines;
        source.limits = self.limits;
        source.hosts.clone_from(&self.hosts);
        source.clouds.clone_from(&self.clouds);
        source.egress.allowed.clone_from(&self.allow_networks);
        let settings = Settings {
            namespace: NAMESPACE.to_owned(),
            allow_namespaces: Vec::new(),
            default_service_account: self.default_service_account.clone(),
            identity: identity.to_owned(),
            pod: self.in_pods.then(|| identity.to_owned()),
            listen: self.listen,
            receive: self.receive.clone(),
            admit: self.admit.clone(),
            limits: self.clients,
            source,
            exposure: self.exposure.clone(),
            components: self.components.clone(),
            profile: agent::Profile::Full,
            namespaces: Vec::new(),
            functions: self.functions.clone(),
            elect,
            shards: self.shards,
            timing: self.timing,
            stuck_after: self.stuck_after,
            memory: self.memory,
            nudge: self.nudge.clone(),
            audit: self.audit,
            renderer: self.renderer.clone(),
            words: Words::Reduced,
        };
        let stop = CancellationToken::new();
        let running = agent::run(settings, cluster, self.emitter.clone(), stop.clone());
        self.agent = Some(Agent { stop, killed, task: tokio::spawn(running) });
    }

    /// Creates the GitSync `demo`, starts the agent, and waits until it is ready at the newest commit.
    pub async fn synced(&mut self, spec: Value) {
        self.sync("demo", spec);
        self.start();
        self.ready("demo").await;
    }

    /// Makes the agent poll the remotes now, as `mainstay dev` does when a local repository changes.
    pub fn look(&self) {
        self.nudge.look_now();
    }

    /// Detaches the running agent, so that another agent can be started beside it.
    pub fn detach(&mut self) -> Agent {
        self.agent.take().unwrap()
    }

    /// Whether the agent is running.
    pub fn agent_runs(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| !agent.task.is_finished())
    }

    /// Kills the agent between two of its steps, like SIGKILL.
    pub async fn kill(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.kill().await;
        }
    }

    /// Asks the agent to stop and waits for it.
    pub async fn stop(&mut self) {
        let Some(agent) = self.agent.take() else { return };
        agent.stop.cancel();
        agent.task.await.unwrap().unwrap();
    }

    /// Waits for a condition. If the gate closes first, kills the agent and starts a new one. Returns whether this
    /// happened.
    pub async fn cut_off_or(&mut self, wait: impl AsyncFn(&Self)) -> bool {
        let gate = self.gate.clone();
        let shut = tokio::select! {
            () = gate.shut() => true,
            () = wait(self) => false,
        };
        if shut {
            self.kill().await;
            gate.open();
            self.start();
            wait(self).await;
        }
        shut
    }

    /// Returns the directory of the agents' data.
    pub fn disk(&self) -> &std::path::Path {
        self.mirrors.path()
    }

    /// Returns the number of the agents' mirrors on disk.
    pub fn mirrors(&self) -> usize {
        let agents = std::fs::read_dir(self.mirrors.path()).unwrap();
        let mirrors = agents.flat_map(|agent| std::fs::read_dir(agent.unwrap().path()).unwrap());
        mirrors.filter(|mirror| mirror.as_ref().unwrap().path().extension().is_some_and(|end| end == "git")).count()
    }

    /// Returns the fault injection for the agents' requests, with their counts.
    pub fn levers(&self) -> &FaultInjection {
        self.gate.levers()
    }

    /// Makes the next matching requests fail. `verb` and `resource` are as in [`Fault`]; an empty string matches all.
    pub fn fail_next(&self, verb: &str, resource: &str, name: &str, code: u16, times: u32) {
        self.levers().fail_next(Fault {
            verb: verb.into(),
            resource: resource.into(),
            name: name.into(),
            code,
            times,
            ..Fault::default()
        });
    }

    /// Returns the counts of requests by `<verb> <resource>`, without watches, the Lease, and statuses of
    /// GitRepositories, which are written independently of tests.
    pub fn requests(&self) -> Vec<(String, u64)> {
        let counts = self.levers().counts();
        let counts = counts.iter().filter(|c| c.verb != "watch" && !c.resource.starts_with("leases"));
        let counts = counts.filter(|c| c.verb != "patch" || !c.resource.starts_with("gitrepositories"));
        counts.map(|c| (format!("{} {}", c.verb, c.resource), c.count)).collect()
    }
}
