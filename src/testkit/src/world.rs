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

use crate::PATIENCE;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use devcluster::{
    Action, Call, Caller, Cluster as EmbeddedCluster, Options,
    fault_injection::{Fault, FaultInjection},
    status::Status,
    verbs::{delete::DeleteOptions, patch::Form},
};
use mainstay::agent::{self, Nudge, Settings};
use mainstay_cluster::{Cluster, Timing, listener::Limits, liveness};
use mainstay_engine::notification::{Emitter, Message};
use mainstay_manifest::render::Words;
use serde_json::{Value, json};
use tokio::{sync::broadcast, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    external::{External, Turn},
    gate::{Gate, Gated},
    machine::Machine,
    remote::Remote,
    server::TestServer,
};

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

/// A running agent.
pub struct Agent {
    stop: CancellationToken,
    task: JoinHandle<Result<(), agent::Error>>,
}

impl Agent {
    /// Kills the agent between two of its steps, like SIGKILL.
    pub async fn kill(self) {
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

    /// Creates a GitSync for the repository; `spec` is merged over the defaults.
    pub fn sync(&self, name: &str, spec: Value) {
        let mut whole = json!({"gitRepository": "repo", "interval": "1h"});
        json_patch::merge(&mut whole, &spec);
        self.create(
            "mainstay.dev/v1alpha1",
            "gitsyncs",
            NAMESPACE,
            json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": whole,
            }),
        );
    }

    /// Starts the agent without leader election.
    pub fn start(&mut self) {
        self.start_as("agent", false);
    }

    /// Starts the agent.
    pub fn start_as(&mut self, identity: &str, elect: bool) {
        let client = || {
            let cluster = self.server.agent_client(NAMESPACE);
            Gated::client(self.wire.as_ref().map_or_else(|| cluster.clone(), |wire| wire(cluster.clone())), &self.gate)
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
        self.agent = Some(Agent { stop, task: tokio::spawn(running) });
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

    /// Creates the GitSync `demo`, starts the agent, and waits until it is ready at the newest commit.
    pub async fn synced(&mut self, spec: Value) {
        self.sync("demo", spec);
        self.start();
        self.ready("demo").await;
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

    /// Makes the agent poll the remotes now, as `mainstay dev` does when a local repository changes.
    pub fn look(&self) {
        self.nudge.look_now();
    }

    /// Sends a request as a field manager.
    pub fn try_as(&self, manager: &str, call: Call) -> Result<Value, Status> {
        self.server.call(&Caller::new(manager), call)
    }

    /// Sends a request as a field manager. The request must succeed.
    #[track_caller]
    pub fn write_as(&self, manager: &str, call: Call) -> Value {
        self.server.must_call(manager, call)
    }

    /// Creates the Lease of an agent, as it exists in a cluster. Otherwise, agents of worlds have no Lease.
    pub fn hold_lease(&self) {
        let spec = json!({
            "holderIdentity": "one", "leaseDurationSeconds": 3600, "renewTime": "2099-01-01T00:00:00.000000Z",
        });
        let lease = json!({"metadata": {"name": "mainstay"}, "spec": spec});
        self.create("coordination.k8s.io/v1", "leases", NAMESPACE, lease);
    }

    /// Creates an object as `test`.
    #[track_caller]
    pub fn create(&self, api_version: &str, resource: &str, namespace: &str, object: Value) -> Value {
        self.write_as("test", Call::new(api_version, resource, namespace, "", Action::Create(object)))
    }

    /// Merge-patches an object of the namespace, as a user does with `kubectl edit`.
    #[track_caller]
    pub fn edit(&self, api_version: &str, resource: &str, name: &str, patch: Value) -> Value {
        let action = Action::Patch(Form::Merge, patch);
        self.write_as("kubectl-edit", Call::new(api_version, resource, NAMESPACE, name, action))
    }

    /// Merge-patches an object of the namespace, or creates it from the patch if it is missing.
    #[track_caller]
    pub fn edit_or_create(&self, resource: &str, kind: &str, name: &str, patch: Value) {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
        json_patch::merge(&mut object, &patch);
        let call = |name, action| Call::new("v1", resource, NAMESPACE, name, action);
        // Another client may create or delete the object between the two requests.
        loop {
            match self.try_as("kubectl-edit", call(name, Action::Patch(Form::Merge, patch.clone()))) {
                Ok(_) => return,
                Err(status) if status.code == 404 => {}
                Err(status) => panic!("patch {resource} {NAMESPACE}/{name}: {status:?}"),
            }
            match self.try_as("test", call("", Action::Create(object.clone()))) {
                Ok(_) => return,
                Err(status) if status.reason == "AlreadyExists" => {}
                Err(status) => panic!("create {resource} {NAMESPACE}/{name}: {status:?}"),
            }
        }
    }

    /// Sets these keys of a Secret in the namespace. Creates it if it is missing.
    #[track_caller]
    pub fn set_secret(&self, name: &str, data: Value) {
        self.edit_or_create("secrets", "Secret", name, json!({"stringData": data}));
    }

    /// Deletes an object of the namespace.
    #[track_caller]
    pub fn delete(&self, api_version: &str, resource: &str, name: &str) {
        let action = Action::Delete(DeleteOptions::default());
        self.write_as("kubectl", Call::new(api_version, resource, NAMESPACE, name, action));
    }

    /// Returns an object of the namespace.
    pub fn get(&self, api_version: &str, resource: &str, name: &str) -> Option<Arc<Value>> {
        self.server.object(api_version, resource, NAMESPACE, name)
    }

    /// Returns `data.key` of a ConfigMap in the namespace, or `absent`.
    pub fn data(&self, name: &str) -> String {
        let map = self.get("v1", "configmaps", name);
        map.and_then(|map| map["data"]["key"].as_str().map(str::to_owned)).unwrap_or_else(|| "absent".to_owned())
    }

    /// Annotates a GitSync.
    #[track_caller]
    pub fn annotate_sync(&self, name: &str, annotation: &str, value: &str) {
        self.edit("mainstay.dev/v1alpha1", "gitsyncs", name, json!({"metadata": {"annotations": {annotation: value}}}));
    }

    /// Returns the status of a GitSync; null without a status.
    pub fn status(&self, sync: &str) -> Value {
        self.get("mainstay.dev/v1alpha1", "gitsyncs", sync).map(|sync| sync["status"].clone()).unwrap_or_default()
    }

    /// Returns `<status> <reason>: <message>` of a condition; `absent` without it.
    pub fn condition(&self, sync: &str, kind: &str) -> String {
        condition_of(&self.status(sync), kind)
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

    /// Waits until a GitSync is Ready at the newest commit of the repository.
    pub async fn ready(&self, sync: &str) {
        self.ready_at(sync, &self.remote.head()).await;
    }

    /// Waits until a GitSync is Ready at a commit.
    pub async fn ready_at(&self, sync: &str, commit: &str) {
        self.until(&format!("{sync} ready at {commit}"), |w| {
            w.condition(sync, "Ready").starts_with("True") && w.status(sync)["appliedCommit"] == commit
        })
        .await;
    }

    /// Commits the staged files, requests a sync, and waits until the commit is applied.
    pub async fn commit(&mut self, sync: &str, message: &str) {
        self.remote.commit(message);
        self.ask(sync).await;
        self.ready(sync).await;
    }

    /// Commits the staged files, requests a sync, and waits until the commit is handled. Returns the commit.
    pub async fn try_commit(&mut self, sync: &str, message: &str) -> String {
        let commit = self.remote.commit(message);
        self.ask(sync).await;
        commit
    }

    /// Requests a sync like `mainstay sync`, and waits until the status acknowledges it.
    pub async fn ask(&self, sync: &str) {
        let request = self.request(sync);
        self.until(&format!("{sync} to answer {request}"), |w| w.status(sync)["lastHandledRequest"] == *request).await;
    }

    /// Requests a sync like `mainstay sync`, without waiting.
    pub fn request(&self, sync: &str) -> String {
        let request = format!("request {}", self.asked.fetch_add(1, Ordering::Relaxed));
        self.annotate_sync(sync, "mainstay.dev/requestedAt", &request);
        request
    }

    /// Allows a commit to exceed the prune guards, and waits for the result.
    pub async fn allow_prune(&self, sync: &str, commit: &str) {
        self.annotate_sync(sync, "mainstay.dev/allow-prune", commit);
        self.ask(sync).await;
    }

    /// Changes the spec of a GitSync and waits until the change is handled.
    pub async fn change(&self, sync: &str, spec: Value) {
        let changed = self.edit("mainstay.dev/v1alpha1", "gitsyncs", sync, json!({"spec": spec}));
        let generation = changed["metadata"]["generation"].clone();
        self.ask(sync).await;
        self.until("the change is acted on", |w| w.status(sync)["observedGeneration"] == generation).await;
    }

    /// Returns the failure of an object in the status; empty if it is not listed.
    pub fn failure(&self, sync: &str, object: &str) -> String {
        let status = self.status(sync);
        let all = status["failures"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|failure| failure["object"] == object);
        found.map_or_else(String::new, |f| {
            format!("{}: {}", f["reason"].as_str().unwrap(), f["message"].as_str().unwrap())
        })
    }

    /// Returns the UID of an object in the namespace.
    #[track_caller]
    pub fn uid(&self, api_version: &str, resource: &str, name: &str) -> String {
        self.get(api_version, resource, name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Returns the names of ConfigMaps in the namespace, without inventories and the cluster's own.
    pub fn config_maps(&self) -> Vec<String> {
        let all = self.server.objects("v1", "configmaps", Some(NAMESPACE));
        let names = all.iter().map(|map| map["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| !name.starts_with("mainstay-inventory-") && name != "kube-root-ca.crt").collect()
    }

    /// Waits until a condition of a GitSync begins with a string.
    pub async fn condition_is(&self, sync: &str, kind: &str, beginning: &str) {
        let what = format!("{kind} of {sync} to begin with {beginning:?}");
        self.until(&what, |w| w.condition(sync, kind).starts_with(beginning)).await;
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

    /// Returns the fault injection for the agents' requests, with their counts.
    pub fn levers(&self) -> &FaultInjection {
        self.gate.levers()
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

/// Returns `<status> <reason>: <message>` of a condition in a status; `absent` without it.
pub fn condition_of(status: &Value, kind: &str) -> String {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    found.map_or_else(
        || "absent".to_owned(),
        |c| format!("{} {}: {}", text(c, "status"), text(c, "reason"), text(c, "message")),
    )
}

/// Returns an address at which no process listens. The port is outside of the range for outgoing connections.
pub fn free_address() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // The start depends on the process, because several test processes run concurrently.
    let first = std::process::id().wrapping_mul(97);
    loop {
        let number = first.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % 9000;
        let address = SocketAddr::from(([127, 0, 0, 1], 20_000 + u16::try_from(number).unwrap()));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Returns a GitSync document for the GitRepository `repo`. Its objects are deleted together with it.
pub fn git_sync(name: &str, base_dir: &str) -> String {
    json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "annotations": {"mainstay.dev/on-delete": "prune"}},
        "spec": {"gitRepository": "repo", "interval": "1h", "baseDir": base_dir},
    })
    .to_string()
}

/// Returns a ConfigMap document with `data.key`.
pub fn config_map(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  key: \"{value}\"\n")
}

/// Returns a Deployment document with one container.
pub fn deployment(name: &str, image: &str, replicas: u32) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  replicas: {replicas}\n  selector:\n    \
         matchLabels: {{app: {name}}}\n  template:\n    metadata:\n      labels: {{app: {name}}}\n    spec:\n      \
         containers:\n      - name: web\n        image: {image}\n        env:\n        - {{name: A, value: \"1\"}}\n        \
         - {{name: B, value: \"2\"}}\n"
    )
}

/// Returns a CRD of widgets.
pub fn definition() -> String {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.mainstay-tests.example.org"},
        "spec": {
            "group": "mainstay-tests.example.org", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        },
    })
    .to_string()
}

/// Returns a CRD of widgets that accepts any field, so that a status can be written to them.
pub fn open_definition() -> String {
    let mut definition: Value = serde_json::from_str(&definition()).unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    definition.to_string()
}
