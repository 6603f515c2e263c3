//! `pods/proxy`, `services/proxy` and `nodes/proxy`: requests that are forwarded to a pod.
//!
//! [`place`] finds the pod, [`headers`] selects the forwarded parts of a request and its response, and [`carry`]
//! forwards them.
//!
//! Invariant: the proxy connects only to addresses that this cluster's node assigned to pods that it runs now. Other
//! addresses in the API, which clients may have written, are never used.
//! Invariant: at most one chunk of a response is in memory. A response without data is cut off after the idle timeout.
//!
//! Not here: TLS to pods (`https:` is refused), rewriting of links in HTML pages, and kubelets: the node listens on no
//! port.

mod carry;
mod fault;
mod headers;
mod place;

use super::{
    request::Asked,
    respond,
    settings::{admit, answered, settings},
};
use crate::{
    body::Body,
    route::decode_path,
    server::Server,
    status::Status,
    verbs::{self, Target},
};
use http::{HeaderValue, Method, Response, header};
use http_body_util::{BodyExt as _, Empty};

use self::fault::unreachable;
use self::headers::Links;
use self::place::Place;

/// Returns whether a subresource is a proxy or a path below it.
pub(super) fn is_proxy(subresource: &str) -> bool {
    subresource == "proxy" || subresource.starts_with("proxy/")
}

/// Answers a proxy request to a pod, service or node.
pub(super) async fn answer(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let known = [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    if !known.contains(&asked.parts.method) {
        return Err(respond::method_not_allowed());
    }
    if asked.query.all("dryRun").next().is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let wanted = wanted_path(target, asked.parts.uri.path());
    let settings = settings(server, asked, "CreateOptions")?;
    let options = verbs::connect::proxy_options(&target.kind.kind, &wanted);
    let (outcome, warnings) = admit(server, target, &settings, "CONNECT", options).await;
    let outcome = match outcome {
        Ok(_) => pass_on(server, target, asked, &wanted).await,
        Err(status) => Err(status),
    };
    Ok(answered(outcome, &warnings))
}

/// Returns the decoded path below the proxy: empty, or with a leading slash.
fn wanted_path(target: &Target, path: &str) -> String {
    // `api/v1/namespaces/n/services/s/proxy` or `api/v1/nodes/n/proxy`.
    let parts = if target.namespace.is_empty() { 5 } else { 7 };
    let mut known = 0;
    let below: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .skip_while(|part| {
            known += usize::from(!part.is_empty());
            known <= parts
        })
        .map(decode_path)
        .collect();
    let mut wanted: String = below.iter().flat_map(|part| ["/", part.as_str()]).collect();
    if path.ends_with('/') && !wanted.ends_with('/') {
        wanted.push('/');
    }
    wanted
}

async fn pass_on(server: &Server, target: &Target, asked: &Asked, wanted: &str) -> Result<Response<Body>, Status> {
    let place = place::find(server, target)?;
    let asked_path = asked.parts.uri.path();
    let is_upgrade = headers::is_upgrade(&asked.parts.headers);
    let mut path = headers::cleaned(wanted);
    if asked_path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    if path.is_empty() && !is_upgrade && matches!(asked.parts.method, Method::GET | Method::HEAD) {
        return Ok(to_folder(asked));
    }
    let root = root_of(target);
    let links = Links { root: &root, pod: &place.host, client: asked.header(header::HOST) };
    let address = reachable(&place)?;
    carry::carry(asked, address, &place, &headers::encoded(&path), is_upgrade, &links).await
}

/// Returns the path of the proxy, which clients see as the root of the program.
fn root_of(target: &Target) -> String {
    let namespace =
        if target.namespace.is_empty() { String::new() } else { format!("namespaces/{}/", target.namespace) };
    format!("/api/v1/{namespace}{}/{}/proxy", target.kind.plural, target.name)
}

/// Returns the address of the target pod; 503 if the cluster does not run the pod.
fn reachable(place: &Place) -> Result<std::net::SocketAddr, Status> {
    let refuse = |why: String| Err(unreachable(&why));
    if place.scheme == "https" {
        return refuse(format!("dial tcp {}: this server speaks no TLS to pods", place.host));
    }
    let port = match place.port.parse::<u64>().map(u16::try_from) {
        _ if place.port.is_empty() => 80,
        Ok(Ok(port)) => port,
        Ok(Err(_)) => return refuse(format!("dial tcp: address {}: invalid port", place.port)),
        Err(_) => return refuse(format!("dial tcp: lookup tcp/{}: unknown port", place.port)),
    };
    match place.pod {
        Some(address) => Ok((address, port).into()),
        None => refuse(format!("dial tcp {}: connect: no route to host", place.host)),
    }
}

/// Redirects to a path with a trailing slash. Otherwise, relative links would point outside the proxy.
fn to_folder(asked: &Asked) -> Response<Body> {
    let query = asked.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = http::StatusCode::MOVED_PERMANENTLY;
    if let Ok(folder) = HeaderValue::from_str(&format!("{}/{query}", asked.parts.uri.path())) {
        response.headers_mut().insert(header::LOCATION, folder);
    }
    response
}
