//! The listener, and what follows the objects.
//!
//! Invariant: clients cost a bounded number of connections; a request head has a deadline.
//! Invariant: a change of an object counts as soon as the server has it, as a whole.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::check::{self, Step};
use super::decide::{Allowed, Asked, Decision, decide};
use super::forward::{Body, From, lead};
use super::jwt;
use super::keys::Keys;
use super::pattern::Patterns;
use super::rule::Rule;
use super::table::{KINDS, Table};
use devcluster_apiserver::server::Server;

/// Connections at a time; more wait.
const CONNECTIONS: usize = 1024;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(30);
/// The pause after a connection could not be accepted.
const AGAIN: Duration = Duration::from_millis(50);

/// A gateway that is being served; it ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Shared {
    server: Server,
    table: RwLock<Table>,
    patterns: Patterns,
    keys: Keys,
    permits: Arc<Semaphore>,
}

impl Gateway {
    /// Serves the hosts of a cluster at an address, which must be one of this machine alone; port 0 takes a free one. On
    /// 127.0.0.1, the same port of ::1 is listened on too if that is possible. Needs a running tokio runtime.
    ///
    /// # Errors
    /// The address is not loopback, or is taken.
    pub async fn start(server: &Server, address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a gateway listens on loopback addresses only"));
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: server.clone(),
            table: RwLock::default(),
            patterns: Patterns::default(),
            keys: Keys::default(),
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
        });
        let mut tasks =
            vec![tokio::spawn(follow(Arc::clone(&shared))), tokio::spawn(accept(Arc::clone(&shared), listener))];
        // Names below `localhost` lead to both.
        if address.ip().is_ipv4()
            && let Ok(other) = TcpListener::bind((Ipv6Addr::LOCALHOST, address.port())).await
        {
            tasks.push(tokio::spawn(accept(shared, other)));
        }
        Ok(Self { address, tasks })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Keeps the table as the objects are.
async fn follow(shared: Arc<Shared>) {
    let mut subscription = shared.server.subscribe();
    *shared.table.write() = all(&shared.server);
    loop {
        let batch = subscription.next().await;
        if batch.missed {
            *shared.table.write() = all(&shared.server);
        }
        for event in batch.events {
            if KINDS.iter().any(|(storage, ..)| **storage == *event.storage) {
                let object = event.new.as_ref().map(|stored| stored.value());
                let (namespace, name) = (event.key.namespace(), event.key.name());
                shared.table.write().set(&event.storage, namespace, name, object.as_deref());
            }
        }
    }
}

fn all(server: &Server) -> Table {
    let mut table = Table::default();
    for (storage, version, plural) in KINDS {
        for object in server.objects(version, plural, None) {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            table.set(storage, &text("namespace"), &text("name"), Some(&object));
        }
    }
    table
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok(permit) = Arc::clone(&shared.permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    serve(shared, stream, client).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the gateway could not accept a connection");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, client: SocketAddr) {
    let _ = stream.set_nodelay(true);
    let answering = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(answer(&shared, client, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // However it ends, it is over.
    let _ = builder.serve_connection(TokioIo::new(stream), answering).await;
}

async fn answer(shared: &Shared, client: SocketAddr, request: Request<Incoming>) -> Response<Body> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let path = request.uri().path();
    let asked = Asked { method: request.method(), path, headers: request.headers(), authority };
    let host = asked.host().unwrap_or_default();
    let decision = decide(&shared.table.read(), &shared.patterns, &asked);
    let id = request.headers().get("x-request-id").cloned();
    let open = |is_checked: bool| From { client: client.ip(), host: &host, is_checked };
    let (answered, allowed) = match decision {
        Decision::Nowhere => (empty(StatusCode::NOT_FOUND), None),
        Decision::Ambiguous => (empty(StatusCode::BAD_REQUEST), None),
        Decision::Preflight(allowed) => {
            let mut answer = empty(StatusCode::OK);
            set(answer.headers_mut(), ACCESS_CONTROL_ALLOW_METHODS, &allowed.methods);
            set(answer.headers_mut(), ACCESS_CONTROL_ALLOW_HEADERS, &allowed.headers);
            (answer, Some(allowed))
        }
        Decision::Open(target, allowed) => (whole(lead(&shared.server, &target, open(false), request).await), allowed),
        Decision::Refused(status, allowed) => (refused(status, id.as_ref()), allowed),
        Decision::Guarded(rule, allowed) => {
            let refusal = checked(shared, &rule, request.headers(), request.uri().query()).await;
            let answer = match refusal {
                Some(status) => refused(status, id.as_ref()),
                None => whole(lead(&shared.server, &rule.target, open(true), request).await),
            };
            (answer, allowed)
        }
    };
    with_origin(answered, allowed)
}

/// The status by which the checks of a Rule refuse a request, if they do.
async fn checked(shared: &Shared, rule: &Rule, headers: &HeaderMap, query: Option<&str>) -> Option<u16> {
    let (config, token) = match check::step(rule, headers, query) {
        Step::Pass => return None,
        Step::Refuse(status) => return Some(status),
        Step::Token { config, token } => (config, token),
    };
    let Some(key) = jwt::read(&token).map(|token| token.key) else { return Some(401) };
    for address in check::key_addresses(&config) {
        let keys = shared.keys.at(&shared.server, &address, &key).await;
        let now = shared.server.now().as_second();
        if check::is_good(&token, &config, &keys, now) {
            return if rule.does_allow { None } else { Some(403) };
        }
    }
    Some(401)
}

/// What Oathkeeper answers instead.
fn refused(status: u16, id: Option<&HeaderValue>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = match status.as_u16() {
        401 => "The request could not be authorized",
        403 => "The requested action was forbidden",
        404 => "The requested resource could not be found",
        _ => "An internal server error occurred, please contact the system administrator",
    };
    let reason = status.canonical_reason().unwrap_or_default();
    let mut error = json!({"code": status.as_u16(), "status": reason});
    if let Some(id) = id.and_then(|id| id.to_str().ok()) {
        error["request"] = id.into();
    }
    error["message"] = message.into();
    let body = format!("{}\n", json!({"error": error}));
    let mut answer = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    set(answer.headers_mut(), CONTENT_TYPE, "application/json");
    answer
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(None);
    *answer.status_mut() = status;
    whole(answer)
}

fn whole(answer: Response<Option<Body>>) -> Response<Body> {
    let none = || Full::default().map_err(|never| match never {}).boxed_unsync();
    answer.map(|body| body.unwrap_or_else(none))
}

fn with_origin(mut answer: Response<Body>, allowed: Option<Allowed>) -> Response<Body> {
    if let Some(allowed) = allowed {
        set(answer.headers_mut(), ACCESS_CONTROL_ALLOW_ORIGIN, &allowed.origin);
        answer.headers_mut().append(VARY, HeaderValue::from_name(ORIGIN));
    }
    answer
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
