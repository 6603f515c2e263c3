//! Providers that comment on pull requests, against servers with the APIs of GitHub, GitLab and Gitea.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::request::Parts;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{OURS, alert, create, is, world};
use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::logs;
use mainstay_testkit::world::config_map;

const TOKEN: &str = "canary-of-the-token";
const ANNOTATION: &str = "event.toolkit.fluxcd.io/change_request";
/// The user of the token, and a different one.
const BOT: u64 = 7;
const STRANGER: u64 = 8;

/// The API of a type, for pull request 42 of the repository `ops/fleet`.
struct Api {
    kind: &'static str,
    /// Name and value of the header with the token.
    login: (&'static str, &'static str),
    user: &'static str,
    comments: &'static str,
    /// Method and beginning of the path of an edit.
    edit: (&'static str, &'static str),
    /// The field of a comment with its user.
    author: &'static str,
}

static APIS: [Api; 3] = [
    Api {
        kind: "githubpullrequestcomment",
        login: ("authorization", "Bearer canary-of-the-token"),
        user: "/api/v3/user",
        comments: "/api/v3/repos/ops/fleet/issues/42/comments",
        edit: ("PATCH", "/api/v3/repos/ops/fleet/issues/comments/"),
        author: "user",
    },
    Api {
        kind: "gitlabmergerequestcomment",
        login: ("private-token", TOKEN),
        user: "/api/v4/user",
        comments: "/api/v4/projects/ops%2Ffleet/merge_requests/42/notes",
        edit: ("PUT", "/api/v4/projects/ops%2Ffleet/merge_requests/42/notes/"),
        author: "author",
    },
    Api {
        kind: "giteapullrequestcomment",
        login: ("authorization", "token canary-of-the-token"),
        user: "/api/v1/user",
        comments: "/api/v1/repos/ops/fleet/issues/42/comments",
        edit: ("PATCH", "/api/v1/repos/ops/fleet/issues/comments/"),
        author: "user",
    },
];

/// A host with the comments of the pull request.
struct Host {
    api: &'static Api,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    comments: Vec<Value>,
    /// Number of comments that were ever added, which is the id of the newest.
    added: u64,
    /// Whether no token is accepted.
    is_closed: bool,
    /// The first request that the API does not have.
    wrong: Option<String>,
}

impl Host {
    async fn start(api: &'static Api) -> (Arc<Self>, SocketAddr) {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let host = Arc::new(Self { api, inner: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&host));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (host, address)
    }

    fn respond(&self, parts: &Parts, sent: &Value) -> (u16, Value) {
        let (login, method, path) = (self.api.login, parts.method.as_str(), parts.uri.path());
        let has_login = parts.headers.get(login.0).is_some_and(|value| value == login.1);
        if !has_login || self.inner.lock().is_closed {
            return (401, json!({"message": "Bad credentials"}));
        }
        match method {
            "GET" if path == self.api.user => (200, json!({"id": BOT, "login": "bot", "username": "bot"})),
            "GET" if path == self.api.comments => {
                let is_first = parts.uri.query().is_none_or(|query| query.ends_with("per_page=50&page=1"));
                (200, if is_first { self.inner.lock().comments.clone().into() } else { json!([]) })
            }
            "POST" if path == self.api.comments && sent["body"].is_string() => (201, self.add(BOT, &sent["body"])),
            method if method == self.api.edit.0 && sent["body"].is_string() => {
                let id = path.strip_prefix(self.api.edit.1).and_then(|id| id.parse::<u64>().ok());
                let mut inner = self.inner.lock();
                let found = inner.comments.iter_mut().find(|comment| comment["id"].as_u64() == id);
                found.map_or((404, json!({"message": "Not Found"})), |comment| {
                    comment["body"] = sent["body"].clone();
                    (200, comment.clone())
                })
            }
            _ => {
                self.inner.lock().wrong.get_or_insert(format!("{method} {path}"));
                (404, json!({"message": "Not Found"}))
            }
        }
    }

