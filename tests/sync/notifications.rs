//! Providers and Alerts: messages reach services outside of the cluster, and no other part waits for them.

mod bitbucket_server;
mod clouds;
mod nats;
mod pull_request_comments;
mod services;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use devcluster::fault_injection::Fault;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use mainstay_testkit::{
    canary::nothing_is_shown,
    isolated_async, logs,
    webhooks::client,
    world::{NAMESPACE, World, condition_of, config_map, free_address},
};

const OURS: &str = "mainstay.dev/v1alpha1";
const PATH: &str = "canary-of-the-path";
const TOKEN: &str = "canary-of-the-token";
const VALUE: &str = "canary-of-a-value";

/// A service that records what it receives.
struct Service {
    address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Path, signature and body.
    requests: Mutex<Vec<(String, String, Value)>>,
    arrived: Notify,
    /// The status of responses; 0 means 200.
    status: AtomicU16,
}

async fn answer(State(seen): State<Arc<Seen>>, request: Request) -> StatusCode {
    let path = request.uri().path().to_owned();
    let signature = request.headers().get("x-signature").map(|value| value.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap();
    seen.requests.lock().push((path, signature.unwrap_or_default(), body));
    seen.arrived.notify_one();
    match seen.status.load(Ordering::SeqCst) {
        0 => StatusCode::OK,
        other => StatusCode::from_u16(other).unwrap(),
    }
}

impl Service {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Seen::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&seen));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, seen }
    }

    fn url(&self) -> String {
        format!("http://{}/{PATH}", self.address)
    }

    /// Waits for a message with this reason.
    async fn received(&self, reason: &str) -> Value {
        let received = async {
            loop {
                let found = self.seen.requests.lock().iter().find(|(_, _, body)| body["reason"] == reason).cloned();
                if let Some((path, _, body)) = found {
                    assert_eq!(path, format!("/{PATH}"));
                    return body;
                }
                self.seen.arrived.notified().await;
            }
        };
        tokio::time::timeout(mainstay_testkit::PATIENCE, received).await.expect("the message arrives")
    }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": OURS, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

fn create(world: &World, kind: &str, resource: &str, name: &str, spec: Value) {
    world.create(OURS, resource, NAMESPACE, object(kind, name, spec));
}

fn status(world: &World, resource: &str, name: &str) -> Value {
    world.get(OURS, resource, name).map(|object| object["status"].clone()).unwrap_or_default()
}

async fn is(world: &mut World, resource: &str, name: &str, expected: &str) {
    let what = format!("{resource} {name} is {expected}");
    world.until(&what, |w| condition_of(&status(w, resource, name), "Ready").starts_with(expected)).await;
}

fn alert(provider: &str) -> Value {
    json!({
        "providerRef": {"name": provider}, "eventSources": [{"kind": "Kustomization", "name": "*"}],
        "summary": "production",
    })
}

