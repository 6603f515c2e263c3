//! Rejects cross-site requests that browsers send to a port of this machine.
//!
//! A web page can send simple requests to any address (detected by `Origin` and `Sec-Fetch-Site`), and its own host
//! name can resolve to this machine (detected by `Host`). Other programs send neither `Origin` nor `Sec-Fetch-Site`,
//! and use this machine as host.
//!
//! Invariant: a request with the [`mark`] of this process was already checked.

use std::net::IpAddr;
use std::sync::OnceLock;

use http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Uri};

/// Header that marks a request as checked by another listener of this process.
const MARK: HeaderName = HeaderName::from_static("x-loopback-judged");
/// Value of the mark. It is set when a listener that reads marks starts.
static SECRET: OnceLock<HeaderValue> = OnceLock::new();

/// The reason for refusing a request with status 403.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The host is not a name of this machine.
    Host(String),
    /// A page of this origin sent the request.
    Origin(String),
    /// A page of another site sent the request.
    CrossSite,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "host {host:?}: this port answers for names of this machine only, against DNS rebinding; ask localhost or \
                 127.0.0.1"
            ),
            Self::Origin(origin) => write!(
                f,
                "origin {origin:?}: this port answers no page of another site; open the page from localhost, or call \
                 without a browser"
            ),
            Self::CrossSite => f.write_str(
                "Sec-Fetch-Site: cross-site: this port answers no page of another site; open the page from localhost, or \
                 call without a browser",
            ),
        }
    }
}

/// Returns the host of a request, without its port, in lower case.
pub fn host(headers: &HeaderMap, uri: &Uri) -> String {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok());
    name_of(uri.authority().map(http::uri::Authority::as_str).or(named).unwrap_or_default())
}

/// Returns whether a host is a name or an address of this machine.
pub fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.ends_with(".localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns whether a host is a Service name that is used inside of a cluster: `shop`, `shop.team.svc`,
/// `shop.team.svc.cluster.local`. The public DNS has no such names. `shop.team` is not accepted, because it may be
/// public.
pub fn is_in_cluster(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    let ends = |end: &str| host.strip_suffix(end).is_some();
    !host.contains('.') || ends(".svc") || ends(".svc.cluster.local")
}

/// Checks a request. Hosts other than this machine are allowed if `is_known` accepts them.
///
/// # Errors
/// The reason for the refusal.
pub fn judge(method: &Method, uri: &Uri, headers: &HeaderMap, is_known: impl Fn(&str) -> bool) -> Result<(), Refusal> {
    if SECRET.get().is_some_and(|secret| headers.get(MARK) == Some(secret)) {
        return Ok(());
    }
    let host = host(headers, uri);
    // An HTTP/1.0 request may lack a host, but browsers always send one.
    if !host.is_empty() && !is_this_machine(&host) && !is_known(&host) {
        return Err(Refusal::Host(host));
    }
    judge_page(method, &host, headers)
}

/// Checks whether the page that sent a request may send it to this host.
///
/// # Errors
/// The reason for the refusal.
pub fn judge_page(method: &Method, host: &str, headers: &HeaderMap) -> Result<(), Refusal> {
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
        let from = origin.split_once("://").map(|(_, authority)| name_of(authority));
        let is_ours = from.is_some_and(|from| !from.is_empty() && (from == host || is_this_machine(&from)));
        return if is_ours { Ok(()) } else { Err(Refusal::Origin(origin)) };
    }
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|header| header == value);
    // The user followed a link, or was redirected after a login. The response becomes a page of its own, and no other
    // page can read it.
    let is_link = method == Method::GET && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    if says("sec-fetch-site", "cross-site") && !is_link { Err(Refusal::CrossSite) } else { Ok(()) }
}

/// Marks a checked request that this process relays to another of its listeners. Without a listener that reads marks,
/// this has no effect.
pub fn mark(headers: &mut HeaderMap) {
    if let Some(secret) = SECRET.get() {
        headers.insert(MARK, secret.clone());
    }
}

/// Removes the mark.
pub(crate) fn unmark(headers: &mut HeaderMap) {
    headers.remove(MARK);
}

/// Turns on marks, for a listener that reads them.
pub fn begin() {
    SECRET.get_or_init(|| {
        let text = format!("{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..));
        let mut value = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    });
}

/// Returns the name in `name:port`, in lower case.
fn name_of(authority: &str) -> String {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let divided = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(name, port)| (name, port.strip_prefix(':').unwrap_or(port))),
        None => authority.split_once(':'),
    };
    // A string that is neither HOST nor HOST:PORT is returned unchanged, so it matches no name.
    let name = divided.filter(|(_, port)| is_port(port)).map_or(authority, |(name, _)| name);
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, headers: &[(&'static str, &str)], expected: Result<(), Refusal>) {
        let all = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let is_known = |host: &str| host == "shop.team.svc";
        assert_eq!(judge(&method, &Uri::from_static("/"), &all.collect(), is_known), expected, "{headers:?}");
    }

    #[test]
    fn only_names_of_this_machine_are_answered_for() {
        for host in [
            "localhost:8080",
            "127.0.0.1",
            "127.4.0.1:80",
            "[::1]:80",
            "shop.localhost:8080",
            "LOCALHOST.",
            "shop.team.svc",
        ] {
            check(Method::GET, &[("host", host)], Ok(()));
        }
        for host in ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0:80"]
        {
            let name = host.split(':').next().unwrap();
            check(Method::GET, &[("host", host)], Err(Refusal::Host(name.to_owned())));
        }
        for host in ["127.0.0.1:80@evil.example", "[::1].evil.example", "[::1", "127.0.0.1:evil.example", "::1:80"] {
            check(Method::GET, &[("host", host)], Err(Refusal::Host(host.to_owned())));
        }
        check(Method::GET, &[], Ok(()));
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let host = ("host", "shop.localhost:8080");
        for origin in ["http://shop.localhost:8080", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:80"] {
            check(Method::POST, &[host, ("origin", origin)], Ok(()));
        }
        for origin in
            ["https://evil.example", "null", "", "http://localhost.evil.example", "https://shop.localhost@evil.example"]
        {
            check(Method::POST, &[host, ("origin", origin)], Err(Refusal::Origin(origin.to_owned())));
        }
        check(Method::POST, &[("host", "shop.team.svc"), ("origin", "http://shop.team.svc")], Ok(()));
    }

    #[test]
    fn a_link_is_followed_and_an_image_of_another_site_is_not_loaded() {
        let (host, cross) = (("host", "localhost"), ("sec-fetch-site", "cross-site"));
        let (link, page) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        check(Method::GET, &[host, cross, link, page], Ok(()));
        check(Method::GET, &[host, ("sec-fetch-site", "same-origin")], Ok(()));
        for headers in [
            &[host, cross][..],
            &[host, cross, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")],
            &[host, cross, link, ("sec-fetch-dest", "iframe")],
        ] {
            check(Method::GET, headers, Err(Refusal::CrossSite));
        }
        check(Method::POST, &[host, cross, link, page], Err(Refusal::CrossSite));
    }

    #[test]
    fn a_mark_cannot_be_guessed() {
        begin();
        let mut headers = HeaderMap::from_iter([(HOST, "shop.example.com".parse().unwrap())]);
        let judged = |headers: &HeaderMap| judge(&Method::GET, &Uri::from_static("/"), headers, |_| false).is_ok();
        assert!(!judged(&headers));
        headers.insert(MARK, HeaderValue::from_static(""));
        assert!(!judged(&headers));
        mark(&mut headers);
        assert!(judged(&headers));
        unmark(&mut headers);
        assert!(!judged(&headers));
    }
}
