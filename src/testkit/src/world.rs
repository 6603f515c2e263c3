//! A world for tests of the agent: a cluster, a Git repository, and the real agent.
//!
//! ```ignore
//! let mut world = World::new().await;
//! world.remote.file("a.yaml", config_map("a", "1")).commit("one");
//! world.sync("demo", json!({}));
//! world.start();
//! world.ready("demo").await;
//! world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
//! world.until("reverted", |w| w.data("a") == "1").await;
//! ```
//!
//! The cluster is embedded in this process, or the external one of `MAINSTAY_TEST_KUBECONFIG`. Waiting uses the event
//! log of the embedded cluster, or polling on an external cluster.

mod documents;
mod git_syncs;
mod objects;
mod running_agent;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use devcluster::{Cluster as EmbeddedCluster, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::broadcast;

pub use self::documents::{config_map, definition, deployment, git_sync, open_definition};
pub use self::git_syncs::condition_of;
pub use self::running_agent::Agent;
use super::external::{External, Turn};
use super::gate::Gate;
use super::machine::Machine;
use super::remote::Remote;
use super::server::TestServer;
use crate::PATIENCE;
use mainstay::agent::{self, Nudge};
use mainstay_cluster::listener::Limits;
use mainstay_cluster::{Timing, liveness};
use mainstay_engine::notification::{Emitter, Message};

/// Namespace of the GitSyncs and their objects. All other objects of tests have a name or API group with this prefix,
/// so that they can be deleted from an external cluster.
pub const NAMESPACE: &str = "mainstay-tests";
/// Polling interval for conditions without an event of the cluster.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A cluster, a repository and an agent.
pub struct World {
    /// The cluster.
    pub server: TestServer,
    /// The permit for the exclusive use of an external cluster.
    turn: Option<Turn>,
    /// The repository.
    pub remote: Remote,
    /// The agent's messages since its start.
    pub messages: broadcast::Receiver<Message>,
    emitter: Emitter,
    nudge: Nudge,
    /// Interval at which the agent audits each object; by default never.
    pub audit: Duration,
    /// Memory limit of the agent, in bytes.
    pub memory: usize,
    /// The directory that is shared with a renderer; by default there is none.
    pub renderer: Option<std::path::PathBuf>,
    mirrors: tempfile::TempDir,
    agent: Option<Agent>,
    /// The agent's timeouts for Git.
    pub deadlines: mainstay_git::Deadlines,
    /// Hosts that the agent resolves without DNS. A port of 0 is that of the URL.
    pub hosts: std::collections::HashMap<String, SocketAddr>,
    /// The agent's settings for identities of clouds.
    pub clouds: mainstay_git::CloudSettings,
    /// Networks allowed for repositories outside of the agent's namespace; by default all.
    pub allow_networks: Vec<mainstay_object::egress::Network>,
    /// Default ServiceAccount of GitSyncs outside of the agent's namespace.
    pub default_service_account: Option<String>,
    /// The agent's limits for Git.
    pub limits: mainstay_git::Limits,
    /// The operator's settings for Functions.
    pub functions: mainstay_function::Settings,
    /// The operator's settings for APIRules.
    pub exposure: mainstay_exposure::Settings,
    /// The components that the agent runs.
    pub components: mainstay::Components,
    /// Maximum time for which the agent's work may make no progress.
    pub stuck_after: Duration,
    /// The address of the agent's health endpoint.
    pub listen: Option<SocketAddr>,
    /// The agent's listener for webhooks.
    pub receive: Option<agent::Receive>,
    /// The agent's admission webhooks.
    pub admit: Option<agent::Admit>,
    /// The number of agents that share the GitSyncs.
    pub shards: Option<u8>,
    /// The durations of the agents' Leases.
    pub timing: Timing,
    /// Whether agents run in pods whose names equal the agents' identities.
    pub in_pods: bool,
    /// Limits for clients of the agent.
    pub clients: Limits,
    /// The gate for the agent's requests.
    pub gate: Gate,
    /// Wraps the client between the gate and the cluster.
    pub wire: Option<Wire>,
    /// Timeout of waits.
    pub patience: Duration,
    /// The node of the world's pods, if the pods are real processes.
    pub machine: Option<Machine>,
    asked: AtomicU64,
}

/// Wraps a client of the cluster.
pub type Wire = Arc<dyn Fn(kube::Client) -> kube::Client + Send + Sync>;

/// Converts Functions between their versions, like the agent's webhook on other clusters.
fn converted(object: &mut Value, to: &str) {
    if let Some(version) = mainstay_function::admission::Version::of(to) {
        mainstay_function::admission::convert(object, version);
    }
}

impl World {
    /// Returns a world with Mainstay's CRDs and a GitRepository `repo`. The agent does not run yet.
    pub async fn new() -> Self {
        match External::from_environment().await {
            None => Self::of(EmbeddedCluster::new(Options { converter: Some(converted), ..Options::default() })),
            Some((external, turn)) => {
                let mut world = Self::over(TestServer::External(external));
                world.turn = Some(turn);
                world.repository("repo", &world.remote.path().display().to_string());
                world
            }
        }
    }

