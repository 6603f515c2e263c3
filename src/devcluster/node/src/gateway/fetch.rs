//! Asks issuers.
//!
//! Invariant: addresses of this machine's network link, where clouds hand out credentials, are not asked; no answer is followed to
//! another address.
//!
//! Deliberately absent: HTTPS. An issuer is asked over `http:`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::forward::addresses;
use super::target::Target;
use devcluster_apiserver::server::Server;

/// Bytes of an answer.
pub(super) const MOST: usize = 256 << 10;

/// What an address answers with success, to a form or without one. Whoever calls sets the deadline.
pub(super) async fn ask(server: &Server, address: &http::Uri, form: Option<String>) -> Option<Bytes> {
    if address.scheme_str() != Some("http") {
        return None;
    }
    let (host, port) = (address.host()?, address.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(resolve(server, host, port).await?).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It ends with the answer.
    tokio::spawn(connection);
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    // The name and the password in an address are for nobody else.
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

/// The address of a Service's pod, or of another host.
async fn resolve(server: &Server, host: &str, port: u16) -> Option<SocketAddr> {
    if host.contains(".svc") {
        return addresses(server, &Target::named(host, port, "")?).into_iter().next();
    }
    // Not every machine knows these names.
    if host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost") {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = tokio::net::lookup_host((host, port)).await.ok()?;
    found.find(|address| !is_link_local(address.ip()))
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.is_unspecified() || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_where_clouds_hand_out_credentials_are_not_asked() {
        let is = |text: &str| is_link_local(text.parse().unwrap());
        for bad in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0"] {
            assert!(is(bad), "{bad}");
        }
        assert!(!is("127.0.0.1") && !is("10.0.0.1") && !is("::1"));
    }
}
