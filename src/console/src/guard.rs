//! Decides whether a request comes from a page of this server, or from a user who opens it.
//!
//! Names and ports of the host are compared exactly: a name that a foreign site resolves to this machine is refused. A page of
//! another port of this machine has the cookies of this one, so `Origin` and `Sec-Fetch-Site` are compared, too.
//!
//! Not here: sessions, and the check that the client is a process of the same user (`loopback`).

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method};

/// Prefix of the link that opens a session. Any site may lead there.
pub(crate) const OPEN: &str = "/open/";

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The host is not a name of this server.
    Host,
    /// A page of another site or another port sent it.
    Origin,
    /// The method is unknown.
    Method,
}

impl Refusal {
    /// Returns the message.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "The host of this request is not a name of this server. Open the address that `mainstay ui` printed."
            }
            Self::Origin => {
                "A page of another site sent this request, so it was refused. Open the address that `mainstay ui` printed."
            }
            Self::Method => "This method is not supported. Pages are read by GET and changed by POST.",
        }
    }
}

/// Judges the head of a request to this port.
///
/// # Errors
/// The reason for the refusal.
pub(crate) fn judge(method: &Method, path: &str, headers: &HeaderMap, port: u16) -> Result<(), Refusal> {
    let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")];
    let mut named = headers.get_all(HOST).iter();
    let host = named.next().and_then(|host| host.to_str().ok()).filter(|host| hosts.iter().any(|ours| ours == host));
    let (Some(host), None) = (host, named.next()) else { return Err(Refusal::Host) };
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    let is_own = matches!(site, None | Some(b"same-origin" | b"none"));
    let own_origin = format!("http://{host}");
    let mut origins = headers.get_all(ORIGIN).iter();
    let origin = origins.next();
    if origins.next().is_some() || origin.is_some_and(|origin| origin.as_bytes() != own_origin.as_bytes()) {
        return Err(Refusal::Origin);
    }
    match *method {
        Method::GET | Method::HEAD if is_own || path.starts_with(OPEN) => Ok(()),
        Method::POST if is_own && origin.is_some() => Ok(()),
        Method::GET | Method::HEAD | Method::POST => Err(Refusal::Origin),
        _ => Err(Refusal::Method),
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn check(method: Method, path: &str, headers: &[(&'static str, &str)], expected: Result<(), Refusal>) {
        let all = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        assert_eq!(judge(&method, path, &all, 80), expected, "{method} {path} {headers:?}");
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        for host in ["127.0.0.1:80", "localhost:80", "[::1]:80"] {
            check(Method::GET, "/", &[("host", host)], Ok(()));
        }
        for host in ["127.0.0.1", "127.0.0.1:81", "evil.example:80", "shop", "localhost:80.evil.example", ""] {
            check(Method::GET, "/", &[("host", host)], Err(Refusal::Host));
        }
        check(Method::GET, "/", &[], Err(Refusal::Host));
    }

    #[test]
    fn pages_of_other_sites_and_ports_read_nothing_and_change_nothing() {
        let host = ("host", "localhost:80");
        for site in ["cross-site", "same-site"] {
            check(Method::GET, "/", &[host, ("sec-fetch-site", site)], Err(Refusal::Origin));
            check(Method::GET, "/open/x", &[host, ("sec-fetch-site", site)], Ok(()));
            let own = ("origin", "http://localhost:80");
            check(Method::POST, "/act", &[host, own, ("sec-fetch-site", site)], Err(Refusal::Origin));
        }
        for origin in
            ["http://localhost:81", "http://127.0.0.1:80", "https://localhost:80", "null", "http://evil.example"]
        {
            check(Method::POST, "/act", &[host, ("origin", origin)], Err(Refusal::Origin));
            check(Method::GET, "/", &[host, ("origin", origin)], Err(Refusal::Origin));
        }
        check(Method::POST, "/act", &[host], Err(Refusal::Origin));
        check(Method::POST, "/act", &[host, ("origin", "http://localhost:80")], Ok(()));
        check(Method::DELETE, "/act", &[host, ("origin", "http://localhost:80")], Err(Refusal::Method));
    }
}
