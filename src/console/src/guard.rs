//! Decides whether a request comes from a page of this server, or from a user who opens such a page.
//!
//! Hosts are compared exactly, so a foreign host name that resolves to this server is refused. Browsers send the
//! cookies of this server with requests of pages at other ports of this machine, so `Origin` and `Sec-Fetch-Site` are
//! compared, too.
//!
//! Not here: sessions, and the check that the client is a process of the same user (`loopback`).

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method};

use crate::web_origin::WebOrigin;

/// Prefix of the link that opens a session. Any site may link to it.
pub(crate) const OPEN: &str = "/open/";

/// The URLs of this server, and the pages to which other sites may link.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) origins: Vec<WebOrigin>,
    pub(crate) links: Links,
}

/// The links of other sites that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// Only the link that opens a session.
    Session,
    /// Links to any page. The response has no content, and reopens the page from this server.
    Pages,
}

/// The permitted requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Permitted<'g> {
    /// A request by a page of this origin or by its user, or the link that opens a session.
    Own(&'g WebOrigin),
    /// A link of another site points to a page.
    Link,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The host is not a name of this server.
    Host,
    /// A page of another site or another port sent it.
    Origin,
    /// The method is unknown.
    Method,
    /// A browser reads the path as the address of another host if it stands alone.
    Path,
}

impl Refusal {
    /// Returns the message of the refusal.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "The host of this request is not a name of this server. Open the address that `mainstay ui` printed, or \
                 one of the flag --url of `mainstay console`."
            }
            Self::Origin => {
                "A page of another site sent this request, so it was refused. Open the address of this server yourself."
            }
            Self::Method => "This method is not supported. Pages are read by GET and changed by POST.",
            Self::Path => "The path of a page begins with one slash. Remove the second slash or the backslash.",
        }
    }
}

/// Decides about a request by its head.
///
/// # Errors
/// Fails with the reason for the refusal.
pub(crate) fn judge<'g>(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    gate: &'g Gate,
) -> Result<Permitted<'g>, Refusal> {
    let mut named = headers.get_all(HOST).iter();
    let host = named.next().and_then(|host| host.to_str().ok());
    let ours = host.and_then(|host| gate.origins.iter().find(|ours| ours.has_host(host)));
    let (Some(ours), None) = (ours, named.next()) else { return Err(Refusal::Host) };
    if path.starts_with("//") || path.starts_with("/\\") {
        return Err(Refusal::Path);
    }
    let fetch = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_own = matches!(fetch("sec-fetch-site"), None | Some(b"same-origin" | b"none"));
    let mut origins = headers.get_all(ORIGIN).iter();
    let origin = origins.next();
    if origins.next().is_some() || origin.is_some_and(|origin| origin.as_bytes() != ours.text().as_bytes()) {
        return Err(Refusal::Origin);
    }
    match *method {
        Method::GET | Method::HEAD if is_own => Ok(Permitted::Own(ours)),
        Method::GET | Method::HEAD if gate.links == Links::Session && path.starts_with(OPEN) => {
            Ok(Permitted::Own(ours))
        }
        Method::GET if gate.links == Links::Pages && opens_document(headers) => Ok(Permitted::Link),
        Method::POST if is_own && origin.is_some() => Ok(Permitted::Own(ours)),
        Method::GET | Method::HEAD | Method::POST => Err(Refusal::Origin),
        _ => Err(Refusal::Method),
    }
}

