//! Knative Services on a node, from creation to responses and scaling.

use crate::machine::{HOST, Machine, PODS, eventually};
use devcluster_apiserver::store::Key;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};

const SERVICES: &str = "/apis/serving.knative.dev/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that returns the variable `TEXT`. A request for `/slow` is delayed.
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

/// A machine with Knative and short autoscaling windows.
async fn machine() -> Machine {
    let machine = Machine::with_options(|_| {}, |options| options.knative = true);
    machine.world.server.install_knative().unwrap();
    configure(&machine, "config-autoscaler", json!({"stable-window": "6s", "tick-interval": "200ms"})).await;
    machine
}

async fn configure(machine: &Machine, name: &str, data: Value) {
    let path = format!("/api/v1/namespaces/knative-serving/configmaps/{name}");
    machine.world.merge(&path, json!({"data": data})).await.expect(200);
}

/// A Service that answers with `text`. `annotations` are the annotations of its template.
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

/// Formats a condition as `status reason`.
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
            let told: Vec<String> =
                all.iter().map(|one| format!("{} {}: {}", one["kind"], one["metadata"], one["status"])).collect();
            panic!("{what}: {}", told.join("\n"));
        }
    }
}

/// Returns the response to one request, which may be delayed.
async fn ask(machine: &Machine, name: &str, path: &str) -> String {
    let urls = || machine.world.server.service_urls("default", name);
    eventually("it has an address", || !urls().is_empty()).await;
    let url = urls().remove(0);
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

/// Waits until a Knative Service whose children were deleted answers as before. The conditions of the Service may still
/// describe deleted children for a moment, and the node opens its listeners after the objects exist.
async fn answers(machine: &Machine, name: &str, wanted: &str) {
    let begun = Instant::now();
    loop {
        let answer = ask(machine, name, "/").await;
        if answer == wanted {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{name} answers {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the successive states of a Knative Service.
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
            "True / Unknown RevisionMissing / Unknown RevisionMissing",
            "True / Unknown IngressNotConfigured / Unknown IngressNotConfigured",
            "True / True / True",
        ]
    );
    let service = serving(&machine, "services", "hello");
    assert_eq!(service["status"]["url"], "http://hello.default.svc.cluster.local");
    assert_eq!(service["status"]["latestReadyRevisionName"], "hello-00001");
    let placeholder = object(&machine, "v1", "services", "hello");
    assert_eq!(placeholder["metadata"]["ownerReferences"][0]["kind"], "Route");
    assert_eq!(
        (&placeholder["spec"]["selector"], &placeholder["spec"]["ports"][0]["port"]),
        (&Value::Null, &json!(80))
    );
    assert_eq!(ask(&machine, "hello-00001", "/").await, "200 one hello-00001");
}

fn patch(machine: &Machine, version: &str, plural: &str, name: &str, patch: Value) -> impl Future<Output = ()> {
    let group = if version.contains('/') { "apis" } else { "api" };
    let path = format!("/{group}/{version}/namespaces/default/{plural}/{name}");
    async move {
        machine.world.merge(&path, patch).await.expect(200);
    }
}

fn revisions(machine: &Machine) -> Vec<String> {
    let all = machine.world.server.objects("serving.knative.dev/v1", "revisions", Some("default"));
    all.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn replicas(machine: &Machine, revision: &str) -> Value {
    object(machine, "apps/v1", "deployments", &format!("{revision}-deployment"))["spec"]["replicas"].clone()
}

const KNATIVE: &str = "serving.knative.dev/v1";

#[tokio::test(flavor = "multi_thread")]
async fn another_template_is_another_revision_and_the_old_one_has_no_pods() {
    let machine = machine().await;
    machine
        .world
        .post(SERVICES, service("hello", "one", &json!({"autoscaling.knative.dev/minScale": "1"})))
        .await
        .expect(201);
    ready(&machine, "hello").await;
    let next = service("hello", "two", &json!({"autoscaling.knative.dev/minScale": "1"}));
    patch(&machine, KNATIVE, "services", "hello", json!({"spec": next["spec"]})).await;
    ready(&machine, "hello").await;
    assert_eq!(ask(&machine, "hello", "/").await, "200 two hello-00002");
    let order = timeline(&machine, "hello");
    let second = order.iter().rposition(|said| said.contains("OutOfDate")).unwrap();
    assert_eq!(
        order[second..],
        [
            "Unknown OutOfDate / True / Unknown OutOfDate",
            "Unknown / True / Unknown",
            "True / Unknown TrafficNotMigrated / Unknown TrafficNotMigrated",
            "True / Unknown IngressNotConfigured / Unknown IngressNotConfigured",
            "True / True / True",
        ]
    );
    let state = |m: &Machine, name: &str| {
        serving(m, "revisions", name)["metadata"]["labels"]["serving.knative.dev/routingState"].clone()
    };
    until(&machine, "the old one is in reserve", |m| state(m, "hello-00001") == "reserve").await;
    until(&machine, "the old one has no pods", |m| replicas(m, "hello-00001") == 0).await;
    assert_eq!((state(&machine, "hello-00002"), replicas(&machine, "hello-00002")), (json!("active"), json!(1)));
    // A change outside of the template creates no Revision.
    patch(&machine, KNATIVE, "services", "hello", json!({"metadata": {"labels": {"team": "b"}}})).await;
    let team = |m: &Machine, plural: &str| serving(m, plural, "hello")["metadata"]["labels"]["team"].clone();
    until(&machine, "its label is on", |m| team(m, "configurations") == "b" && team(m, "routes") == "b").await;
    assert_eq!(revisions(&machine), ["hello-00001", "hello-00002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_children_are_created_again_and_changes_below_a_revision_stay() {
    let machine = machine().await;
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    ready(&machine, "hello").await;
    let traffic = json!([{"revisionName": "hello-00001", "percent": 100}]);
    patch(&machine, KNATIVE, "routes", "hello", json!({"spec": {"traffic": traffic}})).await;
    let is_latest = |m: &Machine| serving(m, "routes", "hello")["spec"]["traffic"][0]["latestRevision"] == true;
    until(&machine, "the Route is as it was", is_latest).await;
    let deployment = "hello-00001-deployment";
    let containers = |image: &str| {
        let mut spec = object(&machine, "apps/v1", "deployments", deployment)["spec"]["template"]["spec"].clone();
        spec["containers"][0]["imagePullPolicy"] = image.into();
        json!({"spec": {"template": {"spec": spec}}})
    };
    patch(&machine, "apps/v1", "deployments", deployment, containers("Never")).await;
    patch(&machine, "apps/v1", "deployments", deployment, json!({"spec": {"replicas": 5}})).await;
    until(&machine, "its size is as it was", |m| replicas(m, "hello-00001") == 1).await;
    let policy = |m: &Machine| {
        let found = object(m, "apps/v1", "deployments", deployment);
        found["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"].clone()
    };
    assert_eq!(policy(&machine), "Never");
    for (version, plural, name) in
        [("apps/v1", "deployments", deployment), ("v1", "services", "hello"), (KNATIVE, "routes", "hello")]
    {
        let uid = object(&machine, version, plural, name)["metadata"]["uid"].clone();
        let group = if version.contains('/') { "apis" } else { "api" };
        machine.world.delete(&format!("/{group}/{version}/namespaces/default/{plural}/{name}"), json!({})).await;
        let is_back = |m: &Machine| {
            let found = object(m, version, plural, name);
            found["metadata"]["uid"].is_string() && found["metadata"]["uid"] != uid
        };
        until(&machine, &format!("{plural} {name} is back"), is_back).await;
        ready(&machine, "hello").await;
    }
    answers(&machine, "hello", "200 one hello-00001").await;
    assert_eq!(revisions(&machine), ["hello-00001"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_in_the_way_is_said_and_taken_over_when_it_is_given() {
    let machine = machine().await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let theirs = json!({"metadata": {"name": "hello"}, "spec": {"selector": {"app": "other"}, "ports": ports}});
    machine.world.post("/api/v1/namespaces/default/services", theirs).await.expect(201);
    machine.pod("other", "sleep 600", json!({})).await;
    until(&machine, "it has Endpoints", |m| object(m, "v1", "endpoints", "hello")["subsets"].is_array()).await;
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    until(&machine, "it is said", |m| {
        said(&serving(m, "services", "hello")) == "True / False NotOwned / False NotOwned"
    })
    .await;
    let message = |m: &Machine, what: &str| {
        serving(m, "services", "hello")["status"]["conditions"]
            .to_string()
            .contains(&format!("placeholder {what} \\\"hello\\\" that we do not own."))
    };
    assert!(message(&machine, "Service"));
    let address = object(&machine, "v1", "services", "hello")["spec"]["clusterIP"].clone();
    let route = serving(&machine, "routes", "hello")["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": KNATIVE, "kind": "Route", "name": "hello", "uid": route, "controller": true}]);
    let given = json!({"metadata": {"ownerReferences": owner}});
    patch(&machine, "v1", "services", "hello", given.clone()).await;
    until(&machine, "the Endpoints are in the way", |m| message(m, "Endpoint")).await;
    patch(&machine, "v1", "endpoints", "hello", given).await;
    patch(&machine, "v1", "services", "hello", json!({"spec": {"selector": null}})).await;
    ready(&machine, "hello").await;
    assert_eq!(object(&machine, "v1", "services", "hello")["spec"]["clusterIP"], address);
    assert_eq!(ask(&machine, "hello", "/").await, "200 one hello-00001");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_was_in_the_way_and_is_deleted_is_made_by_the_route() {
    let machine = machine().await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let theirs = json!({"metadata": {"name": "hello"}, "spec": {"selector": {"app": "other"}, "ports": ports}});
    machine.world.post("/api/v1/namespaces/default/services", theirs).await.expect(201);
    machine.pod("other", "sleep 600", json!({})).await;
    until(&machine, "it has Endpoints", |m| object(m, "v1", "endpoints", "hello")["subsets"].is_array()).await;
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    let is_said = |m: &Machine| said(&serving(m, "services", "hello")) == "True / False NotOwned / False NotOwned";
    until(&machine, "it is said", is_said).await;
    machine.world.delete("/api/v1/namespaces/default/services/hello", json!({})).await.expect(200);
    let woken = json!({"metadata": {"annotations": {"example.org/woken": "now"}}});
    patch(&machine, KNATIVE, "services", "hello", woken).await;
    ready(&machine, "hello").await;
    answers(&machine, "hello", "200 one hello-00001").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_of_a_service_that_is_gone_go_before_the_route_makes_its_own() {
    let machine = machine().await;
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    for (name, labels) in [("late", labels), ("hand", json!({}))] {
        let left = json!({"metadata": {"name": name, "labels": labels}});
        machine.world.post(ENDPOINTS, left).await.expect(201);
        machine.world.post(SERVICES, service(name, "one", &json!({}))).await.expect(201);
    }
    until(&machine, "it is said", |m| condition(&serving(m, "routes", "hand"), "Ready") == "False NotOwned").await;
    until(&machine, "it waits", |m| {
        condition(&serving(m, "routes", "late"), "Ready") == "Unknown IngressNotConfigured"
    })
    .await;
    assert_eq!(object(&machine, "v1", "services", "late"), Value::Null);
    machine.world.delete(&format!("{ENDPOINTS}/late"), json!({})).await.expect(200);
    ready(&machine, "late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_requests_there_are_no_pods_and_the_next_one_is_held_until_there_are() {
    let machine = machine().await;
    let scale = json!({"autoscaling.knative.dev/minScale": "0", "autoscaling.knative.dev/maxScale": "2"});
    machine.world.post(SERVICES, service("hello", "one", &scale)).await.expect(201);
    ready(&machine, "hello").await;
    until(&machine, "there are no pods", |m| replicas(m, "hello-00001") == 0).await;
    let active = |m: &Machine| condition(&serving(m, "revisions", "hello-00001"), "Active");
    until(&machine, "it is said", |m| active(m) == "False NoTraffic").await;
    assert!(is_ready(&machine, "hello"));
    assert_eq!(condition(&serving(&machine, "revisions", "hello-00001"), "Ready"), "True");
    let pods = |m: &Machine| m.world.server.objects("v1", "pods", Some("default")).len();
    until(&machine, "the pods are gone", |m| pods(m) == 0).await;
    let (a, b, c) =
        tokio::join!(ask(&machine, "hello", "/"), ask(&machine, "hello", "/slow"), ask(&machine, "hello", "/"));
    assert_eq!([a, b, c], ["200 one hello-00001"; 3]);
    assert!([json!(1), json!(2)].contains(&replicas(&machine, "hello-00001")));
    until(&machine, "it is active", |m| active(m) == "True").await;
    assert!(is_ready(&machine, "hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_split_between_revisions_and_a_tag_has_an_address() {
    let machine = machine().await;
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    ready(&machine, "hello").await;
    let spec = service("hello", "two", &json!({}))["spec"].clone();
    patch(&machine, KNATIVE, "services", "hello", json!({"spec": spec})).await;
    ready(&machine, "hello").await;
    let traffic =
        json!([{"revisionName": "hello-00001", "percent": 50, "tag": "old"}, {"latestRevision": true, "percent": 50}]);
    patch(&machine, KNATIVE, "services", "hello", json!({"spec": {"traffic": traffic}})).await;
    ready(&machine, "hello").await;
    let mut answers = std::collections::BTreeSet::new();
    for _ in 0..64 {
        answers.insert(ask(&machine, "hello", "/").await);
    }
    assert_eq!(Vec::from_iter(answers), ["200 one hello-00001", "200 two hello-00002"]);
    until(&machine, "the tag has an address", |m| !m.world.server.service_urls("default", "old-hello").is_empty())
        .await;
    assert_eq!(ask(&machine, "old-hello", "/").await, "200 one hello-00001");
    // A missing Revision blocks the split; the present routing is kept.
    let missing = json!([{"revisionName": "hello-00009", "percent": 100}]);
    patch(&machine, KNATIVE, "services", "hello", json!({"spec": {"traffic": missing}})).await;
    until(&machine, "it is said", |m| {
        said(&serving(m, "services", "hello")) == "True / False RevisionMissing / False RevisionMissing"
    })
    .await;
    assert!(ask(&machine, "hello", "/").await.starts_with("200 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_whose_code_ends_fails_and_the_one_before_serves() {
    let machine = machine().await;
    configure(&machine, "config-deployment", json!({"progress-deadline": "2s"})).await;
    let broken = |name: &str| {
        let mut broken = service(name, "", &json!({}));
        broken["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["sh", "-c", "echo last words; exit 3"]);
        broken
    };
    machine.world.post(SERVICES, broken("bad")).await.expect(201);
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    let is = |m: &Machine, name: &str, wanted: &str| said(&serving(m, "services", name)) == wanted;
    until(&machine, "it has failed", |m| {
        is(m, "bad", "False RevisionFailed / False RevisionMissing / False RevisionMissing")
    })
    .await;
    assert_eq!(condition(&serving(&machine, "revisions", "bad-00001"), "ContainerHealthy"), "False ExitCode3");
    let status = serving(&machine, "services", "bad")["status"].to_string();
    assert!(
        status.contains(r#"Revision \"bad-00001\" failed with message: Container failed with: last words"#),
        "{status}"
    );
    assert!(status.contains(r#"Configuration \"bad\" does not have any ready Revision."#), "{status}");
    ready(&machine, "hello").await;
    patch(&machine, KNATIVE, "services", "hello", json!({"spec": broken("hello")["spec"]})).await;
    until(&machine, "the next one has failed", |m| {
        is(m, "hello", "False RevisionFailed / True / False RevisionFailed")
    })
    .await;
    let status = serving(&machine, "services", "hello")["status"].clone();
    assert_eq!(
        (&status["latestCreatedRevisionName"], &status["latestReadyRevisionName"]),
        (&json!("hello-00002"), &json!("hello-00001"))
    );
    assert_eq!(ask(&machine, "hello", "/").await, "200 one hello-00001");
    // A valid template repairs the Service.
    patch(&machine, KNATIVE, "services", "bad", json!({"spec": service("bad", "good", &json!({}))["spec"]})).await;
    ready(&machine, "bad").await;
    assert_eq!(ask(&machine, "bad", "/").await, "200 good bad-00002");
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_revisions_go_and_all_go_with_the_service() {
    let machine = machine().await;
    let gc = json!({"retain-since-create-time": "0s", "retain-since-last-active-time": "0s", "min-non-active-revisions": "1"});
    configure(&machine, "config-gc", gc).await;
    for (number, text) in ["one", "two", "three", "four"].into_iter().enumerate() {
        if number == 0 {
            machine.world.post(SERVICES, service("hello", text, &json!({}))).await.expect(201);
        } else {
            patch(&machine, KNATIVE, "services", "hello", json!({"spec": service("hello", text, &json!({}))["spec"]}))
                .await;
        }
        ready(&machine, "hello").await;
    }
    patch(&machine, KNATIVE, "services", "hello", json!({"metadata": {"labels": {"team": "b"}}})).await;
    until(&machine, "only one is in reserve", |m| revisions(m) == ["hello-00003", "hello-00004"]).await;
    assert_eq!(ask(&machine, "hello", "/").await, "200 four hello-00004");
    machine.world.delete(&format!("{SERVICES}/hello"), json!({})).await.expect(200);
    let left = |m: &Machine| {
        let kinds = [
            (KNATIVE, "configurations"),
            (KNATIVE, "routes"),
            (KNATIVE, "revisions"),
            ("apps/v1", "deployments"),
            ("autoscaling.internal.knative.dev/v1alpha1", "podautoscalers"),
            ("v1", "pods"),
            ("networking.internal.knative.dev/v1alpha1", "ingresses"),
            ("networking.internal.knative.dev/v1alpha1", "serverlessservices"),
        ];
        let all = kinds.iter().map(|(version, plural)| m.world.server.objects(version, plural, Some("default")).len());
        let services = m.world.server.objects("v1", "services", Some("default"));
        all.sum::<usize>() + services.iter().filter(|one| one["metadata"]["name"] != "kubernetes").count()
    };
    until(&machine, "nothing is left", |m| left(m) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admission_refuses_in_the_words_of_knative_and_fills_in_defaults() {
    let machine = machine().await;
    let mut reserved = service("hello", "one", &json!({}));
    reserved["spec"]["template"]["spec"]["containers"][0]["env"] = json!([{"name": "PORT", "value": "1"}]);
    let text = "admission webhook \"validation.webhook.serving.knative.dev\" denied the request: validation failed: \"PORT\" is a \
                reserved environment variable: spec.template.spec.containers[0].env[0].name";
    machine.world.post(SERVICES, reserved).await.refused(400, "BadRequest", text);
    let mut bare = service("hello", "one", &json!({}));
    bare["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("readinessProbe");
    let path = format!("{SERVICES}?dryRun=All");
    let whole = machine.world.post(&path, bare).await.expect(201);
    assert_eq!(whole["spec"]["traffic"], json!([{"latestRevision": true, "percent": 100}]));
    assert_eq!(whole["spec"]["template"]["spec"]["containers"][0]["name"], "user-container");
    machine.world.post(SERVICES, service("hello", "one", &json!({}))).await.expect(201);
    ready(&machine, "hello").await;
    let path = "/apis/serving.knative.dev/v1/namespaces/default/revisions/hello-00001";
    let refused = machine.world.merge(path, json!({"spec": {"timeoutSeconds": 5}})).await;
    refused.refused(400, "BadRequest", "Immutable fields changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_to_end_answers_what_it_was_asked_before() {
    let machine = machine().await;
    let scale = json!({"autoscaling.knative.dev/minScale": "1", "autoscaling.knative.dev/maxScale": "1"});
    let mut hasty = service("hello", "one", &scale);
    // Without a signal handler, the server ends immediately on SIGTERM.
    let code = WEB.lines().filter(|line| !line.starts_with("signal.")).collect::<Vec<_>>().join("\n");
    hasty["spec"]["template"]["spec"]["containers"][0]["command"] = json!(["python3", "-c", code]);
    machine.world.post(SERVICES, hasty).await.expect(201);
    ready(&machine, "hello").await;
    let pod = machine.world.server.objects("v1", "pods", Some("default")).remove(0);
    let containers = pod["status"]["containerStatuses"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|one| (one["name"].as_str().unwrap(), one["ready"] == true)).collect();
    assert_eq!(names, [("user-container", true), ("queue-proxy", true)]);
    let asked = ask(&machine, "hello", "/slow");
    let deleted = async {
        let key = Key::new("default", "hello-00001");
        let is_asked = || machine.world.server.requests().load(&key, Instant::now()).under_way == 1;
        eventually("it is asked", is_asked).await;
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        machine.world.delete(&path, json!({})).await.expect(200);
    };
    let (answer, ()) = tokio::join!(asked, deleted);
    assert_eq!(answer, "200 one hello-00001");
}
