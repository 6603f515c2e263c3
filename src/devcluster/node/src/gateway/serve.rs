//! The gateway's listeners, and its table of routes.
//!
//! Invariant: the number of connections is bounded, and a request head has a deadline.
//! Invariant: a change of an object takes effect atomically as soon as the API server stored it.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use loopback::{Listener, web};
use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::answer::{empty, foreign, json as as_json, refused, set, whole, with_origin};
use super::authority::Authority;
use super::decide::{Asked, Decision, decide};
use super::forward::{Body, From, lead};
use super::issuer::{self, Issuer};
use super::pattern::Patterns;
use super::reach::Reach;
use super::serving;
use super::table::{KINDS, Table};
use super::verify::Issuers;
use devcluster_apiserver::server::Server;

/// Maximum number of connections; further ones wait.
const CONNECTIONS: usize = 1024;
/// Deadline of a request head.
const HEAD: Duration = Duration::from_secs(30);
/// Maximum size of an introspection form in bytes.
const FORM: usize = 32 << 10;
/// Delay after a failed accept.
const AGAIN: Duration = Duration::from_millis(50);

/// A running gateway. Dropping the value ends the gateway.
pub struct Gateway {
    address: SocketAddr,
    shared: Arc<Shared>,
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
    issuers: Issuers,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gateway({})", self.address)
    }
}

impl Gateway {
    /// Serves a cluster's hosts at a loopback address; port 0 selects a free port. For 127.0.0.1, the gateway also
    /// listens on the same port of ::1 if possible.
    ///
    /// Needs a running tokio runtime.
    ///
    /// # Errors
    /// The address is not loopback or in use.
    pub async fn start(server: &Server, address: SocketAddr) -> io::Result<Self> {
        Self::start_with(server, address, None, &[]).await
    }

    /// Like `start`, with an issuer. The gateway serves the endpoints of this issuer, and authenticators that name no
    /// issuer use it. Other issuers are requested at public addresses, and at the internal URLs in `inside`, such as
    /// `http://dex.auth.svc:5556`.
    ///
    /// # Errors
    /// The address is not loopback or in use.
    #[expect(clippy::unused_async, reason = "it needs a runtime, which only a caller that waits is sure to have")]
    pub async fn start_with(
        server: &Server,
        address: SocketAddr,
        issuer: Option<Issuer>,
        inside: &[String],
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            server: server.clone(),
            table: RwLock::default(),
            patterns: Patterns::default(),
            issuers: Issuers::new(issuer, Reach::new(inside)),
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
        });
        let mut gateway = Self { address, shared: Arc::clone(&shared), tasks: Vec::new() };
        gateway.address = gateway.listen(address, None)?;
        gateway.tasks.push(tokio::spawn(follow(shared)));
        Ok(gateway)
    }

    /// Also serves the hosts over HTTPS at another loopback address; port 0 selects a free port. Returns that address
    /// and the authority's certificate as PEM. The authority's key is in memory only.
    ///
    /// # Errors
    /// The address is not loopback or in use, or a key cannot be generated.
    #[expect(clippy::unused_async, reason = "it needs a runtime, which only a caller that waits is sure to have")]
    pub async fn secure(&mut self, address: SocketAddr) -> io::Result<(SocketAddr, String)> {
        let authority = Authority::new()?;
        let pem = authority.pem().to_owned();
        let hosts = Hosts { authority, shared: Arc::clone(&self.shared) };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_no_client_auth().with_cert_resolver(Arc::new(hosts));
        let address = self.listen(address, Some(Arc::new(config).into()))?;
        Ok((address, pem))
    }

    fn listen(&mut self, address: SocketAddr, secure: Option<TlsAcceptor>) -> io::Result<SocketAddr> {
        if !address.ip().is_loopback() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a gateway listens on loopback addresses only"));
        }
        let listener = Listener::bind(address, loopback::Reach::SameUser)?;
        let address = listener.local_addr()?;
        let mut all = vec![listener];
        // Names below `localhost` resolve to 127.0.0.1 and to ::1.
        if address.ip().is_ipv4()
            && let Ok(other) = Listener::bind((Ipv6Addr::LOCALHOST, address.port()).into(), loopback::Reach::SameUser)
        {
            all.push(other);
        }
        let accepting = |one| tokio::spawn(accept(Arc::clone(&self.shared), one, secure.clone()));
        self.tasks.extend(all.into_iter().map(accepting).collect::<Vec<_>>());
        Ok(address)
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The certificates of the served hosts.
struct Hosts {
    authority: Authority,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Hosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hosts")
    }
}