/// Returns whether the browser will show the response as a document of its own.
pub(crate) fn opens_document(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|found| found.as_bytes() == value.as_bytes());
    is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document")
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn gate(origins: &[&str], links: Links) -> Gate {
        Gate { origins: origins.iter().map(|origin| origin.parse().unwrap()).collect(), links }
    }

    fn judged(gate: &Gate, method: Method, path: &str, headers: &[(&'static str, &str)]) -> Result<bool, Refusal> {
        let all = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        judge(&method, path, &all, gate).map(|permitted| permitted != Permitted::Link)
    }

    fn check(method: Method, path: &str, headers: &[(&'static str, &str)], expected: Result<(), Refusal>) {
        let ours = ["127.0.0.1", "localhost", "[::1]"].map(|name| format!("http://{name}:81"));
        let gate = gate(&ours.each_ref().map(String::as_str), Links::Session);
        let found = judged(&gate, method.clone(), path, headers);
        assert_eq!(found, expected.map(|()| true), "{method} {path} {headers:?}");
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        for host in ["127.0.0.1:81", "localhost:81", "[::1]:81"] {
            check(Method::GET, "/", &[("host", host)], Ok(()));
        }
        for host in ["127.0.0.1", "127.0.0.1:82", "evil.example:81", "shop", "localhost:81.evil.example", ""] {
            check(Method::GET, "/", &[("host", host)], Err(Refusal::Host));
        }
        check(Method::GET, "/", &[], Err(Refusal::Host));
        check(Method::GET, "/", &[("host", "localhost:81"), ("host", "localhost:81")], Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_sites_and_ports_read_nothing_and_change_nothing() {
        let host = ("host", "localhost:81");
        for site in ["cross-site", "same-site"] {
            check(Method::GET, "/", &[host, ("sec-fetch-site", site)], Err(Refusal::Origin));
            check(Method::GET, "/open/x", &[host, ("sec-fetch-site", site)], Ok(()));
            let own = ("origin", "http://localhost:81");
            check(Method::POST, "/act", &[host, own, ("sec-fetch-site", site)], Err(Refusal::Origin));
        }
        for origin in
            ["http://localhost:82", "http://127.0.0.1:81", "https://localhost:81", "null", "http://evil.example"]
        {
            check(Method::POST, "/act", &[host, ("origin", origin)], Err(Refusal::Origin));
            check(Method::GET, "/", &[host, ("origin", origin)], Err(Refusal::Origin));
        }
        check(Method::POST, "/act", &[host], Err(Refusal::Origin));
        check(Method::POST, "/act", &[host, ("origin", "http://localhost:81")], Ok(()));
        check(Method::DELETE, "/act", &[host, ("origin", "http://localhost:81")], Err(Refusal::Method));
    }

    #[test]
    fn a_path_that_names_another_host_is_refused() {
        let host = ("host", "localhost:81");
        for path in ["//evil.example/x", "/\\evil.example", "///evil.example", "//"] {
            for site in ["none", "cross-site"] {
                check(Method::GET, path, &[host, ("sec-fetch-site", site)], Err(Refusal::Path));
            }
            check(Method::POST, path, &[host, ("origin", "http://localhost:81")], Err(Refusal::Path));
        }
        check(Method::GET, "/a//b", &[host], Ok(()));
    }

    #[test]
    fn a_link_of_another_site_opens_a_page_only_as_a_document() {
        let gate = gate(&["https://console.example.com"], Links::Pages);
        let host = ("host", "console.example.com");
        let cross = ("sec-fetch-site", "cross-site");
        let (navigate, document) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        assert_eq!(judged(&gate, Method::GET, "/", &[host, cross, navigate, document]), Ok(false));
        for headers in [
            &[host, cross][..],
            &[host, cross, navigate, ("sec-fetch-dest", "iframe")],
            &[host, cross, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
            &[host, cross, navigate, document, ("origin", "https://evil.example")],
        ] {
            assert_eq!(judged(&gate, Method::GET, "/", headers), Err(Refusal::Origin), "{headers:?}");
        }
        let form = [host, cross, navigate, document, ("origin", "https://console.example.com")];
        assert_eq!(judged(&gate, Method::POST, "/sign-in", &form), Err(Refusal::Origin));
        let plain = [host, ("origin", "http://console.example.com")];
        assert_eq!(judged(&gate, Method::POST, "/sign-in", &plain), Err(Refusal::Origin));
    }
}
