//! Webhooks of an embedder: in process and by Service, and configurations that are refused instead of ignored.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use devcluster::{Action, Call, Caller, Cluster, Options, status::Status};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::webhook::{Hooks, Reply, allow, patch};

fn create(api_version: &str, resource: &str, namespace: &str, object: Value) -> Call {
    Call::new(api_version, resource, namespace, "", Action::Create(object))
}

/// Creates a cluster with a mutating webhook for ConfigMaps. `client` is its client configuration.
fn with_webhook(client: Value) -> Cluster {
    let server = Cluster::new(Options::default());
    configure(&server, client, json!({})).unwrap();
    server
}

fn configure(server: &Cluster, client: Value, more: Value) -> Result<Value, Status> {
    let mut webhook = json!({
        "name": "m.example.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 10,
        "clientConfig": client,
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
    });
    json_patch::merge(&mut webhook, &more);
    let configuration = json!({"metadata": {"name": "m"}, "webhooks": [webhook]});
    let path = ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations");
    server.call(&Caller::new("test"), create(path.0, path.1, "", configuration))
}

fn adding() -> Hooks {
    Hooks::start(|_, review| patch(review, json!([{"op": "add", "path": "/data", "value": {"added": "yes"}}])))
}

fn map(name: &str) -> Call {
    create("v1", "configmaps", "default", json!({"metadata": {"name": name}}))
}

#[test]
fn a_call_without_a_runtime_asks_webhooks() {
    let hooks = adding();
    let server = with_webhook(json!({"url": format!("{}/m", hooks.url()), "caBundle": hooks.bundle()}));
    let made = server.call(&Caller::new("test"), map("a")).unwrap();
    assert_eq!(made["data"], json!({"added": "yes"}));
    assert_eq!(hooks.asked()[0].request()["userInfo"]["username"], "admin");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_inside_of_a_runtime_asks_webhooks() {
    let hooks = adding();
    let server = with_webhook(json!({"url": format!("{}/m", hooks.url()), "caBundle": hooks.bundle()}));
    assert_eq!(server.call(&Caller::new("test"), map("a")).unwrap()["data"], json!({"added": "yes"}));
    assert_eq!(server.request(&Caller::new("test"), map("b")).await.unwrap()["data"], json!({"added": "yes"}));
}

#[tokio::test]
async fn a_request_waits_without_blocking_the_only_thread() {
    let held = Arc::new(Notify::new());
    let holding = Arc::clone(&held);
    let hooks = Hooks::start(move |_, review| Reply { held: Some(holding.clone()), ..allow(review, json!({})) });
    let server = with_webhook(json!({"url": format!("{}/m", hooks.url()), "caBundle": hooks.bundle()}));
    let caller = Caller::new("test");
    let (slow, quick) = tokio::join!(server.request(&caller, map("a")), async {
        while hooks.asked().is_empty() {
            tokio::task::yield_now().await;
        }
        let found = server.object("v1", "configmaps", "default", "a");
        held.notify_one();
        found
    });
    assert!(slow.is_ok() && quick.is_none());
}

#[tokio::test]
async fn a_url_that_the_embedder_refuses_is_not_connected_to() {
    let hooks = adding();
    let why = "the author is not trusted";
    let server = Cluster::new(Options { refused_webhooks: Some(why), ..Options::default() });
    let url = hooks.url();
    configure(&server, json!({"url": format!("{url}/m"), "caBundle": hooks.bundle()}), json!({})).unwrap();
    let refused = server.request(&Caller::new("test"), map("a")).await.unwrap_err();
    let expected = format!("failed to call webhook: Post \"{url}/m?timeout=10s\": {why}");
    assert!(refused.message.ends_with(&expected), "{}", refused.message);
    assert!(hooks.asked().is_empty());
    server.permit_webhooks("127.0.0.1:1".parse().unwrap());
    assert!(server.request(&Caller::new("test"), map("a")).await.is_err());
    server.permit_webhooks(url.strip_prefix("https://").unwrap().parse().unwrap());
    assert_eq!(server.request(&Caller::new("test"), map("a")).await.unwrap()["data"], json!({"added": "yes"}));
}

#[tokio::test]
async fn a_webhook_behind_a_service_is_where_the_embedder_says() {
    let hooks = adding();
    let service = json!({"namespace": "default", "name": "judge", "port": 8443, "path": "/m"});
    let server = with_webhook(json!({"service": service, "caBundle": hooks.bundle()}));
    let caller = Caller::new("test");
    let start = "Internal error occurred: failed calling webhook \"m.example.io\": failed to call webhook: Post \"https://judge.default.svc:8443/m?timeout=10s\": ";
    let missing = server.request(&caller, map("a")).await.unwrap_err();
    assert_eq!((missing.code, missing.message), (500, format!("{start}service \"judge\" not found")));
    let spec = json!({"ports": [{"port": 8443}], "selector": {"app": "judge"}});
    let service = json!({"metadata": {"name": "judge"}, "spec": spec});
    server.request(&caller, create("v1", "services", "default", service)).await.unwrap();
    let silent = server.request(&caller, map("a")).await.unwrap_err();
    assert_eq!(silent.message, format!("{start}no endpoints available for service \"judge\""));
    let address: SocketAddr = hooks.url().trim_start_matches("https://").parse().unwrap();
    server.route_service("default", "judge", 8443, address);
    assert_eq!(server.request(&caller, map("a")).await.unwrap()["data"], json!({"added": "yes"}));
    assert_eq!(hooks.asked()[0].path, "/m?timeout=10s");
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_a_failure() {
    let hooks = Hooks::start(|_, _| Reply {
        code: 200,
        body: " ".repeat(4 << 20),
        delay: Duration::ZERO,
        held: None,
        closes: false,
    });
    let server = with_webhook(json!({"url": format!("{}/m", hooks.url()), "caBundle": hooks.bundle()}));
    let refused = server.request(&Caller::new("test"), map("a")).await.unwrap_err();
    assert!(refused.message.contains("failed to call webhook: reading the answer"), "{}", refused.message);
}

#[tokio::test]
async fn a_service_that_is_judged_keeps_one_address() {
    let hooks = Hooks::start(|_, review| allow(review, json!({})));
    let server = Cluster::new(Options::default());
    let client = json!({"url": format!("{}/m", hooks.url()), "caBundle": hooks.bundle()});
    let rules = json!([{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}]);
    let webhook = json!({
        "name": "v.example.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": client,
        "rules": rules,
    });
    let configuration = json!({"metadata": {"name": "v"}, "webhooks": [webhook]});
    let caller = Caller::new("test");
    let path = ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations");
    server.request(&caller, create(path.0, path.1, "", configuration)).await.unwrap();
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}], "selector": {"app": "a"}});
    let made =
        server.request(&caller, create("v1", "services", "default", json!({"metadata": {"name": "a"}, "spec": spec})));
    assert!(made.await.unwrap()["spec"]["clusterIP"].is_string());
    assert_eq!(hooks.asked().len(), 1);
}
