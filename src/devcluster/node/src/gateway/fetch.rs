//! HTTP requests to issuers.
//!
//! Invariant: an address inside the cluster or this machine is requested only if its host is permitted (`reach`).
//! Redirects are not followed.
//!
//! Not here: HTTPS. Issuers are requested over `http:`.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::forward::addresses;
use super::reach::{Reach, may_ask};
use super::target::Target;
use devcluster_apiserver::server::Server;

/// Maximum size of a response in bytes.
pub(super) const MOST: usize = 256 << 10;

/// Returns the body of a successful response; POSTs `form` if there is one. The caller sets the deadline.
pub(super) async fn ask(server: &Server, reach: &Reach, address: &http::Uri, form: Option<String>) -> Option<Bytes> {
    if address.scheme_str() != Some("http") {
        return None;
    }
    let (host, port) = (address.host()?, address.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(resolve(server, reach, host, port).await?).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    // The task ends with the response.
    tokio::spawn(connection);
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    // User name and password of the URL must not be sent in the header Host.
    let host = address.authority()?.as_str().rsplit('@').next()?;
    let method = if form.is_some() { Method::POST } else { Method::GET };
    let mut request = Request::builder().method(method).uri(path).header(HOST, host).header(ACCEPT, "application/json");
    if form.is_some() {
        request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    let body = Full::new(Bytes::from(form.unwrap_or_default()));
    let answer = sender.send_request(request.body(body).ok()?).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    Some(Limited::new(answer.into_body(), MOST).collect().await.ok()?.to_bytes())
}

/// Resolves a host to a pod of a Service, or by DNS.
async fn resolve(server: &Server, reach: &Reach, host: &str, port: u16) -> Option<SocketAddr> {
    let is_permitted = reach.permits(host, port);
    if let Some(target) = Target::named(host, port, "") {
        return addresses(server, &target).into_iter().find(|address| may_ask(address.ip(), is_permitted));
    }
    // Some systems do not resolve these names.
    if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
        return is_permitted.then_some((Ipv4Addr::LOCALHOST, port).into());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = tokio::net::lookup_host((host, port)).await.ok()?;
    found.find(|address| may_ask(address.ip(), is_permitted))
}
