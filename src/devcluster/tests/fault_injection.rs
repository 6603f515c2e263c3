//! Fault injection of the embedded server: expired history, dropped watches, failures, counters, and outcomes of pods.
#![expect(clippy::unwrap_used, reason = "a test that cannot reach its server has failed")]
#![expect(clippy::disallowed_methods, reason = "a test acts")]

use std::time::Duration;

use devcluster::{Action, Call, Caller, Cluster, Options, fault_injection::Fault};
use reqwest::Method;
use serde_json::{Value, json};

/// A server for each test, with its address.
struct Embedded {
    url: String,
    client: reqwest::Client,
    _serving: devcluster::Serving,
}

impl Embedded {
    async fn start() -> Self {
        Self::serving(Cluster::new(Options::default())).await
    }

    async fn with_controllers() -> Self {
        let server = Cluster::new(Options::default());
        server.start_controllers();
        Self::serving(server).await
    }

    async fn serving(server: Cluster) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let serving = server.serve(([127, 0, 0, 1], 0).into(), None).await.unwrap();
        let client = reqwest::Client::builder().user_agent("tests/1").no_proxy().build().unwrap();
        Self { url: serving.url(), client, _serving: serving }
    }

    async fn open(&self, method: Method, path: &str, body: Value) -> reqwest::Response {
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if !body.is_null() {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        tokio::time::timeout(Duration::from_secs(10), request.send()).await.unwrap().unwrap()
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let answer = self.open(method, path, body).await;
        let code = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn map(&self, name: &str) -> Value {
        self.send(Method::POST, MAPS, json!({"metadata": {"name": name}})).await.1
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn forgotten_history_is_an_error_event_in_a_good_answer() {
    let cluster = Embedded::start().await;
    let made = cluster.map("a").await;
    let old = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.map("b").await;
    assert_eq!(cluster.send(Method::POST, "/devcluster/compact", Value::Null).await.0, 200);
    let path = format!("{MAPS}?watch=1&resourceVersion={old}");
    let (code, event) = cluster.send(Method::GET, &path, Value::Null).await;
    assert_eq!((code, &event["type"]), (200, &json!("ERROR")), "{event}");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {old} (")), "{message}");
}

#[tokio::test]
async fn an_expired_page_is_a_410_that_says_how_to_go_on() {
    let cluster = Embedded::start().await;
    for name in ["a", "b", "c"] {
        cluster.map(name).await;
    }
    let (_, page) = cluster.send(Method::GET, &format!("{MAPS}?limit=1"), Value::Null).await;
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    cluster.map("d").await;
    cluster.send(Method::POST, "/devcluster/compact", Value::Null).await;
    let (code, status) = cluster.send(Method::GET, &format!("{MAPS}?limit=1&continue={token}"), Value::Null).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")), "{status}");
    let token = status["metadata"]["continue"].as_str().unwrap().to_owned();
    let (code, rest) = cluster.send(Method::GET, &format!("{MAPS}?limit=9&continue={token}"), Value::Null).await;
    let names: Vec<&Value> = rest["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!((code, names), (200, vec![&json!("b"), &json!("c"), &json!("d")]));
}

#[tokio::test]
async fn open_watches_end_on_demand() {
    let cluster = Embedded::start().await;
    let mut watch = cluster.open(Method::GET, &format!("{MAPS}?watch=1"), Value::Null).await;
    cluster.map("a").await;
    assert!(watch.chunk().await.unwrap().is_some());
    cluster.send(Method::POST, "/devcluster/drop-watches", Value::Null).await;
    let end = tokio::time::timeout(Duration::from_secs(10), watch.chunk()).await.unwrap();
    assert!(matches!(end, Ok(None) | Err(_)), "the stream has ended");
}

#[tokio::test]
async fn the_next_requests_fail_as_injected() {
    let cluster = Embedded::start().await;
    let fault = json!({"verb": "create", "resource": "configmaps", "code": 429, "retryAfter": 1, "times": 2});
    cluster.send(Method::POST, "/devcluster/fail-next", fault).await;
    for _ in 0..2 {
        let answer = cluster.open(Method::POST, MAPS, json!({"metadata": {"name": "a"}})).await;
        assert_eq!(answer.status().as_u16(), 429);
        assert_eq!(answer.headers()["retry-after"], "1");
    }
    assert_eq!(cluster.map("a").await["kind"], "ConfigMap");
    let fault = json!({"verb": "get", "resource": "configmaps", "name": "a", "code": 403, "message": "no"});
    cluster.send(Method::POST, "/devcluster/fail-next", fault).await;
    let (code, status) = cluster.send(Method::GET, &format!("{MAPS}/a"), Value::Null).await;
    assert_eq!((code, &status["reason"], &status["message"]), (403, &json!("Forbidden"), &json!("no")));
}

#[tokio::test]
async fn an_overloaded_server_answers_in_plain_text_and_says_when_to_come_again() {
    let cluster = Embedded::start().await;
    cluster.send(Method::POST, "/devcluster/fail-next", json!({"verb": "list", "code": 429})).await;
    let answer = cluster.open(Method::GET, MAPS, Value::Null).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(answer.text().await.unwrap().trim_end(), "Too many requests, please try again later.");

    let blocked = json!({"verb": "list", "code": 429, "reason": "TooManyRequests", "message": "no", "retryAfter": 3});
    cluster.send(Method::POST, "/devcluster/fail-next", blocked).await;
    let answer = cluster.open(Method::GET, MAPS, Value::Null).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"3".parse().unwrap()));
    let status: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&status["reason"], &status["details"]["retryAfterSeconds"]), (&json!("TooManyRequests"), &json!(3)));

    let misspelt = json!({"verb": "list", "code": 429, "retry_after": 3});
    assert_eq!(cluster.send(Method::POST, "/devcluster/fail-next", misspelt).await.0, 400);
    assert_eq!(cluster.send(Method::GET, MAPS, Value::Null).await.0, 200, "a fault that was refused does not happen");
}

#[tokio::test]
async fn a_version_of_the_future_is_a_504_that_says_when_to_come_again() {
    let cluster = Embedded::start().await;
    let answer = cluster.open(Method::GET, &format!("{MAPS}?resourceVersion=900000000000"), Value::Null).await;
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (504, &"1".parse().unwrap()));
    let status: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&status["reason"], &status["details"]["retryAfterSeconds"]), (&json!("Timeout"), &json!(1)));
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test]
async fn requests_are_counted_by_verb_resource_and_user_agent() {
    let cluster = Embedded::start().await;
    cluster.map("a").await;
    cluster.map("b").await;
    cluster.send(Method::GET, MAPS, Value::Null).await;
    let (_, counters) = cluster.send(Method::GET, "/devcluster/counters", Value::Null).await;
    let counted = |verb: &str| {
        let list = counters["requests"].as_array().unwrap();
        let found = list.iter().find(|c| c["verb"] == verb && c["resource"] == "configmaps");
        found.map(|c| (c["count"].clone(), c["userAgent"].clone()))
    };
    assert_eq!(counted("create"), Some((json!(2), json!("tests"))), "{counters}");
    assert_eq!(counted("list"), Some((json!(1), json!("tests"))), "{counters}");
}

