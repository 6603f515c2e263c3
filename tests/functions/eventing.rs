//! Events from publishers to the Services of Triggers and Subscriptions, through `mainstay eventing run` as a process.
//!
//! The tests run twice: with a journal as the module `eventing`, and with a publisher, a dispatcher and NATS as
//! `eventing_on_nats`.

// Two modules have this file, so the paths are written out.
#[path = "eventing/hostile.rs"]
mod hostile;
#[path = "eventing/kills.rs"]
pub(crate) mod kills;
#[path = "eventing/ordered.rs"]
mod ordered;
#[path = "eventing/restarts.rs"]
mod restarts;
#[path = "eventing/retries.rs"]
mod retries;
#[path = "eventing/rollouts.rs"]
mod rollouts;
#[path = "eventing/sink.rs"]
mod sink;
#[path = "eventing/subscribers.rs"]
mod subscribers;
#[path = "eventing/tenants.rs"]
mod tenants;

use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use devcluster::{Action, Call, Cluster, Options, Serving};
use parking_lot::Mutex;
use redb::{ReadableDatabase as _, ReadableTableMetadata as _, TableHandle as _};
use reqwest::Client;
use serde::Deserialize as _;
use serde_json::{Value, json};

use self::sink::Sink;
use crate::permissions::grant;
use mainstay_testkit::PATIENCE;
use mainstay_testkit::external::External;
use mainstay_testkit::nats_server::NatsServers;
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, free_address};

const KNATIVE: &str = "eventing.knative.dev/v1alpha1";
const KYMA: &str = "eventing.kyma-project.io/v1alpha1";
/// Namespace of the component.
pub(crate) const HOME: &str = "kyma-system";
/// The permissions of the component.
const RIGHTS: &str = "manifests/eventing/rbac.yaml";
/// Another namespace with a Service `sink`.
const OTHER: &str = "other-tenant";
/// Events without a namespace reach every subscriber, as in Kyma.
const GRANTED: [&str; 1] = ["--allow-subscriptions=*=kyma-system"];
pub(crate) const TYPE: &str = "sap.kyma.custom.myapp.order.received.v1";

/// Returns whether the events of this module are on NATS.
fn is_on_nats() -> bool {
    module_path!().ends_with("_on_nats")
}