    /// Adds a comment of a user, and returns it.
    fn add(&self, user: u64, body: &Value) -> Value {
        let mut inner = self.inner.lock();
        inner.added += 1;
        let comment =
            json!({"id": inner.added, "body": body, (self.api.author): {"id": user}, "created_at": "2026-01-01"});
        inner.comments.push(comment.clone());
        comment
    }

    /// Returns the text of a comment; null if there is no such comment.
    fn body(&self, id: u64) -> Value {
        let inner = self.inner.lock();
        let found = inner.comments.iter().find(|comment| comment["id"] == id);
        found.map_or(Value::Null, |comment| comment["body"].clone())
    }

    /// Returns whether a comment is about a commit.
    fn shows(&self, id: u64, commit: &str) -> bool {
        self.body(id).as_str().is_some_and(|body| body.contains(&format!("sha1:{commit} ")))
    }
}

async fn answer(State(host): State<Arc<Host>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let (status, found) = host.respond(&parts, &serde_json::from_slice(&body).unwrap_or_default());
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(found.to_string())).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_comment_on_a_pull_request_shows_the_newest_state_of_a_git_sync() {
    logs::keep();
    let mut world = world().await;
    world.set_secret("bot", json!({"token": TOKEN}));
    let mut hosts = Vec::new();
    for api in &APIS {
        let (host, address) = Host::start(api).await;
        host.inner.lock().is_closed = true;
        let address = format!("http://{address}/ops/fleet.git");
        let spec = json!({"type": api.kind, "address": address, "secretRef": {"name": "bot"}});
        create(&world, "Provider", "providers", api.kind, spec);
        create(&world, "Alert", "alerts", api.kind, alert(api.kind));
        hosts.push(host);
    }
    let first = world.remote.file("plain/b.yaml", config_map("b", "1")).commit("two");
    // The messages of `plain` have no number of a pull request.
    world.sync("plain", json!({"baseDir": "/plain"}));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.edit(OURS, "gitsyncs", "demo", json!({"metadata": {"annotations": {ANNOTATION: "42"}}}));
    world.start();
    world.ready("demo").await;
    for api in &APIS {
        let refused = "False NotDelivered: 127.0.0.1: the service refuses the credentials (status 401)";
        is(&mut world, "providers", api.kind, refused).await;
    }
    for host in &hosts {
        host.inner.lock().is_closed = false;
    }
    world.until("the comments are created", |_| hosts.iter().all(|host| host.shows(1, &first))).await;
    for api in &APIS {
        is(&mut world, "providers", api.kind, "True Sending: sends to 127.0.0.1").await;
    }

    // A user copies the comment with its marker.
    let copies: Vec<Value> = hosts.iter().map(|host| host.add(STRANGER, &host.body(1))).collect();
    let second = world.remote.file("objects/a.yaml", "kind: [").commit("three");
    world.look();
    world.until("the comments are edited", |_| hosts.iter().all(|host| host.shows(1, &second))).await;
    for host in &hosts {
        host.inner.lock().comments.retain(|comment| comment["id"] != 1);
    }
    let third = world.remote.file("objects/a.yaml", config_map("a", "2")).commit("four");
    world.look();
    world.until("the comments are created again", |_| hosts.iter().all(|host| host.shows(3, &third))).await;
    world.ready("demo").await;
    world.ready("plain").await;
    for (host, copy) in hosts.iter().zip(copies) {
        let inner = host.inner.lock();
        assert_eq!((inner.comments.len(), &inner.comments[0]), (2, &copy), "{}", host.api.kind);
        assert!(!format!("{:?}", inner.comments).contains("plain"), "{:?}", inner.comments);
        assert_eq!(inner.wrong, None);
    }
    for api in &APIS {
        is(&mut world, "providers", api.kind, "True Sending: sends to 127.0.0.1").await;
    }
    nothing_is_shown(&mut world, &[TOKEN]).await;
}