/// Watches a Deployment until its Progressing condition has this reason.
async fn progressing(cluster: &Embedded, name: &str, reason: &str) -> Value {
    let path = format!("/apis/apps/v1/namespaces/default/deployments?watch=1&fieldSelector=metadata.name%3D{name}");
    let mut watch = cluster.open(Method::GET, &path, Value::Null).await;
    let mut seen = Vec::new();
    loop {
        let chunk = tokio::time::timeout(Duration::from_secs(30), watch.chunk()).await.unwrap().unwrap().unwrap();
        seen.extend_from_slice(&chunk);
        while let Some(end) = seen.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = seen.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap();
            let conditions = event["object"]["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|c| c["type"] == "Progressing" && c["reason"] == reason);
            if let Some(found) = found {
                return found;
            }
        }
    }
}

async fn deploy(cluster: &Embedded, name: &str, image: &str, outcome: &str) {
    let body = json!({
        "metadata": {"name": name},
        "spec": {
            "progressDeadlineSeconds": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"devcluster.dev/outcome": outcome}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    });
    let (code, answer) = cluster.send(Method::POST, "/apis/apps/v1/namespaces/default/deployments", body).await;
    assert_eq!(code, 201, "{answer}");
}

async fn waiting_reason(cluster: &Embedded, name: &str) -> Value {
    let path = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}");
    let (_, pods) = cluster.send(Method::GET, &path, Value::Null).await;
    pods["items"][0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone()
}