impl ResolvesServerCert for Hosts {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        // No certificate for a host that the gateway does not serve.
        let is_ours = host.ends_with(".localhost") || self.shared.table.read().has(&host);
        self.authority.leaf(if is_ours { &host } else { "localhost" })
    }
}

/// Updates the table from the event log.
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

async fn accept(shared: Arc<Shared>, listener: Listener, secure: Option<TlsAcceptor>) {
    loop {
        let Ok(permit) = Arc::clone(&shared.permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                let (shared, secure) = (Arc::clone(&shared), secure.clone());
                tokio::spawn(async move {
                    greet(shared, stream, client, secure).await;
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

async fn greet(shared: Arc<Shared>, stream: TcpStream, client: SocketAddr, secure: Option<TlsAcceptor>) {
    let _ = stream.set_nodelay(true);
    let Some(secure) = secure else { return serve(shared, stream, client, false).await };
    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD, secure.accept(stream)).await {
        serve(shared, stream, client, true).await;
    }
}

async fn serve<S>(shared: Arc<Shared>, mut stream: S, client: SocketAddr, is_secure: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answering = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        let has_body = !request.body().is_end_stream();
        async move {
            let response = answer(&shared, client, is_secure, request).await;
            Ok::<_, std::convert::Infallible>(loopback::last_of_connection(has_body, response))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // The result does not matter: the connection is closed.
    let _ = builder.serve_connection(TokioIo::new(&mut stream), answering).await;
    loopback::finish(stream).await;
}

async fn answer(shared: &Shared, client: SocketAddr, is_secure: bool, request: Request<Incoming>) -> Response<Body> {
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    let path = request.uri().path();
    let asked = Asked { method: request.method(), path, headers: request.headers(), authority };
    let host = asked.host().unwrap_or_default();
    let of_page = web::judge_page(request.method(), &host, request.headers());
    if let Some(own) = shared.issuers.own().filter(|_| host == issuer::HOST) {
        return match of_page {
            Ok(()) => issued(shared, own, request).await,
            Err(refusal) => foreign(&refusal),
        };
    }
    let decision = decide(&shared.table.read(), &shared.patterns, &asked);
    // A page of another site may send requests only as far as the route's CORS policy allows it.
    if !decision.is_for_others()
        && let Err(refusal) = of_page
    {
        return foreign(&refusal);
    }
    let id = request.headers().get("x-request-id").cloned();
    let open = |is_checked: bool| From { client: client.ip(), host: &host, is_secure, is_checked };
    let (answered, allowed) = match decision {
        Decision::Nowhere => match serving::of_host(&shared.server, &host, fastrand::u64(..100)) {
            Some(revision) => {
                let asked = serving::Asked { revision, from: open(false) };
                (serving::answer(&shared.server, asked, request).await, None)
            }
            None => (empty(StatusCode::NOT_FOUND), None),
        },
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
            let (headers, query) = (request.headers(), request.uri().query());
            let refusal = shared.issuers.refusal(&shared.server, &rule, headers, query).await;
            let answer = match refusal {
                Some(status) => refused(status, id.as_ref()),
                None => whole(lead(&shared.server, &rule.target, open(true), request).await),
            };
            (answer, allowed)
        }
    };
    with_origin(answered, allowed)
}

/// Serves the endpoints of the gateway's own issuer.
async fn issued(shared: &Shared, own: &Issuer, request: Request<Incoming>) -> Response<Body> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, issuer::KEYS) => as_json(&json!({"keys": own.keys()})),
        (&Method::POST, issuer::INTROSPECT) => {
            let form = tokio::time::timeout(HEAD, Limited::new(request.into_body(), FORM).collect()).await;
            let Ok(Ok(form)) = form else { return empty(StatusCode::BAD_REQUEST) };
            let form = form.to_bytes();
            let mut fields = std::str::from_utf8(&form).unwrap_or_default().split('&');
            // This issuer's tokens have no characters that a form encodes.
            let token = fields.find_map(|field| field.strip_prefix("token="));
            token.map_or_else(
                || empty(StatusCode::BAD_REQUEST),
                |token| as_json(&own.introspect(token, shared.server.now().as_second())),
            )
        }
        (_, issuer::KEYS | issuer::INTROSPECT) => empty(StatusCode::METHOD_NOT_ALLOWED),
        _ => empty(StatusCode::NOT_FOUND),
    }
}
