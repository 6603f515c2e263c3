//! Providers of types `lark` and `datadog`, names of commit statuses that an expression computes, and plain proxies.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{OURS, PATH, Service, alert, create, is, status, world};
use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::logs;
use mainstay_testkit::world::{World, config_map};

const TOKEN: &str = "canary-of-the-token";

/// A server with one answer, which records path, API key and body of each request.
#[derive(Default)]
struct Server {
    answer: Mutex<(u16, &'static str)>,
    requests: Mutex<Vec<(String, String, Value)>>,
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let key = request.headers().get("dd-api-key").map_or("", |value| value.to_str().unwrap()).to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    server.requests.lock().push((path, key, serde_json::from_slice(&body).unwrap()));
    let (status, body) = *server.answer.lock();
    Response::builder().status(status).body(body.into()).unwrap()
}

async fn serve(status: u16, body: &'static str) -> (Arc<Server>, SocketAddr) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Arc::new(Server { answer: Mutex::new((status, body)), ..Server::default() });
    let router = Router::new().fallback(answer).with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (server, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_of_lark_that_answers_with_an_error_gets_the_message_again() {
    let (mut world, (bot, address)) = (world().await, serve(200, r#"{"code":19001,"msg":"canary"}"#).await);
    let url = format!("http://{address}/open-apis/bot/v2/hook/0123");
    create(&world, "Provider", "providers", "chat", json!({"type": "lark", "address": url}));
    create(&world, "Alert", "alerts", "all", alert("chat"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    let refused = "False NotDelivered: 127.0.0.1: the service answers code 19001: it does not know the bot";
    is(&mut world, "providers", "chat", refused).await;
    *bot.answer.lock() = (200, r#"{"code":0,"data":{},"msg":"success"}"#);
    is(&mut world, "providers", "chat", "True Sending: sends to 127.0.0.1").await;
    let cards = bot.requests.lock().clone();
    assert!(cards.len() > 1, "{cards:?}");
    for (path, _, card) in cards {
        assert_eq!((path.as_str(), &card["msg_type"]), ("/open-apis/bot/v2/hook/0123", &json!("interactive")));
        let title = card.pointer("/card/header/title/content").and_then(Value::as_str).unwrap();
        assert!(title.starts_with("gitsync/demo."), "{card}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datadog_gets_events_with_the_key_and_tags() {
    logs::keep();
    let (mut world, (datadog, address)) = (world().await, serve(202, r#"{"status":"ok"}"#).await);
    world.set_secret("datadog", json!({"token": TOKEN}));
    let spec = json!({"type": "datadog", "address": format!("http://{address}"), "secretRef": {"name": "datadog"}});
    create(&world, "Provider", "providers", "datadog", spec);
    create(&world, "Alert", "alerts", "all", alert("datadog"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    world.remote.file("objects/a.yaml", "kind: [").commit("broken");
    world.look();
    let is_failure = |(_, _, event): &&(String, String, Value)| event["alert_type"] == "error";
    world.until("the failure arrives", |_| datadog.requests.lock().iter().any(|request| is_failure(&request))).await;
    let (path, key, event) = datadog.requests.lock().iter().find(is_failure).cloned().unwrap();
    assert_eq!((path.as_str(), key.as_str()), ("/api/v1/events", TOKEN));
    let tags = event["tags"].as_array().unwrap();
    for tag in ["kube_kind:gitsync", "kube_name:demo", "summary:production"] {
        assert!(tags.contains(&json!(tag)), "{event}");
    }
    is(&mut world, "providers", "datadog", "True Sending: sends to 127.0.0.1").await;
    nothing_is_shown(&mut world, &[TOKEN]).await;
}

/// Changes the spec of a Provider, and waits until its status is about the new spec.
async fn change(world: &World, provider: &str, spec: Value) {
    let changed = world.edit(OURS, "providers", provider, json!({"spec": spec}));
    let generation = changed["metadata"]["generation"].clone();
    assert!(generation.is_i64() || generation.is_u64(), "{changed}");
    let is_read = |w: &World| status(w, "providers", provider)["observedGeneration"] == generation;
    world.until("the Provider is read", is_read).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expression_names_the_status_of_a_commit() {
    let (mut world, (host, address)) = (world().await, serve(201, "{}").await);
    world.set_secret("tick", json!({"token": TOKEN}));
    let expression = "(event.involvedObject.kind + '/' + alert.metadata.name + '/' + provider.metadata.name).lowerAscii() + '/' + \
         event.metadata.summary";
    let spec = json!({
        "type": "gitea", "address": format!("http://{address}/ops/fleet"), "secretRef": {"name": "tick"},
        "commitStatusExpr": expression,
    });
    create(&world, "Provider", "providers", "tick", spec);
    create(&world, "Alert", "alerts", "all", alert("tick"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    let path = format!("/api/v1/repos/ops/fleet/statuses/{}", world.remote.head());
    let of = |path: &str| host.requests.lock().iter().find(|(to, ..)| to == path).cloned();
    world.until("the status is set", |_| of(&path).is_some()).await;
    let (_, _, set) = of(&path).unwrap();
    assert_eq!((&set["context"], &set["state"]), (&json!("gitsync/all/tick/production"), &json!("success")));

    change(&world, "tick", json!({"commitStatusExpr": "event.metadata.missing"})).await;
    let second = world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    world.look();
    let unnamed = "False NotDelivered: 127.0.0.1: spec.commitStatusExpr: line 1, column";
    is(&mut world, "providers", "tick", unnamed).await;
    assert_eq!(of(&format!("/api/v1/repos/ops/fleet/statuses/{second}")), None);
    change(&world, "tick", json!({"commitStatusExpr": "event."})).await;
    is(&mut world, "providers", "tick", "False SpecInvalid: spec.commitStatusExpr: line 1, column").await;
    change(&world, "tick", json!({"commitStatusExpr": null, "address": format!("http://{address}/ops")})).await;
    is(&mut world, "providers", "tick", "False SpecInvalid: spec.address: is not the address of a repository").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_proxy_gets_the_requests_and_has_no_login() {
    let (mut world, proxy) = (world().await, Service::start().await);
    let plain = format!("http://{}", proxy.address);
    let spec = json!({"type": "generic", "address": format!("http://hooks.example.com/{PATH}"), "proxy": plain});
    create(&world, "Provider", "providers", "chat", spec);
    create(&world, "Alert", "alerts", "all", alert("chat"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    proxy.received("Applied").await;
    is(&mut world, "providers", "chat", "True Sending: sends to hooks.example.com").await;
    for (address, expected) in [
        (
            "http://user:canary@127.0.0.1:1".to_owned(),
            "False SpecInvalid: spec.proxy: credentials belong into a Secret",
        ),
        (format!("{plain}/path"), "False SpecInvalid: spec.proxy: "),
        ("http://169.254.169.254".to_owned(), "False SpecInvalid: spec.proxy: connections to link-local"),
    ] {
        change(&world, "chat", json!({"proxy": address})).await;
        is(&mut world, "providers", "chat", expected).await;
    }
}