#[tokio::test]
async fn a_roll_out_that_does_not_come_exceeds_its_deadline() {
    let cluster = Embedded::with_controllers().await;
    deploy(&cluster, "lost", "registry.invalid/app:1", "").await;
    deploy(&cluster, "crash", "app:1", "crash-loop").await;
    for (name, reason) in [("lost", "ImagePullBackOff"), ("crash", "CrashLoopBackOff")] {
        let condition = progressing(&cluster, name, "ProgressDeadlineExceeded").await;
        assert_eq!(condition["status"], "False");
        assert!(condition["message"].as_str().unwrap().ends_with("has timed out progressing."), "{condition}");
        assert_eq!(waiting_reason(&cluster, name).await, reason);
    }
}

/// Waits until a server is as wanted.
async fn until(server: &Cluster, wanted: impl Fn(&Cluster) -> bool) {
    let mut events = server.subscribe();
    let reached = async {
        while !wanted(server) {
            events.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reached).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_asks_for_more_than_the_node_has_is_not_placed() {
    let server = Cluster::new(Options::default());
    server.start_controllers();
    let container = |name: &str, memory: &str| json!({"name": name, "image": "a", "resources": {"requests": {"memory": memory, "cpu": "1"}}});
    let cases = [
        ("fits", json!({"containers": [container("a", "100Gi"), container("b", "156Gi")]})),
        ("together", json!({"containers": [container("a", "100Gi"), container("b", "157Gi")]})),
        ("before", json!({"containers": [container("a", "1Gi")], "initContainers": [container("b", "257Gi")]})),
    ];
    for (name, spec) in cases {
        let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        let call = Call::new("v1", "pods", "default", "", Action::Create(pod));
        server.call(&Caller::new("test"), call).unwrap();
    }
    let condition = |server: &Cluster, name: &str| {
        let pod = server.object("v1", "pods", "default", name).unwrap();
        let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|c| c["type"] == "PodScheduled").unwrap_or_default()
    };
    until(&server, |server| condition(server, "fits")["status"] == "True").await;
    for name in ["together", "before"] {
        until(&server, |server| condition(server, name)["reason"] == "Unschedulable").await;
        let message = condition(&server, name)["message"].clone();
        assert!(message.as_str().unwrap().starts_with("0/1 nodes are available: 1 Insufficient memory."), "{message}");
    }
}

#[tokio::test]
async fn pods_of_controllers_are_refused_as_injected() {
    let server = Cluster::new(Options::default());
    server.start_controllers();
    let refusal = "pods \"a-x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
    let any = Fault { verb: "create".into(), code: 500, message: "of any kind".into(), ..Fault::default() };
    let of_pods = Fault { resource: "pods".into(), code: 403, message: refusal.into(), ..any.clone() };
    server.faults().fail_next(any);
    server.faults().fail_next(of_pods);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}});
    let job = json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"template": template}});
    server.call(&Caller::new("test"), Call::new("batch/v1", "jobs", "default", "", Action::Create(job))).unwrap();
    until(&server, |server| {
        let job = server.object("batch/v1", "jobs", "default", "a").unwrap();
        job["status"]["succeeded"] == 1
    })
    .await;
    let events = server.objects("v1", "events", Some("default"));
    let refused = events.iter().filter(|event| event["reason"] == "FailedCreate").map(|event| &event["message"]);
    assert_eq!(refused.collect::<Vec<_>>(), [&json!(format!("Error creating: {refusal}"))]);
}

#[tokio::test]
async fn a_storage_that_begins_again_is_a_429_that_says_when_to_come_again() {
    let cluster = Embedded::start().await;
    cluster.map("a").await;
    let message = "storage is (re)initializing";
    let fault = json!({"verb": "list", "resource": "configmaps", "code": 429, "message": message, "retryAfter": 1});
    assert_eq!(cluster.send(Method::POST, "/devcluster/fail-next", fault).await.0, 200);
    let answer = cluster.open(Method::GET, MAPS, Value::Null).await;
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "TooManyRequests", "details": {"retryAfterSeconds": 1}, "code": 429,
    });
    assert_eq!(body, expected);
    assert_eq!(cluster.open(Method::GET, MAPS, Value::Null).await.status().as_u16(), 200);
}
