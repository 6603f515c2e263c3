//! Forwards requests to the pods of a Revision. Without pods it holds requests and triggers a scale-up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use loopback::web;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;

use super::super::forward::{Body, From, addresses, forwarded, is_service, lead, remove_hops};
use super::super::target::Target;
use super::destination::{is_led, of_service};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{is_terminating, is_true, text};
use devcluster_apiserver::server::Server;
use devcluster_apiserver::store::Key;

/// Interval of looking for a pod, and interval of requesting a pod.
const LOOK: Duration = Duration::from_millis(20);
const ASK: Duration = Duration::from_secs(1);
/// Deadline of a connection to a pod.
const PATIENCE: Duration = Duration::from_secs(2);
/// Deadline of a request head.
const HEAD: Duration = Duration::from_secs(30);
/// Default and maximum duration of a request in seconds.
const TIMEOUT: (u64, u64) = (300, 600);
/// Headers between Knative's own components.
const INTERNAL: [&str; 2] = ["knative-serving-namespace", "knative-serving-revision"];

/// A request's origin and its Revision.
pub(in crate::gateway) struct Asked<'r> {
    pub(in crate::gateway) revision: Key,
    pub(in crate::gateway) from: From<'r>,
}

/// Serves a connection to a Service.
pub(crate) async fn serve(server: Server, service: Key, port: u16, mut client: TcpStream) {
    let from = client.peer_addr().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
    let answering = service_fn(move |request: Request<Incoming>| {
        let (server, service) = (server.clone(), service.clone());
        let has_body = !request.body().is_end_stream();
        async move {
            let response = of_address(&server, &service, port, from, request).await;
            Ok::<_, std::convert::Infallible>(loopback::last_of_connection(has_body, response))
        }
    });
    let _ = client.set_nodelay(true);
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    // The result does not matter: the connection is closed.
    let _ = builder.serve_connection(TokioIo::new(&mut client), answering).await;
    loopback::finish(client).await;
}

/// Serves a request to a Service. The Service is read again, because it may have changed during the connection.
async fn of_address(
    server: &Server,
    key: &Key,
    port: u16,
    client: IpAddr,
    request: Request<Incoming>,
) -> Response<Body> {
    let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.to_owned();
    let is_known = |host: &str| is_service(server, host);
    if let Err(refusal) = web::judge(request.method(), request.uri(), request.headers(), is_known) {
        return said(StatusCode::FORBIDDEN, &format!("{refusal}\n"));
    }
    let from = From { client, host: &host, is_secure: false, is_checked: false };
    let Some(service) = server.object("v1", "services", key.namespace(), key.name()) else {
        return said(StatusCode::NOT_FOUND, "");
    };
    let target = Target::new(key.namespace(), key.name(), port);
    if is_led(&service) {
        match of_service(server, &service, fastrand::u64(..100)) {
            Some(revision) => return answer(server, Asked { revision, from }, request).await,
            None if addresses(server, &target).is_empty() => return said(StatusCode::NOT_FOUND, ""),
            // The new owner of the Service has not set a target yet, so the present endpoints still receive the
            // request.
            None => {}
        }
    }
    let answered = lead(server, &target, from, request).await;
    answered.map(|body| body.unwrap_or_else(|| whole("")))
}

/// Serves a request with a pod of its Revision.
pub(in crate::gateway) async fn answer(
    server: &Server,
    asked: Asked<'_>,
    request: Request<Incoming>,
) -> Response<Body> {
    let Asked { revision: key, from } = asked;
    let Some(revision) = server.object("serving.knative.dev/v1", "revisions", key.namespace(), key.name()) else {
        return said(StatusCode::NOT_FOUND, "");
    };
    let seconds = revision["spec"]["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT.0).clamp(1, TIMEOUT.1);
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let under_way = server.requests().begin(key.clone(), Instant::now());
    let held = tokio::time::timeout_at(end, connected(server, &key)).await;
    let mut sender = match held {
        Ok(Some(sender)) => sender,
        Ok(None) => return said(StatusCode::NOT_FOUND, ""),
        Err(Elapsed { .. }) => return said(StatusCode::GATEWAY_TIMEOUT, "activator request timeout"),
    };
    let (mut parts, body) = request.into_parts();
    forwarded(&mut parts.headers, &from);
    strip(&mut parts.headers);
    let answering = exchange(&mut sender, Request::from_parts(parts, body), under_way);
    match tokio::time::timeout_at(end, answering).await {
        Err(Elapsed { .. }) => said(StatusCode::GATEWAY_TIMEOUT, "request timeout"),
        Ok(mut answer) => {
            strip(answer.headers_mut());
            answer
        }
    }
}

/// Forwards a request to an address. `guard` is dropped at the end of the response.
pub(crate) async fn relay<G: Send + Unpin + 'static>(
    address: SocketAddr,
    request: Request<Incoming>,
    guard: G,
) -> Response<Body> {
    match connect(address).await {
        Some(mut sender) => exchange(&mut sender, request, guard).await,
        None => said(StatusCode::BAD_GATEWAY, ""),
    }
}

