//! A Git server over HTTP on loopback: `git http-backend` as CGI, with fault injection.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Response, StatusCode, header},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;

use super::{large_files, tls::TlsListener};

/// An injected fault of the server.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server never responds.
    Stall,
    /// The server sends the headers immediately, then one byte of the real body per interval.
    Drip(Duration),
    /// The server responds with this status, with the request's credentials in the body.
    Status(u16),
    /// The server responds with 429 and this `Retry-After` in seconds.
    RetryAfter(u64),
    /// The server redirects to the same path at this base URL, unless the request was sent there.
    Redirect(String),
    /// The server responds with a web page.
    Html,
    /// The server responds with this body and the expected content type.
    Answer(Vec<u8>),
    /// The server sends the first part, then repeats the second part until the client stops.
    Endless(Vec<u8>, Vec<u8>),
    /// The server cuts the real response after this many bytes.
    Truncate(usize),
    /// The server changes some bytes of the real response. The seed determines these bytes.
    Scramble(u64),
}

/// The requests that a [`Fault`] affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// All requests.
    Everything,
    /// Requests for the capabilities (`info/refs`).
    Advertisement,
    /// Requests for references in protocol version 2.
    References,
    /// Requests for packs.
    Packs,
}

/// Counts of the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: usize,
    /// Requests with credentials.
    pub with_credentials: usize,
    /// Bytes of received bodies.
    pub bytes_in: usize,
    /// Bytes of sent bodies.
    pub bytes_out: usize,
    /// Requests for packs.
    pub packs: usize,
}

/// Decides whether a value of `Authorization` is accepted.
type Authorization = Box<dyn Fn(&str) -> bool + Send>;

#[derive(Default)]
struct Levers {
    /// Accepts values of `Authorization`; `None` accepts all requests.
    authorization: Option<Authorization>,
    faults: Vec<(On, Fault)>,
    only_version_zero: bool,
    counts: Counts,
    arrivals: Vec<Instant>,
    large: large_files::Store,
}

struct Shared {
    root: PathBuf,
    levers: Mutex<Levers>,
}

/// A running server. The server stops when this value is dropped.
pub struct GitServer {
    scheme: &'static str,
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl GitServer {
    /// Serves the repositories in `root` on a free port of loopback.
    pub async fn start(root: &Path) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self::serve(root, "http", address, listener, Router::new())
    }

    /// Serves over TLS.
    pub async fn start_tls(root: &Path, identity: rustls::ServerConfig) -> Self {
        Self::start_tls_with(root, identity, Router::new()).await
    }

    /// Serves over TLS, beside other paths.
    pub async fn start_tls_with(root: &Path, identity: rustls::ServerConfig, others: Router) -> Self {
        let listener = TlsListener::bind(identity).await;
        let address = axum::serve::Listener::local_addr(&listener).unwrap();
        Self::serve(root, "https", address, listener, others)
    }

