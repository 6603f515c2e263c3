//! Services of Knative on the node: from their creation to an answer, and what becomes of them.

use crate::machine::{HOST, Machine};
use devcluster::knative;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

const SERVICES: &str = "/apis/serving.knative.dev/v1/namespaces/default/services";
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of the text in `TEXT`; a request for `/slow` takes a while.
const WEB: &str = r"
import http.server, os, signal, sys, threading, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        if self.path == '/slow':
            time.sleep(0.5)
        text = (os.environ.get('TEXT', '') + ' ' + os.environ['K_REVISION']).encode()
        self.send_response(200)
        self.send_header('content-length', str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer((os.environ['POD_ADDRESS'], int(os.environ['PORT'])), Answer)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
";

/// A machine with Knative, whose windows are short.
async fn machine() -> Machine {
    let machine = Machine::with_options(|_| {}, |options| options.knative = true);
    for document in knative::DEFINITIONS.split("\n---\n") {
        let document = serde_yaml::from_str(document).unwrap();
        machine.world.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document).await.expect(201);
    }
    let namespace = json!({"metadata": {"name": "knative-serving"}});
    machine.world.post("/api/v1/namespaces", namespace).await.expect(201);
    configure(&machine, "config-autoscaler", json!({"stable-window": "6s", "tick-interval": "200ms"})).await;
    machine
}

async fn configure(machine: &Machine, name: &str, data: Value) {
    let map = json!({"metadata": {"name": name}, "data": data});
    machine.world.post("/api/v1/namespaces/knative-serving/configmaps", map).await.expect(201);
}

/// A Service that answers this; `annotations` are those of its template.
fn service(name: &str, text: &str, annotations: &Value) -> Value {
    let container = json!({
        "image": HOST, "command": ["python3", "-c", WEB], "env": [{"name": "TEXT", "value": text}],
        "readinessProbe": {"successThreshold": 1, "tcpSocket": {"port": 0}},
    });
    let labels = json!({"networking.knative.dev/visibility": "cluster-local", "team": "a"});
    let template = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
    let metadata = json!({"name": name, "labels": labels});
    json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": metadata, "spec": {"template": template}})
}

fn object(machine: &Machine, version: &str, plural: &str, name: &str) -> Value {
    let found = machine.world.server.object(version, plural, "default", name);
    found.map_or(Value::Null, |found| (*found).clone())
}

fn serving(machine: &Machine, plural: &str, name: &str) -> Value {
    object(machine, "serving.knative.dev/v1", plural, name)
}

/// A condition as `status reason`.
fn condition(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.into_iter().find(|condition| condition["type"] == kind);
    found.map_or_else(String::new, |found| {
        let text = |field: &str| found[field].as_str().unwrap_or_default();
        format!("{} {}", text("status"), text("reason")).trim().to_owned()
    })
}

fn said(object: &Value) -> String {
    ["ConfigurationsReady", "RoutesReady", "Ready"].map(|kind| condition(object, kind)).join(" / ")
}

fn is_ready(machine: &Machine, name: &str) -> bool {
    let service = serving(machine, "services", name);
    service["status"]["observedGeneration"] == service["metadata"]["generation"]
        && condition(&service, "Ready") == "True"
}

async fn ready(machine: &Machine, name: &str) {
    until(machine, "it is ready", |m| is_ready(m, name)).await;
}

async fn until(machine: &Machine, what: &str, wanted: impl Fn(&Machine) -> bool) {
    let mut changes = machine.world.server.subscribe();
    let begun = Instant::now();
    while !wanted(machine) {
        let left = PATIENCE.checked_sub(begun.elapsed()).unwrap_or_default();
        let changed = tokio::time::timeout(left, changes.next()).await;
        if changed.is_err() {
            let all = ["services", "configurations", "routes", "revisions"]
                .map(|plural| machine.world.server.objects("serving.knative.dev/v1", plural, None));
            let all: Vec<Value> = all.concat().iter().map(|one| (**one).clone()).collect();
            panic!("{what}: {:#}", Value::from(all));
        }
    }
}

/// What the address of a Service answers to one request; it may take a while.
async fn ask(machine: &Machine, name: &str, path: &str) -> String {
    let urls = machine.world.server.service_urls("default", name);
    let Some(url) = urls.first() else { return "no address".to_owned() };
    let address = url.strip_prefix("http://").unwrap().to_owned();
    let address = if address.contains(':') { address } else { format!("{address}:80") };
    let request = format!("GET {path} HTTP/1.1\r\nhost: {name}.default\r\nconnection: close\r\n\r\n");
    let asked = tokio::task::spawn_blocking(move || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    match asked.await.unwrap() {
        Ok(answer) => {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            format!("{} {body}", head.split(' ').nth(1).unwrap_or_default())
        }
        Err(error) => error.to_string(),
    }
}

/// What was said of a Service of Knative, one after the other.
fn timeline(machine: &Machine, name: &str) -> Vec<String> {
    let store = machine.world.server.store();
    let (events, _) = store.events_after(Some("services.serving.knative.dev"), 0, 10_000).unwrap();
    let of_it = events.iter().filter(|event| event.key.name() == name);
    let mut all: Vec<String> = of_it.filter_map(|event| Some(said(&event.new.as_ref()?.value()))).collect();
    all.retain(|said| said.len() > " /  / ".len());
    all.dedup();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_becomes_ready_in_the_order_of_a_real_one_and_answers() {
    let machine = machine().await;
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    ready(&machine, "hello").await;
    assert_eq!(ask(&machine, "hello", "/").await, "200 one hello-00001");
    assert_eq!(
        timeline(&machine, "hello"),
        [
            "Unknown OutOfDate / Unknown OutOfDate / Unknown OutOfDate",
            "Unknown / Unknown RevisionMissing / Unknown RevisionMissing",
            "True / Unknown IngressNotConfigured / Unknown IngressNotConfigured",
            "True / True / True",
        ]
    );
    let service = serving(&machine, "services", "hello");
    assert_eq!(service["status"]["url"], "http://hello.default.svc.cluster.local");
    assert_eq!(service["status"]["latestReadyRevisionName"], "hello-00001");
    let placeholder = object(&machine, "v1", "services", "hello");
    assert_eq!(placeholder["metadata"]["ownerReferences"][0]["kind"], "Route");
    assert_eq!((&placeholder["spec"]["selector"], &placeholder["spec"]["ports"][0]["port"]), (&Value::Null, &json!(80)));
    assert_eq!(ask(&machine, "hello-00001", "/").await, "200 one hello-00001");
}
