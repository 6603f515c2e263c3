//! Providers of type `bitbucketserver`, against a server that checks each request by the documentation of its API.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{alert, create, is, world};
use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::logs;
use mainstay_testkit::world::config_map;

const TOKEN: &str = "canary-of-the-token";
const BUILDS: &str = "/bitbucket/rest/api/latest/projects/OPS/repos/fleet/commits/";

/// The build statuses of a repository.
#[derive(Default)]
struct Builds(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The statuses by commit.
    set: BTreeMap<String, Value>,
    /// The commits whose status was read.
    read: Vec<String>,
    /// The status that each commit has that is not in `set`, without its key.
    known: Option<Value>,
    /// Status and body of each response; `None` if requests are served.
    fault: Option<(u16, &'static str)>,
    /// The first request that violates the API.
    wrong: Option<String>,
}

fn response(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).header("content-type", "application/json").body(body.into()).unwrap()
}

/// Returns why a request violates the API.
fn violation(request: &Request, body: &[u8]) -> Option<String> {
    let header = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap());
    let query = request.uri().query();
    let is_key = |key: &str| key.len() == 40 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let headers = ["authorization", "x-atlassian-token", "x-requested-with"].map(header);
    let authorization = format!("Bearer {TOKEN}");
    if headers != [authorization.as_str(), "no-check", "XMLHttpRequest"] {
        return Some(format!("headers: {headers:?}"));
    }
    let is_valid = match *request.method() {
        Method::GET => body.is_empty() && query.and_then(|query| query.strip_prefix("key=")).is_some_and(is_key),
        Method::POST => {
            let sent: Value = serde_json::from_slice(body).unwrap_or_default();
            let text = |field: &str| sent[field].as_str().unwrap_or_default();
            let is_state = matches!(text("state"), "SUCCESSFUL" | "FAILED" | "INPROGRESS");
            let is_complete = is_key(text("key")) && text("url").starts_with("http://") && is_state;
            let is_short = ["name", "description"].into_iter().all(|field| (1..=255).contains(&text(field).len()));
            query.is_none() && header("content-type") == "application/json" && is_complete && is_short
        }
        _ => false,
    };
    (!is_valid).then(|| format!("{} {} {}", request.method(), request.uri(), String::from_utf8_lossy(body)))
}

async fn answer(State(builds): State<Arc<Builds>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let request = Request::from_parts(parts, Body::empty());
    let mut inner = builds.0.lock();
    if let Some(wrong) = violation(&request, &body) {
        inner.wrong.get_or_insert(wrong);
        return response(400, "");
    }
    if let Some((status, body)) = inner.fault {
        return response(status, body);
    }
    let commit = request.uri().path().strip_prefix(BUILDS).and_then(|rest| rest.strip_suffix("/builds"));
    let Some(commit) = commit.map(str::to_owned) else { return response(404, "") };
    if request.method() == Method::POST {
        inner.set.insert(commit, serde_json::from_slice(&body).unwrap());
        return response(204, "");
    }
    let found = inner.set.get(&commit).or(inner.known.as_ref()).cloned();
    inner.read.push(commit);
    found.map_or_else(|| response(404, "{\"errors\":[]}"), |found| response(200, found.to_string()))
}

async fn serve() -> (Arc<Builds>, SocketAddr) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (address, builds) = (listener.local_addr().unwrap(), Arc::new(Builds::default()));
    let router = Router::new().fallback(answer).with_state(Arc::clone(&builds));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (builds, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_status_is_set_once_and_not_repeated() {
    logs::keep();
    let (mut world, (builds, address)) = (world().await, serve().await);
    builds.0.lock().fault = Some((401, ""));
    let clone = format!("http://{address}/bitbucket/scm/OPS/fleet.git");
    world.set_secret("tick", json!({"token": TOKEN}));
    let spec = json!({"type": "bitbucketserver", "address": clone, "secretRef": {"name": "tick"}});
    create(&world, "Provider", "providers", "tick", spec);
    create(&world, "Alert", "alerts", "tick", alert("tick"));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    let refused = "False NotDelivered: 127.0.0.1: the service refuses the credentials (status 401)";
    is(&mut world, "providers", "tick", refused).await;
    builds.0.lock().fault = Some((200, "<html>"));
    let no_status = "False NotDelivered: 127.0.0.1: the service does not answer with a build status";
    is(&mut world, "providers", "tick", no_status).await;
    builds.0.lock().fault = None;
    let first = world.remote.head();
    world.until("the status is set", |_| builds.0.lock().set.contains_key(&first)).await;
    is(&mut world, "providers", "tick", "True Sending: sends to 127.0.0.1").await;
    let status = builds.0.lock().set[&first].clone();
    let (state, name) = (&status["state"], status["name"].as_str().unwrap());
    assert_eq!((state, name, &status["url"]), (&json!("SUCCESSFUL"), "gitsync/demo [applied]", &json!(clone)));

    // The service has the status of the second commit, and not that of the third one.
    builds.0.lock().known = Some(status);
    let second = world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    world.look();
    world.until("the status is read", |_| builds.0.lock().read.contains(&second)).await;
    builds.0.lock().known = None;
    let third = world.remote.file("objects/a.yaml", "kind: [").commit("three");
    world.look();
    world.until("the failure is set", |_| builds.0.lock().set.contains_key(&third)).await;
    let (set, wrong) = {
        let inner = builds.0.lock();
        (inner.set.clone(), inner.wrong.clone())
    };
    assert_eq!((&set[&third]["state"], &set[&third]["key"]), (&json!("FAILED"), &set[&first]["key"]));
    assert!(!set.contains_key(&second), "{set:?}");
    assert_eq!(wrong, None);
    nothing_is_shown(&mut world, &[TOKEN]).await;
}