async fn exchange<G: Send + Unpin + 'static>(
    sender: &mut SendRequest<Incoming>,
    request: Request<Incoming>,
    guard: G,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned();
    parts.uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    parts.version = Version::HTTP_11;
    remove_hops(&mut parts.headers);
    web::mark(&mut parts.headers);
    match sender.send_request(Request::from_parts(parts, body)).await {
        Err(_) => said(StatusCode::BAD_GATEWAY, ""),
        Ok(mut answer) => {
            remove_hops(answer.headers_mut());
            answer.map(|body| Guarded { body, _guard: guard }.boxed_unsync())
        }
    }
}

async fn connect(address: SocketAddr) -> Option<SendRequest<Incoming>> {
    let stream = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await.ok()?.ok()?;
    // Otherwise small requests wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
    // The task ends with the response.
    tokio::spawn(connection);
    Some(sender)
}

fn strip(headers: &mut HeaderMap) {
    for name in INTERNAL {
        headers.remove(name);
    }
}

/// Waits for a pod that accepts a connection; `None` if the Revision was deleted.
async fn connected(server: &Server, revision: &Key) -> Option<SendRequest<Incoming>> {
    let mut asked: Option<Instant> = None;
    loop {
        for address in pods(server, revision) {
            if let Some(sender) = connect(address).await {
                return Some(sender);
            }
        }
        if asked.is_none_or(|at| at.elapsed() >= ASK) {
            server.object("serving.knative.dev/v1", "revisions", revision.namespace(), revision.name())?;
            server.requests().wait_for(revision);
            asked = Some(Instant::now());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the ready pods of a Revision in random order.
fn pods(server: &Server, revision: &Key) -> Vec<SocketAddr> {
    let service = format!("{}-private", revision.name());
    let target = Target::new(revision.namespace(), &service, 80);
    let found = addresses(server, &target);
    if !found.is_empty() {
        return found;
    }
    // A long name of the pods' Service is abbreviated, so the pods are found by their label.
    let labels = json!({"matchLabels": {"serving.knative.dev/revision": revision.name()}});
    let all = server.objects("v1", "pods", Some(revision.namespace()));
    let is_it = |pod: &&Arc<Value>| {
        hooks::selects(&labels, &pod["metadata"]["labels"]) && is_true(pod, "Ready") && !is_terminating(pod)
    };
    let address = |pod: &Arc<Value>| {
        let address: IpAddr = text(pod, "/status/podIP").parse().ok().filter(IpAddr::is_loopback)?;
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.flat_map(|one| one["ports"].as_array().into_iter().flatten());
        let port = ports.find(|port| port["name"] == "queue-port")?["containerPort"].as_u64()?;
        Some(SocketAddr::new(address, u16::try_from(port).ok()?))
    };
    let mut found: Vec<SocketAddr> = all.iter().filter(is_it).filter_map(address).collect();
    fastrand::shuffle(&mut found);
    found
}

/// Returns a response with a status and a text.
pub(crate) fn said(status: StatusCode, text: &str) -> Response<Body> {
    let mut answer = Response::new(whole(text));
    *answer.status_mut() = status;
    answer
}

fn whole(text: &str) -> Body {
    let never = |never: std::convert::Infallible| match never {};
    Full::new(Bytes::copy_from_slice(text.as_bytes())).map_err(never).boxed_unsync()
}

/// A response body that drops a guard at its end.
struct Guarded<G> {
    body: Incoming,
    _guard: G,
}

impl<G: Unpin> hyper::body::Body for Guarded<G> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