    fn serve<L>(root: &Path, scheme: &'static str, address: SocketAddr, listener: L, others: Router) -> Self
    where
        L: axum::serve::Listener<Addr = SocketAddr>,
    {
        let shared = Arc::new(Shared { root: root.to_owned(), levers: Mutex::default() });
        let router = others.fallback_service(Router::new().fallback(answer).with_state(Arc::clone(&shared)));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { scheme, address, shared, serving }
    }

    /// Returns the base URL: `http://127.0.0.1:<port>`, or `https://…`.
    pub fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Returns the URL of a repository in the root.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.base())
    }

    /// Requires this user and password from now on.
    pub fn require(&self, username: &str, password: &str) {
        self.require_authorization(&format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}"))));
    }

    /// Requires this `Authorization` from now on.
    pub fn require_authorization(&self, value: &str) {
        self.require_any(&[value]);
    }

    /// Requires one of these values of `Authorization` from now on.
    pub fn require_any(&self, values: &[&str]) {
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        self.require_with(move |given| values.iter().any(|value| value == given));
    }

    /// Requires a value of `Authorization` that this function accepts from now on.
    pub fn require_with(&self, accepts: impl Fn(&str) -> bool + Send + 'static) {
        self.levers().authorization = Some(Box::new(accepts));
    }

    /// No longer requires authorization.
    pub fn let_everyone_in(&self) {
        self.levers().authorization = None;
    }

    /// Adds a fault for these requests. Faults for other requests stay.
    pub fn fail(&self, on: On, fault: Fault) {
        let mut levers = self.levers();
        levers.faults.retain(|(faulty, _)| *faulty != on);
        levers.faults.push((on, fault));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.levers().faults.clear();
    }

    /// Limits the server to version 0 of the Git protocol.
    pub fn speak_version_zero(&self) {
        self.levers().only_version_zero = true;
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&self) -> Counts {
        std::mem::take(&mut self.levers().counts)
    }

    /// Returns the times of requests since the last [`GitServer::forget_arrivals`].
    pub fn arrivals(&self) -> Vec<Instant> {
        self.levers().arrivals.clone()
    }

    /// Stores a file in Git LFS with this SHA-256.
    pub fn keep(&self, oid: &str, content: &[u8]) {
        self.levers().large.files.insert(oid.to_owned(), content.to_vec());
    }

    /// Sets the base URL for downloads of Git LFS.
    pub fn keep_at(&self, base: &str) {
        self.levers().large.elsewhere = Some(base.to_owned());
    }

    /// Returns the numbers of batches and downloads of Git LFS since the last call.
    pub fn take_large_requests(&self) -> (usize, usize) {
        std::mem::take(&mut self.levers().large.requests)
    }

    /// Sets or removes the fault of the LFS server.
    pub fn fail_large(&self, fault: impl Into<Option<large_files::Fault>>) {
        self.levers().large.fault = fault.into();
    }

    /// Resets [`GitServer::arrivals`].
    pub fn forget_arrivals(&self) {
        self.levers().arrivals.clear();
    }

    fn levers(&self) -> parking_lot::MutexGuard<'_, Levers> {
        self.shared.levers.lock()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 64 << 20).await.unwrap();
    let on = match (head.uri.path().ends_with("/info/refs"), contains(&body, b"command=ls-refs")) {
        (true, _) => On::Advertisement,
        (_, true) => On::References,
        _ => On::Packs,
    };
    let given = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (allowed, fault, version_zero) = {
        let mut levers = shared.levers.lock();
        levers.counts.requests += 1;
        levers.arrivals.push(Instant::now());
        levers.counts.with_credentials += usize::from(!given.is_empty());
        levers.counts.bytes_in += body.len();
        levers.counts.packs += usize::from(on == On::Packs);
        let allowed = levers.authorization.as_ref().is_none_or(|accepts| accepts(given));
        let there = |fault: &Fault| match fault {
            Fault::Redirect(base) => {
                let path = base.splitn(4, '/').nth(3).unwrap_or_default();
                !path.is_empty() && head.uri.path()[1..].starts_with(path)
            }
            _ => false,
        };
        let hit = levers
            .faults
            .iter()
            .filter(|(_, fault)| !there(fault))
            .find(|(faulty, _)| *faulty == On::Everything || *faulty == on);
        (allowed, hit.map(|(_, fault)| fault.clone()), levers.only_version_zero)
    };
    let given = given.to_owned();
    if allowed && fault.is_none() && head.uri.path().contains("/info/lfs/") {
        let answer = shared.levers.lock().large.answer(&head, &body);
        return match answer {
            Some(answer) => answer,
            None => std::future::pending().await,
        };
    }
    let kind = if on == On::Advertisement { "advertisement" } else { "result" };
    let git = format!("application/x-git-upload-pack-{kind}");
    let plain = |status: u16, kind: &str, body: Vec<u8>| {
        let response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
        response.body(Body::from(body)).unwrap()
    };
    match fault {
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Status(status)) => plain(status, "text/plain", given.into_bytes()),
        Some(Fault::RetryAfter(seconds)) => {
            Response::builder().status(429).header(header::RETRY_AFTER, seconds).body(Body::empty()).unwrap()
        }
        Some(Fault::Html) => plain(200, "text/html; charset=utf-8", b"<html>Sign in</html>".to_vec()),
        Some(Fault::Answer(body)) => plain(200, &git, body),
        Some(Fault::Endless(first, again)) => {
            let response = Response::builder().status(200).header(header::CONTENT_TYPE, &git);
            response.body(endless(first.into(), again.into(), shared)).unwrap()
        }
        Some(Fault::Redirect(base)) => {
            let to = format!("{base}{}", head.uri.path_and_query().unwrap());
            Response::builder().status(302).header(header::LOCATION, to).body(Body::empty()).unwrap()
        }
        _ if !allowed => Response::builder()
            .status(StatusCode::UNAUTHORIZED)
            .header(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")
            .body(Body::empty())
            .unwrap(),
        other => {
            let (status, headers, body) = backend(&shared.root, &head, body, version_zero).await;
            let body = match other {
                Some(Fault::Drip(every)) => drip(body, every),
                Some(Fault::Truncate(length)) => Body::from(body.slice(..length.min(body.len()))),
                Some(Fault::Scramble(seed)) => scrambled(body, seed),
                _ => {
                    shared.levers.lock().counts.bytes_out += body.len();
                    Body::from(body)
                }
            };
            let mut response = Response::builder().status(status).body(body).unwrap();
            *response.headers_mut() = headers;
            response
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn scrambled(body: Bytes, seed: u64) -> Body {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut body = body.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..body.len());
        body[at] = random.u8(..);
    }
    Body::from(body)
}

