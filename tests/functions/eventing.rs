//! Events from publishers to the Services of Triggers and Subscriptions, through `mainstay eventing run` as a process.
//!
//! The tests run twice: with a journal as the module `eventing`, and with a publisher, a dispatcher and NATS as
//! `eventing_on_nats`.

use mainstay_testkit::PATIENCE;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use devcluster::{Action, Call, Cluster, Options, Serving};
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use redb::{ReadableDatabase as _, ReadableTableMetadata as _, TableHandle as _};
use reqwest::Client;
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::permissions::grant;
use mainstay_testkit::external::External;
use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::nats_server::NatsServers;
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, free_address};

// Two modules have this file, so the paths are written out.
#[path = "eventing/hostile.rs"]
mod hostile;
#[path = "eventing/kills.rs"]
pub(crate) mod kills;
#[path = "eventing/ordered.rs"]
mod ordered;
#[path = "eventing/rollouts.rs"]
mod rollouts;
#[path = "eventing/tenants.rs"]
mod tenants;

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

/// A server in place of the pods of a Service.
pub(crate) struct Sink {
    address: SocketAddr,
    /// Whether the process receives the address of this server.
    is_named: bool,
    seen: Arc<Seen>,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<Seized>>,
    /// The statuses of the next responses. Further responses have 200.
    answers: Mutex<Vec<u16>>,
    /// The statuses of the responses to these events, by their id.
    failing: Mutex<HashMap<String, u16>>,
    /// Whether each response contains an event.
    replies: AtomicBool,
}

struct Seized {
    at: Instant,
    headers: HeaderMap,
    body: String,
    /// The status of the answer.
    code: u16,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Sink {
    fn new() -> Self {
        Self { address: free_address(), is_named: true, seen: Arc::default(), task: None }
    }

    pub(crate) async fn start(&mut self) {
        let listener = tokio::net::TcpListener::bind(self.address).await.unwrap();
        let app = Router::new().fallback(seize).with_state(Arc::clone(&self.seen));
        self.task = Some(tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }));
    }

    /// Ends immediately, even during a response.
    async fn stop(&mut self) {
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    fn count(&self) -> usize {
        self.seen.calls.lock().len()
    }

    /// Returns a header of each call.
    fn headers(&self, name: &str) -> Vec<String> {
        let calls = self.seen.calls.lock();
        let text = |call: &Seized| call.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        calls.iter().map(|call| text(call).unwrap_or_default()).collect()
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.seen.calls.lock().iter().map(|call| call.body.clone()).collect()
    }
}

