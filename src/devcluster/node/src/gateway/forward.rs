//! Forwards a request to a ready endpoint of a Service.
//!
//! Invariant: only loopback endpoints are connected to. They belong to pods that are processes of this machine.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use loopback::web;
use tokio::net::TcpStream;

use super::target::Target;
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::Server;

/// How long to wait for an endpoint, and the interval between attempts.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// Deadline of an endpoint's response head.
const DEADLINE: Duration = Duration::from_secs(180);

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// Returns the ready endpoints of a Service's port.
pub(super) fn addresses(server: &Server, target: &Target) -> Vec<SocketAddr> {
    let Some(service) = server.object("v1", "services", &target.namespace, &target.service) else { return Vec::new() };
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(port) = ports.find(|port| port["port"] == target.port) else { return Vec::new() };
    let name = port["name"].as_str().unwrap_or_default();
    let Some(endpoints) = server.object("v1", "endpoints", &target.namespace, &target.service) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let mut ports = subset["ports"].as_array().into_iter().flatten();
        let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == name);
        let Some(port) = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok()) else { continue };
        let ready = subset["addresses"].as_array().into_iter().flatten();
        let ready = ready.filter_map(|address| text(address, "/ip").parse::<IpAddr>().ok());
        found.extend(ready.filter(IpAddr::is_loopback).map(|address| SocketAddr::new(address, port)));
    }
    fastrand::shuffle(&mut found);
    found
}

/// Returns the ready endpoints of a Service's port on this machine, in random order.
pub fn ready_endpoints(server: &Server, namespace: &str, service: &str, port: u16) -> Vec<SocketAddr> {
    addresses(server, &Target::new(namespace, service, port))
}

/// The origin of a request.
pub(super) struct From<'r> {
    pub(super) client: IpAddr,
    /// The requested host.
    pub(super) host: &'r str,
    /// Whether the request arrived over TLS.
    pub(super) is_secure: bool,
    /// Whether the header Host becomes the Service's name, as behind Oathkeeper's proxy.
    pub(super) is_checked: bool,
}

/// Whether a host is the name of a Service of this cluster.
pub(crate) fn is_service(server: &Server, host: &str) -> bool {
    let is_namespace = |name: &str| server.object("v1", "namespaces", "", name).is_some();
    web::is_in_cluster(host) || host.split_once('.').is_some_and(|(_, namespace)| is_namespace(namespace))
}

/// Forwards a request to a Service. Without a reachable endpoint: 503, or 502 from Oathkeeper's proxy.
pub(super) async fn lead(
    server: &Server,
    target: &Target,
    from: From<'_>,
    request: Request<Incoming>,
) -> Response<Option<Body>> {
    let unreachable = if from.is_checked { StatusCode::BAD_GATEWAY } else { StatusCode::SERVICE_UNAVAILABLE };
    let Some(stream) = connect(server, target).await else { return bare(unreachable) };
    let Ok((mut sender, connection)) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await else {
        return bare(unreachable);
    };
    // The task ends with the response.
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned();
    parts.uri = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    parts.version = http::Version::HTTP_11;
    set_headers(&mut parts.headers, target, &from);
    let request = Request::from_parts(parts, body);
    match tokio::time::timeout(DEADLINE, sender.send_request(request)).await {
        Err(_) => bare(StatusCode::GATEWAY_TIMEOUT),
        Ok(Err(_)) => bare(unreachable),
        Ok(Ok(answer)) => {
            let mut answer = answer.map(|body| Some(body.boxed_unsync()));
            remove_hops(answer.headers_mut());
            answer
        }
    }
}

async fn connect(server: &Server, target: &Target) -> Option<TcpStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        for address in addresses(server, target) {
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
                // Otherwise small requests wait for acknowledgements.
                let _ = stream.set_nodelay(true);
                return Some(stream);
            }
        }
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn set_headers(headers: &mut HeaderMap, target: &Target, from: &From<'_>) {
    forwarded(headers, from);
    web::mark(headers);
    if from.is_checked
        && let Ok(host) = HeaderValue::from_str(&target.host())
    {
        headers.insert(HOST, host);
    }
}

/// Sets the forwarding headers and removes hop-by-hop headers.
pub(super) fn forwarded(headers: &mut HeaderMap, from: &From<'_>) {
    const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    remove_hops(headers);
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(HeaderName::from_static("x-forwarded-host"), from.host);
    set(HeaderName::from_static("x-forwarded-proto"), if from.is_secure { "https" } else { "http" });
    let before = headers.get(&FORWARDED_FOR).and_then(|value| value.to_str().ok());
    let all = before.map_or_else(|| from.client.to_string(), |before| format!("{before}, {}", from.client));
    if let Ok(all) = HeaderValue::from_str(&all) {
        headers.insert(FORWARDED_FOR, all);
    }
    if !headers.contains_key(&REQUEST_ID)
        && let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
    {
        headers.insert(REQUEST_ID, id);
    }
}

/// Removes hop-by-hop headers.
pub(super) fn remove_hops(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization"] {
        headers.remove(name);
    }
}

fn bare(status: StatusCode) -> Response<Option<Body>> {
    let mut answer = Response::new(None);
    *answer.status_mut() = status;
    answer
}