/// A world with a GitSync `demo` that keeps a ConfigMap and a Secret.
async fn world() -> World {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {VALUE}}}\n");
    world.remote.file("objects/a.yaml", config_map("a", "1")).file("objects/s.yaml", secret).commit("one");
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_edits_and_failures_reach_a_provider_and_no_secret_is_shown() {
    logs::keep();
    let (mut world, service) = (world().await, Service::start().await);
    world.set_secret("chat", json!({"token": TOKEN, "address": service.url()}));
    create(&world, "Provider", "providers", "chat", json!({"type": "generic-hmac", "secretRef": {"name": "chat"}}));
    create(&world, "Alert", "alerts", "all", alert("chat"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    is(&mut world, "providers", "chat", "True Sending: sends to 127.0.0.1").await;
    is(&mut world, "alerts", "all", "True Sending: sends to Provider chat").await;
    world.ready("demo").await;
    let applied = service.received("Applied").await;
    assert_eq!(applied["metadata"]["summary"], "production");
    assert_eq!(applied["metadata"]["revision"], format!("sha1:{}", world.remote.head()));
    assert_eq!(applied["involvedObject"]["kind"], "GitSync");

    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    let reverted = service.received("Reverted").await;
    assert_eq!(reverted["metadata"]["object"], format!("ConfigMap {NAMESPACE}/a"));
    assert!(reverted["message"].as_str().unwrap().contains("\"changed\" → \"1\""), "{reverted}");
    world.edit("v1", "secrets", "s", json!({"stringData": {"password": format!("{VALUE}-2")}}));
    let of_secret = |(_, _, body): &(String, String, Value)| body["message"].as_str().unwrap().contains("Secret");
    let seen = Arc::clone(&service.seen);
    world.until("the revert of the Secret arrives", |_| seen.requests.lock().iter().any(of_secret)).await;

    world.remote.file("objects/a.yaml", "kind: [").commit("broken");
    world.look();
    let failed = service.received("Failed").await;
    assert_eq!(failed["severity"], "error");
    let requests = service.seen.requests.lock().clone();
    for (_, signature, body) in &requests {
        assert!(signature.starts_with("sha256="), "{signature}");
        assert!(!body.to_string().contains("canary"), "{body}");
    }
    for resource in ["providers", "alerts"] {
        let all = world.server.objects(OURS, resource, None);
        assert!(!all.iter().any(|object| object.to_string().contains("canary")), "{all:?}");
    }
    nothing_is_shown(&mut world, &[PATH, TOKEN, VALUE]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_statuses_of_providers_and_alerts_are_written_again() {
    let (mut world, service) = (world().await, Service::start().await);
    for (resource, name) in [("providers", "chat"), ("alerts", "all")] {
        world.fail_next("patch", &format!("{resource}.mainstay.dev/status"), name, 500, 2);
    }
    world.set_secret("chat", json!({"address": service.url()}));
    create(&world, "Provider", "providers", "chat", json!({"type": "generic", "secretRef": {"name": "chat"}}));
    create(&world, "Alert", "alerts", "all", alert("chat"));
    create(&world, "Alert", "alerts", "other", alert("chat"));
    world.start();
    // A refusal delays no status of another object.
    is(&mut world, "alerts", "other", "True Sending: sends to Provider chat").await;
    is(&mut world, "providers", "chat", "True Sending: sends to 127.0.0.1").await;
    is(&mut world, "alerts", "all", "True Sending: sends to Provider chat").await;
    let count = |resource: &str| {
        let what = format!("patch {resource}.mainstay.dev/status");
        world.requests().into_iter().filter(|(request, _)| *request == what).map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!((count("providers"), count("alerts")), (3, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_fail_after_their_commit_was_applied_are_one_message_and_so_is_their_recovery() {
    let (mut world, service) = (world().await, Service::start().await);
    world.set_secret("chat", json!({"address": service.url()}));
    create(&world, "Provider", "providers", "chat", json!({"type": "generic", "secretRef": {"name": "chat"}}));
    create(&world, "Alert", "alerts", "all", alert("chat"));
    let by_key = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "current": "data.key == '1'", "inProgress": "data.key == '2'",
        "failed": "data.key == '3'",
    }]);
    world.sync("demo", json!({"baseDir": "/objects", "healthCheckExprs": by_key}));
    world.start();
    is(&mut world, "alerts", "all", "True Sending").await;
    world.ready("demo").await;
    let key = |world: &mut World, value: &str| {
        world.remote.file("objects/a.yaml", config_map("a", value)).commit(value);
        world.look();
    };
    key(&mut world, "3");
    let failed = service.received("ObjectFailed").await;
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(&format!("ConfigMap {NAMESPACE}/a failed: ")), "{failed}");
    assert_eq!(
        (&failed["severity"], &failed["metadata"]["revision"]),
        (&json!("error"), &json!(format!("sha1:{}", world.remote.head())))
    );
    // A commit whose objects wait is not healthy again.
    key(&mut world, "2");
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    key(&mut world, "1");
    let seen = Arc::clone(&service.seen);
    let recovered = format!("commit {}: all objects are healthy again", &world.remote.head()[..12]);
    let of = |text: &str| {
        seen.requests.lock().iter().filter(|(_, _, body)| body["message"].as_str().unwrap().contains(text)).count()
    };
    world.until("the recovery arrives", |_| of(&recovered) == 1).await;
    assert_eq!((of("healthy again"), of("failed: ")), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_is_away_delays_neither_reconciles_nor_other_providers_and_is_tried_again() {
    let (mut world, service, away) = (world().await, Service::start().await, Service::start().await);
    away.seen.status.store(503, Ordering::SeqCst);
    for (name, url) in [("chat", service.url()), ("away", away.url()), ("metadata", "http://169.254.169.254/x".into())]
    {
        create(&world, "Provider", "providers", name, json!({"type": "generic", "address": url}));
        create(&world, "Alert", "alerts", name, alert(name));
    }
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    service.received("Applied").await;
    away.received("Applied").await;
    is(&mut world, "providers", "away", "False NotDelivered: 127.0.0.1: the service answers with status 503").await;
    is(&mut world, "providers", "metadata", "False NotDelivered: 169.254.169.254: connections to link-local").await;
    is(&mut world, "providers", "chat", "True Sending").await;
    away.seen.requests.lock().clear();
    away.seen.status.store(0, Ordering::SeqCst);
    away.received("Applied").await;
    is(&mut world, "providers", "away", "True Sending").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_refused_for_ever_is_not_written_for_each_message() {
    let (mut world, service) = (world().await, Service::start().await);
    for resource in ["providers/status", "alerts/status"] {
        let fault =
            Fault { verb: "patch".into(), resource: resource.into(), code: 403, times: 10_000, ..Fault::default() };
        world.levers().fail_next(Fault { message: "denied, request {nth}".into(), ..fault });
    }
    create(&world, "Provider", "providers", "chat", json!({"type": "generic", "address": service.url()}));
    create(&world, "Alert", "alerts", "all", alert("chat"));
    let start = Instant::now();
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    service.received("Applied").await;
    for round in 0..8 {
        world.edit("v1", "configmaps", "a", json!({"data": {"key": format!("changed {round}")}}));
        world.edit(OURS, "alerts", "all", json!({"spec": {"summary": format!("round {round}")}}));
        let text = format!("changed {round}");
        let seen = Arc::clone(&service.seen);
        let arrived = |_: &World| seen.requests.lock().iter().any(|(_, _, body)| body.to_string().contains(&text));
        world.until("the revert arrives", arrived).await;
    }
    // One write at first, and one every 15 s.
    let allowed = 2 + start.elapsed().as_secs() / 15;
    for resource in ["providers", "alerts"] {
        let name = format!("patch {resource}.mainstay.dev/status");
        let written = world.requests().iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count);
        assert!((1..=allowed).contains(&written), "{resource}: {written} writes of {allowed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn providers_and_alerts_that_cannot_work_say_why_and_follow_a_correction() {
    let (mut world, service) = (world().await, Service::start().await);
    let address = json!({"type": "zoom", "address": service.url()});
    create(&world, "Provider", "providers", "chat", address);
    create(&world, "Alert", "alerts", "all", alert("other"));
    let mut across = alert("chat");
    across["eventSources"][0]["kind"] = json!("Bucket");
    create(&world, "Alert", "alerts", "useless", across);
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    is(&mut world, "providers", "chat", "False TypeNotSupported: spec.type: \"zoom\" is not supported; use one of")
        .await;
    assert!(condition_of(&status(&world, "providers", "chat"), "Stalled").starts_with("True TypeNotSupported"));
    is(&mut world, "alerts", "all", "False ProviderNotFound: Provider other does not exist").await;
    is(&mut world, "alerts", "useless", "False SpecInvalid: spec.eventSources: no source sends messages").await;
    world.edit(OURS, "providers", "chat", json!({"spec": {"type": "generic", "secretRef": {"name": "late"}}}));
    is(&mut world, "providers", "chat", "False SecretNotFound: spec.secretRef: the Secret late does not exist").await;
    world.edit(OURS, "alerts", "all", json!({"spec": {"providerRef": {"name": "chat"}}}));
    is(&mut world, "alerts", "all", "True Sending").await;
    world.ready("demo").await;
    world.set_secret("late", json!({"headers": "X-A: b"}));
    is(&mut world, "providers", "chat", "True Sending").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    service.received("Reverted").await;
    world.edit(OURS, "providers", "chat", json!({"spec": {"suspend": true}}));
    is(&mut world, "providers", "chat", "False Suspended").await;
    world.delete(OURS, "providers", "chat");
    is(&mut world, "alerts", "all", "False ProviderNotFound").await;
}

/// The namespace of a tenant.
const SHOP: &str = "mainstay-tests-shop";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_sends_no_secret_of_another_purpose_and_reaches_no_internal_address() {
    logs::keep();
    let (mut world, service) = (World::new().await, Service::start().await);
    world.allow_networks.clear();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}});
    world.create("v1", "namespaces", "", namespace);
    let create = |api: &str, kind: &str, resource: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": SHOP});
        world.create(api, resource, SHOP, json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}));
    };
    let metadata = json!({"name": "key", "namespace": SHOP, "labels": {"mainstay.dev/generate": "ssh-key"}});
    let key = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"token": TOKEN}});
    world.create("v1", "secrets", SHOP, key);
    let port = service.address.port();
    let proxy = format!("http://{}", service.address);
    let proxied = json!({"type": "generic", "address": "http://hooks.example.com/x", "proxy": proxy});
    let bus = |host: &str| json!({"type": "nats", "address": format!("nats://{host}:{port}"), "channel": "a"});
    for (name, spec) in [
        ("key", json!({"type": "generic", "address": service.url(), "secretRef": {"name": "key"}})),
        ("inside", json!({"type": "generic", "address": service.url()})),
        ("proxied", proxied),
        ("bus", bus("127.0.0.1")),
        ("bus-by-name", bus("localhost")),
        ("bus-by-number", bus("2130706433")),
        ("bus-of-metadata", bus("169.254.169.254")),
    ] {
        create(OURS, "Provider", "providers", name, spec);
        create(OURS, "Alert", "alerts", name, alert(name));
    }
    // The GitSync fails, and its message goes to the Providers.
    let version = "serverless.kyma-project.io/v1alpha1";
    create(version, "GitRepository", "gitrepositories", "inside", json!({"url": service.url()}));
    create(OURS, "GitSync", "gitsyncs", "inside", json!({"gitRepository": "inside"}));
    world.start();
    for (name, expected) in [
        ("key", "False SpecInvalid: spec.secretRef: the Secret key"),
        ("inside", "False NotDelivered: 127.0.0.1: the host is not found, or has an address of the cluster"),
        ("proxied", "False SpecInvalid: the connection through the proxy failed: "),
        ("bus", "False NotDelivered: 127.0.0.1: the host is not found, or has an address of the cluster"),
        ("bus-by-name", "False NotDelivered: localhost: the host is not found, or has an address of the cluster"),
        ("bus-by-number", "False NotDelivered: 2130706433: the host is not found, or has an address of the cluster"),
        ("bus-of-metadata", "False NotDelivered: 169.254.169.254: connections to link-local"),
    ] {
        let said = |w: &World| {
            let provider = w.server.object(OURS, "providers", SHOP, name);
            provider.map(|provider| condition_of(&provider["status"], "Ready")).unwrap_or_default()
        };
        world.until_or(name, |w| said(w).starts_with(expected), || said(&world)).await;
    }
    assert!(service.seen.requests.lock().is_empty());
    nothing_is_shown(&mut world, &[TOKEN]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alert_is_about_artifacts_and_charts() {
    let (mut world, service) = (World::new().await, Service::start().await);
    create(&world, "Provider", "providers", "chat", json!({"type": "generic", "address": service.url()}));
    let sources = json!([
        {"kind": "OCIRepository", "name": "*", "matchLabels": {"team": "shop"}}, {"kind": "HelmChart", "name": "*"},
    ]);
    create(&world, "Alert", "alerts", "all", json!({"providerRef": {"name": "chat"}, "eventSources": sources}));
    let away = json!({"url": "oci://127.0.0.1:1/shop", "insecure": true});
    create(&world, "OCIRepository", "ocirepositories", "other", away.clone());
    let mut labelled = object("OCIRepository", "web", away);
    labelled["metadata"]["labels"] = json!({"team": "shop"});
    world.create(OURS, "ocirepositories", NAMESPACE, labelled);
    world.start();
    let failed = service.received("ArtifactFailed").await;
    let about = &failed["involvedObject"];
    assert_eq!((&about["kind"], &about["name"]), (&json!("OCIRepository"), &json!("web")), "{failed}");
    assert_eq!(failed["severity"], "error");
    let invalid = json!({"repository": "file:///etc", "name": "web"});
    create(&world, "HelmChart", "helmcharts", "web", invalid);
    let refused = service.received("SpecInvalid").await;
    assert_eq!(refused["involvedObject"]["kind"], "HelmChart", "{refused}");
    is(&mut world, "ocirepositories", "other", "False ArtifactFailed").await;
    let names: Vec<_> =
        service.seen.requests.lock().iter().map(|(_, _, body)| body["involvedObject"]["name"].clone()).collect();
    assert!(!names.contains(&json!("other")), "{names:?}");
}

/// Starts a real Alertmanager. Returns it with its address.
async fn alertmanager(directory: &std::path::Path) -> (tokio::process::Child, String) {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let config = directory.join("config.yml");
    std::fs::write(&config, "route: {receiver: none}\nreceivers: [{name: none}]\n").unwrap();
    let mut process = isolated_async("prometheus-alertmanager")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.path={}", directory.join("data").display()))
        .args(["--web.listen-address=127.0.0.1:0", "--cluster.listen-address="])
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("Alertmanager is missing: apt-get install prometheus-alertmanager");
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    loop {
        let line = lines.next_line().await.unwrap().expect("it serves");
        if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
            let address = address.to_owned();
            // A full pipe would stop Alertmanager.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return (process, address);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alertmanager_fires_an_alert_for_a_commit_that_fails() {
    let mut world = world().await;
    let directory = tempfile::tempdir().unwrap();
    let (_process, address) = alertmanager(directory.path()).await;
    let url = format!("http://{address}/api/v2/alerts");
    create(&world, "Provider", "providers", "am", json!({"type": "alertmanager", "address": url}));
    let mut failures = alert("am");
    failures["eventSeverity"] = json!("error");
    failures["eventMetadata"] = json!({"team.name": "a"});
    create(&world, "Alert", "alerts", "am", failures);
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    world.remote.file("objects/a.yaml", "kind: [").commit("broken");
    world.look();
    let fired = async {
        loop {
            let all: Value =
                serde_json::from_str(&client().get(&url).send().await.unwrap().text().await.unwrap()).unwrap();
            if let Some(alert) = all.as_array().and_then(|all| all.first()).cloned() {
                return alert;
            }
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
    };
    let fired = tokio::time::timeout(mainstay_testkit::PATIENCE, fired).await.expect("an alert fires");
    assert_eq!(fired["labels"]["alertname"], "MainstayGitSyncFailed");
    assert_eq!((&fired["labels"]["severity"], &fired["labels"]["team_name"]), (&json!("error"), &json!("a")));
    assert_eq!((&fired["annotations"]["summary"], &fired["status"]["state"]), (&json!("production"), &json!("active")));
    is(&mut world, "providers", "am", "True Sending").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_without_room_is_used_once_another_is_deleted() {
    let mut world = world().await;
    let kinds = [
        ("Provider", "providers", json!({"type": "generic", "address": "http://127.0.0.1:1/x"})),
        ("Alert", "alerts", alert("of-another-name")),
        ("OCIRepository", "ocirepositories", json!({"url": "oci://127.0.0.1:1/shop", "insecure": true})),
        ("HelmChart", "helmcharts", json!({"repository": "oci://127.0.0.1:1/shop", "name": "a", "insecure": true})),
    ];
    for (kind, plural, spec) in &kinds {
        let mut suspended = spec.clone();
        suspended["suspend"] = json!(true);
        for number in 0..50 {
            create(&world, kind, plural, &format!("a{number}"), suspended.clone());
        }
    }
    world.start();
    for (kind, plural, spec) in kinds {
        for number in 0..50 {
            is(&mut world, plural, &format!("a{number}"), "False Suspended").await;
        }
        create(&world, kind, plural, "last", spec);
        is(&mut world, plural, "last", "False MemoryExhausted: this namespace has 50").await;
        world.delete("mainstay.dev/v1alpha1", plural, "a7");
        let has_room = |w: &World| !condition_of(&status(w, plural, "last"), "Ready").contains("MemoryExhausted");
        world.until_or(kind, has_room, || status(&world, plural, "last").to_string()).await;
    }
}