async fn seize(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: String) -> (StatusCode, HeaderMap) {
    let failing = headers.get("ce-id").and_then(|id| seen.failing.lock().get(id.to_str().ok()?).copied());
    let code = if let Some(code) = failing {
        code
    } else {
        let mut answers = seen.answers.lock();
        if answers.is_empty() { 200 } else { answers.remove(0) }
    };
    let number = {
        let mut calls = seen.calls.lock();
        calls.push(Seized { at: Instant::now(), headers, body, code });
        calls.len()
    };
    let mut reply = HeaderMap::new();
    if seen.replies.load(Ordering::Relaxed) {
        let id = format!("reply-{number}");
        for (name, value) in [
            ("ce-specversion", "1.0"),
            ("ce-id", &id),
            ("ce-source", "sink"),
            ("ce-type", "reply"),
            ("ce-knativebrokerttl", "255"),
        ] {
            reply.insert(name, value.parse().unwrap());
        }
    }
    (StatusCode::from_u16(code).unwrap(), reply)
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_application_reach_the_trigger_that_wants_them() {
    let events = Events::running().await;
    events.trigger("mine-the-source", json!({"eventtypeversion": "v1", "source": "mock", "type": "user.created"}));
    events.trigger_is_ready("mine-the-source").await;

    let (_, other) = events.post("/mock/v1/events", "application/json", legacy("v2")).await;
    let (status, answer) = events.post("/mock/v1/events", "application/json", legacy("v1")).await;
    let id = serde_json::from_str::<Value>(&answer).unwrap()["event-id"].as_str().unwrap().to_owned();
    assert_eq!((status, answer), (200, format!("{{\"event-id\":\"{id}\",\"status\":\"\",\"reason\":\"\"}}\n")));
    assert!(other.contains("event-id"), "nobody wants the other version: {other}");
    // The tutorial's body, with the prefix of headers in its keys.
    let structured = json!({
        "ce-specversion": "1.0", "ce-type": "user.created", "ce-source": "elsewhere", "ce-id": "two",
        "ce-eventtypeversion": "v1", "data": {"a": 1},
    });
    let structured = events.post("/mock/events", "application/cloudevents+json", structured.to_string()).await;
    assert_eq!(structured, (204, String::new()));
    events.seen(2).await;
    let mut ids = events.sink.headers("ce-id");
    ids.sort();
    let mut expected = [id, "two".to_owned()];
    expected.sort();
    assert_eq!(ids, expected);
    let of = |name: &str| events.sink.headers(name);
    assert_eq!(of("ce-source"), ["mock", "mock"]);
    let host = format!("sink.{NAMESPACE}.svc.cluster.local");
    assert_eq!(of("host"), [host.as_str(), &host]);
    assert_eq!(of("content-type"), ["application/json"; 2]);
    assert!(of("ce-knativearrivaltime").iter().all(|time| !time.is_empty()));
    assert!(events.sink.bodies().contains(&"\"123456789\"".to_owned()));

    let kubectl = Kubectl::of_user(&events.world.server, NAMESPACE, "somebody").await;
    let listed = kubectl.run(&["get", "triggers"]).await;
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "READY", "REASON", "BROKER", "SUBSCRIBER_URI", "AGE"]);
    let uri = format!("http://sink.{NAMESPACE}.svc.cluster.local/");
    assert_eq!(lines[1][..4], ["mine-the-source", "True", "default", uri.as_str()]);
    let label = kubectl.run(&["get", "triggers", "-l", "eventing.knative.dev/broker=default", "-o", "name"]).await;
    assert_eq!(label, "trigger.eventing.knative.dev/mine-the-source\n");
    let wanted = events.client.get(events.url("/mock/v1/events/subscribed")).send().await.unwrap();
    let expected = json!({"eventsInfo": [{"name": "user.created", "version": "v1"}]});
    assert_eq!(serde_json::from_str::<Value>(&wanted.text().await.unwrap()).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_events_are_refused_as_kyma_refuses_them() {
    let events = Events::running().await;
    let field = |answer: &(u16, String)| {
        let body: Value = serde_json::from_str(&answer.1).unwrap();
        format!("{} {} {}", answer.0, body["message"].as_str().unwrap(), body["details"][0]["field"])
    };
    let with = |time: &str| {
        let mut event: Value = serde_json::from_str(&legacy("v1")).unwrap();
        event["event-time"] = time.into();
        event.to_string()
    };
    let post = |body: String| events.post("/mock/v1/events", "application/json", body);
    assert_eq!(field(&post(with("")).await), "400 Missing field \"event-time\"");
    assert_eq!(field(&post(with("now")).await), "400 Invalid field \"event-time\"");
    assert_eq!(field(&post("x".repeat(70_000)).await), "413 Request body too large null");
    let structured = events
        .post("/publish", "application/cloudevents+json", r#"{"specversion":"1.0","source":"s","type":"t"}"#)
        .await;
    assert_eq!(structured, (400, "id: MUST be a non-empty string\n".to_owned()));
    assert_eq!(events.post("/publish?a", "application/json", "{}").await, (404, String::new()));
    assert_eq!(events.post("/healthz", "application/json", "{}").await, (405, String::new()));
    assert_eq!(events.publish("1", "sap.kyma.custom.a.b", "1").await, 400);
    let kubectl = Kubectl::of_user(&events.world.server, NAMESPACE, "somebody").await;
    let trigger = |spec: Value| {
        json!({"apiVersion": KNATIVE, "kind": "Trigger", "metadata": {"name": "wrong"}, "spec": spec}).to_string()
    };
    let file = kubectl.file("trigger.json", &trigger(json!({"subscriber": {}})));
    let refused = kubectl.refused(&["apply", "-f", &file]).await;
    assert!(refused.contains("expected at least one, got none: spec.subscriber.ref, spec.subscriber.uri"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_gets_the_events_of_its_clean_type() {
    let events = Events::running().await;
    events.subscription("sub", &own_sink());
    events.subscription("elsewhere", "http://sink.other.svc.cluster.local");
    let condition = events.subscription_is("sub", true).await;
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Subscription active"), &json!("True")));
    let refused = events.subscription_is("elsewhere", false).await;
    assert_eq!(
        refused["message"],
        format!("namespace of subscription: {NAMESPACE} and the namespace of subscriber: other are different")
    );
    assert_eq!(events.publish("1", TYPE, r#"{"orderCode":"3211213"}"#).await, 204);
    assert_eq!(events.publish("1", TYPE, r#"{"orderCode":"3211213"}"#).await, 204, "the same again");
    assert_eq!(events.publish("2", "sap.kyma.custom.my-app.order.received.v1", "2").await, 204);
    assert_eq!(events.publish("3", "other", "3").await, 204, "nobody wants it");
    assert_eq!(events.publish("4", TYPE, "4").await, 204);
    events.seen(3).await;
    let mut seen: Vec<_> = events.sink.headers("ce-id").into_iter().zip(events.sink.headers("ce-type")).collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "4"].map(|id| (id.to_owned(), TYPE.to_owned())));
    assert!(events.sink.bodies().contains(&r#"{"orderCode":"3211213"}"#.to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_of_the_newer_version_gets_the_events_of_its_source() {
    const NEWER: &str = "eventing.kyma-project.io/v1alpha2";
    let events = Events::running().await;
    let newer = |name: &str, more: Value| {
        let mut spec = json!({"sink": own_sink(), "types": ["order.paid.v1"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        events.create(NEWER, "Subscription", "subscriptions", name, spec);
    };
    newer("standard", json!({"source": "te.sts", "config": {"maxInFlightMessages": "3", "qos": "AT_LEAST_ONCE"}}));
    newer("exact", json!({"sink": format!("{}/exact", own_sink()), "typeMatching": "exact"}));
    newer("elsewhere", json!({"source": "elsewhere"}));
    newer("refused", json!({"source": "tests", "types": ["paid"]}));
    for name in ["standard", "exact", "elsewhere"] {
        events.subscription_is(name, true).await;
    }
    let refused = events.subscription_is("refused", false).await;
    assert_eq!(refused["message"], "spec.types[0]: must have minimum 2 segments");
    let status = events.status(NEWER, "subscriptions", "standard");
    assert_eq!(status["config"]["maxInFlightMessages"], 3);
    assert_eq!(status["types"], json!([{"originalType": "order.paid.v1", "cleanType": "order.paid.v1"}]));
    assert_eq!(status["conditions"][1]["message"], "no effect: spec.config.qos; remove these fields");
    // Both versions show every field.
    let older = events.world.server.object(KYMA, "subscriptions", NAMESPACE, "standard").unwrap();
    assert_eq!((&older["spec"]["source"], &older["spec"]["types"]), (&json!("te.sts"), &json!(["order.paid.v1"])));
    assert_eq!(events.publish("1", "order.paid.v1", "1").await, 204);
    assert_eq!(events.publish("2", "order.created.v1", "2").await, 204, "nobody wants it");
    assert_eq!(events.publish("3", "order.paid.v1", "3").await, 204);
    events.seen(4).await;
    let mut seen = events.sink.headers("ce-id");
    seen.sort();
    assert_eq!(seen, ["1", "1", "3", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_deliveries_are_retried_and_refused_ones_are_dead_letters() {
    let events = Events::running().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    events.sink.seen.answers.lock().extend([500, 500]);
    assert_eq!(events.publish("again", TYPE, "1").await, 204);
    events.seen(3).await;
    assert_eq!(events.sink.headers("ce-id"), ["again"; 3]);
    let times: Vec<Instant> = events.sink.seen.calls.lock().iter().map(|call| call.at).collect();
    let gaps = (times[1] - times[0], times[2] - times[1]);
    let (second, two) = (Duration::from_millis(890), Duration::from_millis(1790));
    assert!(gaps.0 >= second && gaps.1 >= two, "{gaps:?}");

    events.sink.seen.answers.lock().push(400);
    assert_eq!(events.publish("refused", TYPE, "data").await, 204);
    let letters = || {
        let output = events.command(&["dead-letters", "--output", "json"]);
        serde_json::from_slice::<Vec<Value>>(&output.stdout).unwrap()
    };
    until("a dead letter is listed", || !letters().is_empty()).await;
    let all = letters();
    assert_eq!((all.len(), &all[0]["attributes"]["id"]), (1, &json!("refused")));
    let subscriber = format!("subscription/{NAMESPACE}/sub");
    assert_eq!((&all[0]["subscriber"], &all[0]["data"]), (&json!(subscriber), &json!("ZGF0YQ==")));
    assert_eq!(all[0]["reason"], "the subscriber has answered 400");
    assert_eq!(events.sink.count(), 4);
    let is_told = |w: &World| {
        let all = w.server.objects("v1", "events", Some(NAMESPACE));
        all.iter().any(|one| one["reason"] == "DeliveryFailed" && one["involvedObject"]["name"] == "sub")
    };
    events.world.until("an Event tells it", is_told).await;

    let replayed = events.command(&["replay", &subscriber]);
    assert_eq!(String::from_utf8(replayed.stdout).unwrap(), format!("1 delivered again to {subscriber}\n"));
    events.seen(5).await;
    assert_eq!(events.sink.headers("ce-id")[3..], ["refused", "refused"]);
    until("nothing is listed", || letters().is_empty()).await;
    let unknown = events.command(&["replay", "trigger/default/none"]);
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(unknown.status.code() == Some(2) && said.contains("there is no trigger/default/none"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_of_the_newer_version_gets_events_beside_an_older_one() {
    const NEWER: &str = "eventing.knative.dev/v1";
    let events = Events::running().await;
    events.trigger("older", json!({"type": "t"}));
    let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink"}, "uri": "/newer"});
    let spec = json!({"broker": "default", "filter": {"attributes": {"type": "t"}}, "subscriber": subscriber});
    events.create(NEWER, "Trigger", "triggers", "newer", spec);
    for name in ["older", "newer"] {
        events.trigger_is_ready(name).await;
    }
    assert!((200..300).contains(&events.publish("1", "t", "x").await));
    events.seen(2).await;
    assert_eq!(events.sink.headers("ce-id"), ["1", "1"]);
    let uri = events.status(NEWER, "triggers", "newer")["subscriberURI"].clone();
    assert!(uri.as_str().unwrap().ends_with("svc.cluster.local/newer"), "{uri}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_costs_no_request_to_the_api_server() {
    let events = Events::running().await;
    for name in ["a", "b", "c"] {
        events.trigger(name, json!({"type": TYPE}));
        events.subscription(&format!("sub-{name}"), &own_sink());
    }
    events.subscription("nowhere", "http://elsewhere.example.org");
    for name in ["a", "b", "c"] {
        events.trigger_is_ready(name).await;
        events.subscription_is(&format!("sub-{name}"), true).await;
    }
    events.subscription_is("nowhere", false).await;
    let counted = events.world.server.embedded().faults();
    events
        .world
        .is_silent_while(counted, async || {
            for number in 0..20 {
                assert_eq!(events.publish(&number.to_string(), TYPE, "data").await, 204);
            }
            events.seen(20 * 6).await;
        })
        .await;
    assert_eq!(events.sink.count(), 20 * 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_refused_is_tried_seldom_and_holds_up_no_other() {
    let events = Events::running().await;
    // This Subscription is the first in the order of writes.
    events.world.server.embedded().faults().fail_next(devcluster::fault_injection::Fault {
        resource: "subscriptions/status".into(),
        name: "a".into(),
        code: 403,
        message: "not today".into(),
        times: 1_000_000,
        ..Default::default()
    });
    let writes = || {
        let counts = events.world.server.embedded().faults().counts();
        let is_status = |resource: &str| resource.starts_with("subscriptions") && resource.ends_with("/status");
        let of_status = counts.iter().filter(|count| is_status(&count.resource));
        of_status.map(|count| count.count).sum::<u64>()
    };
    events.subscription("a", &own_sink());
    until("the first is tried", || writes() > 0).await;
    for name in ["b", "c", "d"] {
        events.subscription(name, &own_sink());
        events.subscription_is(name, true).await;
    }
    let begin = Instant::now();
    let before = writes();
    // Other changes do not cause a retry.
    for ready in (0..20).map(|number| number % 2 == 1) {
        let sink = if ready { own_sink() } else { "nowhere".to_owned() };
        events.world.edit(KYMA, "subscriptions", "b", json!({"spec": {"sink": sink}}));
        events.subscription_is("b", ready).await;
    }
    let refused = (writes() - before).saturating_sub(20);
    // At least 5 s between two attempts.
    let most = begin.elapsed().as_secs() / 5 + 1;
    assert!(refused <= most, "{refused} attempts within {:?}", begin.elapsed());
    events.world.server.embedded().faults().clear_faults();
    events.subscription_is("a", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_are_delivered_by_the_next_process() {
    let mut events = Events::stopped().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("1", TYPE, "kept").await, 204);
    events.kill();
    events.sink.start().await;
    events.start().await;
    events.seen(1).await;
    assert_eq!(events.sink.bodies(), ["kept"]);
    // The new process knows delivered and published events.
    assert_eq!(events.publish("2", TYPE, "more").await, 204);
    events.seen(2).await;
    // Deliveries in progress are repeated after a kill, so the test waits until there are none.
    until("both are noted as delivered", || events.noted() == 2).await;
    events.kill();
    events.start().await;
    assert_eq!(events.publish("1", TYPE, "kept").await, 204);
    assert_eq!(events.publish("3", TYPE, "last").await, 204);
    events.seen(3).await;
    assert_eq!(events.sink.bodies(), ["kept", "more", "last"]);
}

/// Events without a ready subscriber, then a subscriber that stops midway, and a killed process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_events_survive_a_rolled_subscriber_and_a_killed_process() {
    const EVENTS: usize = 10_000;
    const PUBLISHERS: usize = 32;
    let mut events = Events::stopped().await;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    let idle = events.peak();
    let data = "x".repeat(1000);
    let began = Instant::now();
    let publishing = (0..PUBLISHERS).map(|publisher| {
        let (client, url, data) = (events.client.clone(), events.url("/publish"), data.clone());
        tokio::spawn(async move {
            for number in (publisher..EVENTS).step_by(PUBLISHERS) {
                let status = publish(&client, &url, &number.to_string(), TYPE, &data).await;
                assert_eq!(status.unwrap(), 204, "{number}");
            }
        })
    });
    for publisher in publishing.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    let published = began.elapsed();
    let first = events.peak();
    events.sink.start().await;
    events.seen(EVENTS / 3).await;
    events.sink.stop().await;
    events.sink.start().await;
    events.seen(EVENTS * 2 / 3).await;
    events.kill();
    events.start().await;
    let ids = || {
        let mut counts: HashMap<String, usize> = HashMap::new();
        events.sink.headers("ce-id").into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        counts
    };
    until("every event is delivered", || events.sink.count() >= EVENTS && ids().len() == EVENTS).await;
    let second = events.peak();
    let twice = ids().values().filter(|count| **count > 1).count();
    println!(
        "{EVENTS} events of 1 kB: accepted in {published:?}, delivered twice: {twice}, peak memory: {} MiB before, then {} and {} MiB",
        idle >> 10,
        first >> 10,
        second >> 10
    );
    // At most the deliveries in progress when the subscriber and the process stopped.
    assert!(twice <= 2 * 10 + 32, "{twice} were delivered twice");
    // The 10 MB of data are on disk.
    let most = first.max(second);
    assert!(most < idle + (40 << 10), "{idle}, then {first} and {second} KiB");
}

/// Returns the peak memory of a process in KiB.
fn peak(process: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_journal_are_delivered_after_a_change_to_nats() {
    let mut events = Events::stopped().await;
    events.nats = None;
    events.start().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    assert_eq!(events.publish("1", TYPE, "in the journal").await, 204);
    events.kill();
    events.nats = Some(NatsServers::one());
    events.start().await;
    assert_eq!(events.publish("2", TYPE, "on NATS").await, 204);
    events.sink.start().await;
    events.seen(2).await;
    let mut bodies = events.sink.bodies();
    bodies.sort();
    assert_eq!(bodies, ["in the journal", "on NATS"]);
}