fn endless(first: Bytes, again: Bytes, shared: Arc<Shared>) -> Body {
    let pieces = futures::stream::unfold(first, move |piece| {
        shared.levers.lock().counts.bytes_out += piece.len();
        let again = again.clone();
        async move { Some((Ok::<_, Infallible>(piece), again)) }
    });
    Body::from_stream(pieces)
}

fn drip(body: Bytes, every: Duration) -> Body {
    let bytes = futures::stream::unfold(0, move |at| {
        let byte = (at < body.len()).then(|| body.slice(at..=at));
        async move {
            tokio::time::sleep(every).await;
            byte.map(|byte| (Ok::<_, Infallible>(byte), at + 1))
        }
    });
    Body::from_stream(bytes)
}

/// Runs `git http-backend` for one request.
async fn backend(
    root: &Path,
    head: &axum::http::request::Parts,
    body: Bytes,
    version_zero: bool,
) -> (StatusCode, HeaderMap, Bytes) {
    let text = |name: header::HeaderName| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let mut command = crate::isolated_async("git");
    command
        .arg("http-backend")
        .env("HOME", root)
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", head.method.as_str())
        .env("CONTENT_TYPE", text(header::CONTENT_TYPE))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if !version_zero {
        command.env("GIT_PROTOCOL", text(header::HeaderName::from_static("git-protocol")));
    }
    let mut child = command.spawn().expect("`git` is installed (apt-get install git)");
    let mut stdin = child.stdin.take().unwrap();
    let write = async move {
        // A server that refuses early does not read its input, so the write may fail.
        let _ = stdin.write_all(&body).await;
        drop(stdin);
    };
    let ((), output) = tokio::join!(write, child.wait_with_output());
    let output = Bytes::from(output.unwrap().stdout);
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("CGI answers headers");
    let mut status = StatusCode::OK;
    let mut headers = HeaderMap::new();
    for line in std::str::from_utf8(&output[..end]).unwrap().split("\r\n") {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            status = value.split(' ').next().unwrap().parse().unwrap();
        } else {
            headers.insert(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
    }
    (status, headers, output.slice(end + 4..))
}
