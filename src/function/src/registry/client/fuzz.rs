//! Fuzz targets for untrusted input. Each accepts any bytes, terminates quickly, does not panic, and checks its
//! invariants.

use std::io;
use std::sync::LazyLock;

use reqwest::header::{self, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use tokio::runtime::{Builder, Runtime};

use super::challenge::{Challenge, challenge};
use super::send::{allowed, location};
use super::token::token_of;
use super::{Client, Deadlines, Fault, Rights};
use crate::registry::{Access, ImageRef, Scheme};
use mainstay_object::is_unprintable;

/// Parses the headers of a response that asks for authentication.
pub(in crate::registry) fn asked(headers: &str) {
    if let Some(Challenge::Bearer { realm, .. }) = challenge(headers.lines()) {
        assert!(realm.len() <= headers.len(), "nothing is invented");
        let Some(client) = &*CLIENT else { return };
        // The password is sent to this URL.
        assert!(client.realm(&realm).is_ok_and(|at| at.scheme() == "https") || client.realm(&realm).is_err());
    }
}

/// Parses the response of a token server.
pub(in crate::registry) fn token(body: &[u8]) {
    assert!(token_of(body).is_none_or(|(token, _)| !token.is_empty()), "a token is something");
}

/// Parses a response: its status, header lines, an empty line, and its body. The redirect target must use HTTPS and
/// contain no login. An error may contain only a known code from the response, and no other text.
pub(in crate::registry) fn answer(bytes: &[u8]) {
    let (Some(client), Ok(runtime)) = (&*CLIENT, &*RUNTIME) else { return };
    let Some(given) = response(bytes) else { return };
    if let Some(to) = location(&given, &client.origin).filter(|to| allowed(&client.origin, to).is_ok()) {
        leads_nowhere_else(&to);
    }
    if let Ok(to) = client.upload_at(&given) {
        leads_nowhere_else(&to);
    }
    let status = given.status();
    let fault = runtime.block_on(client.refused(given, "the registry"));
    let text = fault.to_string();
    assert!(text.len() <= 200 && !text.chars().any(is_unprintable), "{text:?}");
    assert!(matches!(fault, Fault::Denied { .. } | Fault::Status { .. } | Fault::Full { .. }), "{status}");
}

fn leads_nowhere_else(to: &Url) {
    assert_eq!((to.scheme(), to.username(), to.password(), to.fragment()), ("https", "", None, None), "{to}");
}

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| Builder::new_current_thread().enable_time().build());

/// A client that sends no requests.
static CLIENT: LazyLock<Option<Client>> = LazyLock::new(|| {
    let image: ImageRef = "registry.example.com:5000/shop/web:1".parse().ok()?;
    let access = Access { scheme: Scheme::Https, login: None, authorities: Vec::new() };
    Client::new(&image, access, Rights::Pull, Deadlines::default()).ok()
});

fn response(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n")?;
    let (head, body) = (std::str::from_utf8(&bytes[..end]).ok()?, bytes[end + 2..].to_vec());
    let mut lines = head.lines();
    let mut response = http::Response::new(body);
    *response.status_mut() = lines.next()?.trim().parse().ok()?;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let header = HeaderName::from_bytes(name.trim().as_bytes()).ok().zip(HeaderValue::from_str(value.trim()).ok());
        let (name, value) = header.unwrap_or((header::AGE, HeaderValue::from_static("0")));
        response.headers_mut().append(name, value);
    }
    Some(response.into())
}
