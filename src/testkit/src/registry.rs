//! A proxy server in front of a registry, with fault injection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use parking_lot::Mutex;

pub use super::docker_registry::{DockerRegistry, PASSWORD, Served, USER};

/// An injected fault, which replaces or changes the response of the registry.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server responds with this status, with the request's credentials in the body.
    Status(u16),
    /// The server responds with this status and a code of the specification.
    Code(u16, &'static str),
    /// The server redirects to the same path and query at this base URL.
    Redirect(String),
    /// The server responds with 200 and this body.
    Answer(String),
    /// The server sends a different body of the same length.
    OtherBytes,
    /// The server returns a different digest in the header.
    OtherDigest,
    /// The server requires a token from this token server.
    TokenFrom(String),
    /// The server sends one byte of the real response per interval.
    Drip(Duration),
    /// The server never responds.
    Stall,
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub authorization: Option<String>,
}

#[derive(Default)]
struct Levers {
    /// Each fault with the method and a part of the path of affected requests, and the remaining number of requests.
    faults: Vec<(Method, &'static str, Fault, usize)>,
    bearer: bool,
    seen: Vec<Seen>,
}

struct Shared {
    backend: String,
    levers: Mutex<Levers>,
    client: reqwest::Client,
}

/// A server in front of a registry. The server stops when this value is dropped.
pub struct Front {
    address: SocketAddr,
    shared: Arc<Shared>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The token that the token server issues.
const TOKEN: &str = "token-of-this-test";

impl Front {
    pub async fn of(registry: &DockerRegistry) -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let backend = format!("http://{}", registry.host());
        let shared = Arc::new(Shared { backend, levers: Mutex::default(), client });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, serving }
    }

    /// Returns `127.0.0.1:PORT`, as in image names.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Requires tokens of this server from now on. A client obtains tokens with user name and password.
    pub fn want_tokens(&self) {
        self.levers().bearer = true;
    }

    /// Fails the next requests with this method and `part` in their path.
    pub fn fail(&self, method: Method, part: &'static str, fault: Fault, times: usize) {
        self.levers().faults.push((method, part, fault, times));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.levers().faults.clear();
    }

    /// Returns the requests since the last call.
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.levers().seen)
    }

    fn levers(&self) -> parking_lot::MutexGuard<'_, Levers> {
        self.shared.levers.lock()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let host = head.headers[header::HOST].to_str().unwrap().to_owned();
    let given = head.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let (fault, wants_token) = {
        let mut levers = shared.levers.lock();
        levers.seen.push(Seen { line: format!("{} {}", head.method, head.uri), authorization: given.clone() });
        let hit = levers.faults.iter().position(|(method, part, ..)| *method == head.method && path.contains(part));
        let fault = hit.map(|at| {
            levers.faults[at].3 -= 1;
            if levers.faults[at].3 == 0 { levers.faults.remove(at).2 } else { levers.faults[at].2.clone() }
        });
        (fault, levers.bearer)
    };
    let plain = |status: u16, body: String| Response::builder().status(status).body(Body::from(body)).unwrap();
    let challenge = |realm: &str| {
        let value = format!("Bearer realm=\"{realm}\",service=\"tests\",scope=\"repository:x:pull\"");
        Response::builder().status(401).header(header::WWW_AUTHENTICATE, value).body(Body::empty()).unwrap()
    };
    match &fault {
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::Status(status)) => return plain(*status, given.unwrap_or_default()),
        Some(Fault::Code(status, code)) => {
            return plain(*status, format!("{{\"errors\":[{{\"code\":\"{code}\",\"message\":\"{given:?}\"}}]}}"));
        }
        Some(Fault::Answer(body)) => return plain(200, body.clone()),
        Some(Fault::Redirect(base)) => {
            let to = format!("{base}{}", head.uri);
            return Response::builder().status(307).header(header::LOCATION, to).body(Body::empty()).unwrap();
        }
        Some(Fault::TokenFrom(realm)) => return challenge(realm),
        _ => {}
    }
    if path == "/token" {
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
        let right = given.as_deref() == Some(&basic);
        let token = format!("{{\"token\":\"{TOKEN}\",\"expires_in\":300}}");
        return if right { plain(200, token) } else { plain(401, given.unwrap_or_default()) };
    }
    if wants_token && given.as_deref() != Some(&format!("Bearer {TOKEN}")) {
        return challenge(&format!("http://{host}/token"));
    }
    let (status, mut headers, bytes) = forward(&shared, &head, body).await;
    let body = match fault {
        Some(Fault::OtherBytes) => Body::from(vec![b'x'; bytes.len()]),
        Some(Fault::Drip(every)) => drip(bytes, every),
        _ => Body::from(bytes),
    };
    if matches!(fault, Some(Fault::OtherDigest)) {
        let other = format!("sha256:{}", "0".repeat(64));
        headers.insert("docker-content-digest", other.parse().unwrap());
    }
    let mut response = Response::builder().status(status).body(body).unwrap();
    *response.headers_mut() = headers;
    response
}

async fn forward(shared: &Shared, head: &axum::http::request::Parts, body: Body) -> (StatusCode, HeaderMap, Bytes) {
    let mut headers = head.headers.clone();
    headers.remove(header::AUTHORIZATION);
    let body = axum::body::to_bytes(body, 256 << 20).await.unwrap();
    let request = shared.client.request(head.method.clone(), format!("{}{}", shared.backend, head.uri));
    let response = request.headers(headers).body(body).send().await.unwrap();
    let (status, mut headers) = (response.status(), response.headers().clone());
    headers.remove(header::TRANSFER_ENCODING);
    let bytes = response.bytes().await.unwrap();
    (status, headers, bytes)
}

fn drip(body: Bytes, every: Duration) -> Body {
    let bytes = futures::stream::unfold(0, move |at| {
        let byte = (at < body.len()).then(|| body.slice(at..=at));
        async move {
            tokio::time::sleep(every).await;
            byte.map(|byte| (Ok::<_, std::convert::Infallible>(byte), at + 1))
        }
    });
    Body::from_stream(bytes)
}
