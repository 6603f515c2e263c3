//! Judges requests, finds their session, and leads them to their page.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::session::{Session, token};
use super::{act, answer, assets, live, pages};
use crate::guard;
use crate::session::{Sessions, TokenDigest, cookie};
use crate::tree::TreeReader;
use loopback::Listener;
use mainstay_cluster::Cluster;
use mainstay_cluster::listener::{self, Limits};

/// Limits of a browser, whose streams stay open.
fn limits() -> Limits {
    use std::time::Duration;
    Limits {
        connections: 64,
        head: Duration::from_secs(10),
        whole: Duration::from_secs(24 * 3600),
        kept: Some(Duration::from_secs(60)),
        idle: Some(Duration::from_secs(60)),
        farewell: Duration::from_secs(1),
    }
}

/// Settings of a console.
pub struct Settings {
    /// Connects a new session, with the rights of its user.
    pub cluster: Cluster,
    /// The namespace to show if the user may not list the objects of all namespaces.
    pub namespace: String,
    /// Reads the tree of a GitSync.
    pub tree: TreeReader,
}

/// A web server for one user.
pub struct Console {
    settings: Settings,
    listener: Listener,
    port: u16,
    sessions: Mutex<Sessions<Arc<Session>>>,
    stop: CancellationToken,
}

impl Console {
    /// Makes a server for a listener of this machine, which ends with `stop`.
    ///
    /// # Errors
    /// If the listener has no address.
    pub fn new(settings: Settings, listener: Listener, stop: CancellationToken) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        Ok(Self { settings, listener, port, sessions: Mutex::default(), stop })
    }

    /// Returns a link that opens one session.
    ///
    /// # Errors
    /// If the system gives no random numbers.
    pub fn link(&self) -> io::Result<String> {
        let token = token()?;
        self.sessions.lock().add_link(TokenDigest::of(&token));
        Ok(format!("http://127.0.0.1:{}{}{token}", self.port, guard::OPEN))
    }

    /// Answers requests until the end.
    pub async fn serve(self) {
        let Self { settings, listener, port, sessions, stop } = self;
        let shared = Arc::new(Shared { settings, port, sessions, stop: stop.clone(), router: router() });
        let answer = move |request: http::Request<hyper::body::Incoming>| {
            let shared = Arc::clone(&shared);
            async move { answer::secured(shared.answer(request.map(Body::new)).await) }
        };
        listener::serve(listener, limits(), answer, stop).await;
    }
}

struct Shared {
    settings: Settings,
    port: u16,
    sessions: Mutex<Sessions<Arc<Session>>>,
    stop: CancellationToken,
    router: Router,
}

fn router() -> Router {
    Router::new()
        .route("/", get(pages::fleet))
        .route("/gitsync/{namespace}/{name}", get(pages::git_sync))
        .route("/function/{namespace}/{name}", get(pages::function))
        .route("/object", get(pages::object))
        .route("/drift", get(pages::drift))
        .route("/drift.csv", get(pages::drift_csv))
        .route("/events", get(live::events))
        .route("/act", get(act::confirm).post(act::perform))
        .fallback(async || answer::message(StatusCode::NOT_FOUND, "Not found", "There is no such page."))
}

impl Shared {
    async fn answer(&self, mut request: Request) -> Response {
        if let Err(refusal) = guard::judge(request.method(), request.uri().path(), request.headers(), self.port) {
            return answer::message(StatusCode::FORBIDDEN, "Refused", refusal.message());
        }
        let path = request.uri().path().to_owned();
        if let Some(asset) = assets::asset(&path) {
            return asset;
        }
        if let Some(token) = path.strip_prefix(guard::OPEN) {
            return self.open(token, request.headers()).await;
        }
        let Some(session) = self.session(request.headers()) else {
            return answer::message(
                StatusCode::UNAUTHORIZED,
                "No session",
                "This browser has no session, or it has ended. Run `mainstay ui` again and open the link that it prints.",
            );
        };
        request.extensions_mut().insert(session);
        let Ok(response) = self.router.clone().oneshot(request).await;
        response
    }

    /// The cookie of this port: other ports of this machine have the same cookies.
    fn cookie_name(&self) -> String {
        format!("mainstay_ui_{}", self.port)
    }

    fn session(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let name = self.cookie_name();
        let mut all = headers.get_all(header::COOKIE).iter().filter_map(|header| header.to_str().ok());
        let token = all.find_map(|header| cookie(header, &name))?;
        self.sessions.lock().of(TokenDigest::of(token), Timestamp::now())
    }

    /// Turns a link into a session, and leads to a page without the token.
    async fn open(&self, link: &str, headers: &HeaderMap) -> Response {
        if !self.sessions.lock().take_link(TokenDigest::of(link)) {
            if self.session(headers).is_some() {
                return answer::see_other("/");
            }
            return answer::message(
                StatusCode::FORBIDDEN,
                "The link was used",
                "This link opens one session, and it was used or is wrong. Run `mainstay ui` again for a new one.",
            );
        }
        let (Ok(token), Ok(csrf)) = (token(), token()) else {
            return answer::message(
                StatusCode::INTERNAL_SERVER_ERROR,
                "No session",
                "The system gives no random numbers.",
            );
        };
        let Settings { cluster, namespace, tree } = &self.settings;
        let session = Arc::new(Session::begin(cluster, namespace, tree, csrf, &self.stop).await);
        self.sessions.lock().open(TokenDigest::of(&token), session, Timestamp::now());
        let mut response = answer::see_other("/");
        let cookie = format!("{}={token}; Path=/; HttpOnly; SameSite=Strict", self.cookie_name());
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
        response
    }
}