    /// Returns a world on its own embedded cluster. This needs a runtime for the cluster's controllers.
    pub fn of(server: EmbeddedCluster) -> Self {
        server.start_controllers();
        let world = Self::over(TestServer::Embedded(server));
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        world.create("v1", "namespaces", "", namespace);
        for definition in mainstay_api::definitions() {
            let definition = serde_json::to_value(definition).unwrap();
            world.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition);
        }
        world.repository("repo", &world.remote.path().display().to_string());
        world
    }

    fn over(server: TestServer) -> Self {
        let emitter = Emitter::default();
        Self {
            remote: Remote::new(),
            messages: emitter.subscribe(),
            emitter,
            nudge: Nudge::default(),
            audit: Duration::ZERO,
            memory: 1 << 30,
            renderer: None,
            mirrors: tempfile::tempdir().unwrap(),
            agent: None,
            deadlines: mainstay_git::Deadlines::default(),
            limits: mainstay_git::Limits::default(),
            default_service_account: None,
            hosts: std::collections::HashMap::new(),
            clouds: mainstay_git::CloudSettings::default(),
            allow_networks: mainstay_object::egress::Network::ALL.to_vec(),
            functions: mainstay_function::Settings {
                base_images: [("*".to_owned(), mainstay_function::BaseImage::Scratch)].into(),
                ..mainstay_function::Settings::default()
            },
            components: mainstay::Components::default(),
            exposure: mainstay_exposure::Settings {
                default_domain: mainstay_object::names::DomainName::parse("kyma.local").ok(),
                // Many tests use their own backend, which is not a pod.
                written_endpoints: vec!["*".to_owned()],
                ..Default::default()
            },
            stuck_after: liveness::STUCK_AFTER,
            listen: None,
            receive: None,
            admit: None,
            shards: None,
            timing: Timing::default(),
            in_pods: false,
            clients: Limits::default(),
            gate: Gate::default(),
            wire: None,
            patience: PATIENCE,
            machine: None,
            asked: AtomicU64::new(0),
            turn: None,
            server,
        }
    }

    /// Creates a GitRepository without credentials.
    pub fn repository(&self, name: &str, url: &str) {
        self.create(
            "serverless.kyma-project.io/v1alpha1",
            "gitrepositories",
            NAMESPACE,
            json!({
                "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"url": url},
            }),
        );
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let statuses = || {
            let syncs = self.server.objects("mainstay.dev/v1alpha1", "gitsyncs", None);
            syncs.iter().map(|s| format!("{:#}", s["status"])).collect::<Vec<_>>().join("\n")
        };
        self.until_or(what, wanted, statuses).await;
    }

    /// Waits until a condition holds. Prints `shown` if it fails.
    pub async fn until_or(&self, what: &str, wanted: impl Fn(&Self) -> bool, shown: impl Fn() -> String) {
        let mut events = match &self.server {
            TestServer::Embedded(server) => Some(server.subscribe()),
            TestServer::External(_) => None,
        };
        let reached = async {
            while !wanted(self) {
                match &mut events {
                    // Most conditions change with an event of the cluster. The others are polled.
                    Some(events) => drop(tokio::time::timeout(LOOK_EVERY, events.next()).await),
                    None => tokio::time::sleep(LOOK_EVERY).await,
                }
            }
        };
        let outcome = tokio::time::timeout(self.patience, reached).await;
        assert!(outcome.is_ok(), "not within {:?}: {what}\n{}", self.patience, shown());
    }
}

/// Returns an address at which no process listens, and that no other test process gets before this one ends. The port is
/// outside of the range for outgoing connections.
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    /// UDP sockets at the returned addresses: while this process has one, others get other ports. TCP stays free.
    static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());
    // The start depends on the process, because several test processes run concurrently.
    let first = std::process::id().wrapping_mul(97);
    loop {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % 9000;
        let address = SocketAddr::from(([127, 0, 0, 1], 20_000 + u16::try_from(number).unwrap()));
        let Ok(claim) = UdpSocket::bind(address) else { continue };
        if std::net::TcpListener::bind(address).is_ok() {
            CLAIMS.lock().push(claim);
            return address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stays_claimed_for_this_process_and_free_for_its_servers() {
        let (one, two) = (free_address(), free_address());
        assert_ne!(one, two);
        for address in [one, two] {
            assert!(UdpSocket::bind(address).is_err(), "another process could claim it");
            assert!(std::net::TcpListener::bind(address).is_ok());
        }
    }
}