/// A cluster with the CRDs, and a process that delivers to the Service `sink`, with the permissions of its component.
pub(crate) struct Events {
    token: String,
    world: World,
    /// The server of the embedded cluster.
    serving: Option<Serving>,
    data: tempfile::TempDir,
    pub(crate) sink: Sink,
    address: SocketAddr,
    /// The process, or that of the publisher and that of the dispatcher.
    processes: Vec<Child>,
    /// The address of the dispatcher.
    dispatcher: SocketAddr,
    /// Further processes, with their role and address.
    further: Vec<(Option<&'static str>, SocketAddr)>,
    /// The addresses of the metrics of all started processes.
    scraped: Mutex<Vec<SocketAddr>>,
    nats: Option<NatsServers>,
    client: Client,
    /// Further arguments of the process.
    pub(crate) arguments: Vec<String>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Events {
    /// Starts the process and the sink.
    async fn running() -> Self {
        let mut events = Self::stopped().await;
        events.sink.start().await;
        events.start().await;
        events
    }

    async fn stopped() -> Self {
        Self::stopped_on(is_on_nats().then(NatsServers::one)).await
    }

    /// Returns a stopped process that keeps its events on these servers, or in a journal.
    pub(crate) async fn stopped_on(nats: Option<NatsServers>) -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let world = if External::is_named() {
            World::new().await
        } else {
            World::of(Cluster::new(Options { rbac: true, ..Options::default() }))
        };
        let definitions = serde_yaml::Deserializer::from_str(mainstay_eventing::DEFINITIONS);
        world.define_only(definitions.map(|one| Value::deserialize(one).unwrap()).collect());
        let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}});
        let serving = match &world.server {
            TestServer::External(external) => {
                external.grant(&home.to_string());
                external.grant(&std::fs::read_to_string(RIGHTS).unwrap());
                None
            }
            TestServer::Embedded(cluster) => {
                world.create("v1", "namespaces", "", home);
                grant(&world, RIGHTS, &[]);
                Some(cluster.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap())
            }
        };
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let call = Call::new("v1", "serviceaccounts", HOME, "mainstay-eventing", Action::Create(wanted)).on("token");
        let token = world.try_as("test", call).unwrap()["status"]["token"].as_str().unwrap().to_owned();
        let client = Client::builder().no_proxy().build().unwrap();
        let (data, sink) = (tempfile::tempdir().unwrap(), Sink::new());
        Self {
            token,
            world,
            serving,
            data,
            sink,
            address: free_address(),
            processes: Vec::new(),
            dispatcher: free_address(),
            further: Vec::new(),
            scraped: Mutex::default(),
            nats,
            client,
            arguments: GRANTED.map(str::to_owned).into(),
        }
    }

    pub(crate) async fn start(&mut self) {
        let kubeconfig = self.data.path().join("kubeconfig");
        let access = match &self.serving {
            Some(serving) => self.world.server.embedded().kubeconfig(serving.address(), Some(&self.token)),
            None => External::kubeconfig(&self.token),
        };
        std::fs::write(kubeconfig, access).unwrap();
        self.processes = self.roles().iter().map(|role| self.spawn(*role)).collect();
        self.ready().await;
    }

    /// Returns the roles of the processes, as arguments, and their addresses.
    fn roles(&self) -> Vec<(Option<&'static str>, SocketAddr)> {
        let first = match &self.nats {
            None => vec![(None, self.address)],
            Some(_) => vec![(Some("--role=publisher"), self.address), (Some("--role=dispatcher"), self.dispatcher)],
        };
        [first, self.further.clone()].concat()
    }

    fn spawn(&self, (role, address): (Option<&str>, SocketAddr)) -> Child {
        let services = [NAMESPACE, OTHER].map(|of| format!("--service={of}/sink:80={}", self.sink.address));
        let (mut command, scraped) = (self.mainstay(), free_address());
        self.scraped.lock().push(scraped);
        command
            .args(["run", "--listen", &address.to_string(), "--metrics-listen", &scraped.to_string()])
            .args(role)
            .args(services.iter().filter(|_| self.sink.is_named))
            .args(&self.arguments)
            .arg("--kubeconfig")
            .arg(self.data.path().join("kubeconfig"))
            .stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    /// Waits until all processes are ready.
    async fn ready(&self) {
        for (_, address) in self.roles() {
            let url = format!("http://{address}/readyz");
            let ready = async || self.client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200);
            let end = Instant::now() + PATIENCE;
            while !ready().await {
                assert!(Instant::now() < end, "it does not accept events");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Kills the processes with SIGKILL.
    fn kill(&mut self) {
        for mut process in self.processes.drain(..) {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Returns the command with the store.
    fn mainstay(&self) -> Command {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.arg("eventing").env_clear().env("MAINSTAY_EVENTING_DATA", self.data.path());
        if let Some(nats) = &self.nats {
            command.env("MAINSTAY_NATS_URL", nats.url()).env("MAINSTAY_NATS_CREDENTIALS", nats.credentials());
        }
        command
    }

    /// Returns the peak memory of the largest process in KiB.
    fn peak(&self) -> u64 {
        self.processes.iter().map(peak).max().unwrap()
    }

    /// Returns the number of finished deliveries.
    fn noted(&self) -> usize {
        if let Some(nats) = &self.nats {
            let number = |state: &Value, name: &str| usize::try_from(state[name].as_u64().unwrap()).unwrap();
            let ended = |state: &Value| number(state, "last_seq") - number(state, "messages");
            return nats.streams("mainstay_events_").iter().map(ended).sum();
        }
        self.rows("recent") - self.rows("waiting")
    }

    /// Returns the number of rows of a table of the journal: `recent` has one for each published event and subscriber, and
    /// `waiting` has one until the delivery has finished.
    fn rows(&self, table: &str) -> usize {
        let (path, copy) = (self.data.path().join("journal/events.redb"), tempfile::tempdir().unwrap());
        let copy = copy.path().join("events.redb");
        // The process that writes the file has locked it. A copy during a write is not valid.
        let mut contents = std::fs::read(&path).unwrap();
        loop {
            let again = std::fs::read(&path).unwrap();
            if contents == again {
                break;
            }
            contents = again;
        }
        std::fs::write(&copy, contents).unwrap();
        let database = redb::Database::open(copy).unwrap();
        let read = database.begin_read().unwrap();
        let found = read.list_tables().unwrap().find(|one| one.name() == table).unwrap();
        usize::try_from(read.open_untyped_table(found).unwrap().len().unwrap()).unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn command(&self, arguments: &[&str]) -> Output {
        self.mainstay().args(arguments).output().unwrap()
    }

    fn trigger(&self, name: &str, attributes: Value) {
        let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink", "namespace": "other"}});
        let spec = json!({"broker": "default", "filter": {"attributes": attributes}, "subscriber": subscriber});
        self.create(KNATIVE, "Trigger", "triggers", name, spec);
    }

    pub(crate) fn subscription(&self, name: &str, sink: &str) {
        let value = |property: &str, value: &str| json!({"property": property, "type": "exact", "value": value});
        let of = value("type", "sap.kyma.custom.my-app.order.received.v1");
        let filter = json!({"filters": [{"eventSource": value("source", ""), "eventType": of}]});
        self.create(KYMA, "Subscription", "subscriptions", name, json!({"sink": sink, "filter": filter}));
    }

    fn create(&self, api: &str, kind: &str, plural: &str, name: &str, spec: Value) {
        self.create_in(NAMESPACE, (api, kind, plural), name, spec);
    }

    fn create_in(&self, namespace: &str, (api, kind, plural): (&str, &str, &str), name: &str, spec: Value) {
        let metadata = json!({"name": name, "namespace": namespace});
        let object = json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec});
        self.world.create(api, plural, namespace, object);
    }

    fn status(&self, api: &str, plural: &str, name: &str) -> Value {
        let object = self.world.server.object(api, plural, NAMESPACE, name);
        object.map(|object| object["status"].clone()).unwrap_or_default()
    }

    /// Waits until a Trigger is ready.
    async fn trigger_is_ready(&self, name: &str) {
        let is_ready = |_: &World| {
            let status = self.status(KNATIVE, "triggers", name);
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        self.world.until("the Trigger is ready", is_ready).await;
    }

    /// Waits until a Subscription is ready or not ready.
    pub(crate) async fn subscription_is(&self, name: &str, ready: bool) -> Value {
        let is = |_: &World| self.status(KYMA, "subscriptions", name)["ready"] == ready;
        self.world.until("the Subscription has its status", is).await;
        self.status(KYMA, "subscriptions", name)["conditions"][0].clone()
    }

    async fn post(&self, path: &str, content: &str, body: impl Into<reqwest::Body>) -> (u16, String) {
        let request = self.client.post(self.url(path)).header("content-type", content).body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Publishes an event in binary mode and returns the status.
    pub(crate) async fn publish(&self, id: &str, of: &str, data: &str) -> u16 {
        publish(&self.client, &self.url("/publish"), id, of, data).await.unwrap()
    }

    /// Waits for this number of calls.
    pub(crate) async fn seen(&self, count: usize) {
        let servers = || self.nats.as_ref().map(NatsServers::report).unwrap_or_default();
        holds_within(|| format!("{count} calls\n{}", servers()), || self.sink.count() >= count).await;
    }
}

async fn until(what: &str, holds: impl FnMut() -> bool) {
    holds_within(|| what.to_owned(), holds).await;
}

/// Waits for a condition; `what` is the message if it does not hold in time.
async fn holds_within(what: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {}", what());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn publish(client: &Client, url: &str, id: &str, of: &str, data: &str) -> reqwest::Result<u16> {
    let mut request = client.post(url).header("content-type", "application/json").body(data.to_owned());
    for (name, value) in [("specversion", "1.0"), ("id", id), ("source", "tests"), ("type", of)] {
        request = request.header(format!("ce-{name}"), value);
    }
    Ok(request.send().await?.status().as_u16())
}

/// Returns the address of the Service `sink` for a Subscription.
pub(crate) fn own_sink() -> String {
    format!("http://sink.{NAMESPACE}.svc.cluster.local")
}

pub(crate) fn legacy(version: &str) -> String {
    let event = json!({
        "event-type": "user.created", "event-type-version": version, "event-time": "2020-04-02T21:37:00Z",
        "data": "123456789",
    });
    event.to_string()
}

/// Returns the peak memory of a process in KiB.
fn peak(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
