//! Parses the URLs in Triggers and Subscriptions.
//!
//! Invariant: a URL consists only of a scheme, the host of a Service, a port, a path and a query.

use std::num::NonZeroU16;

use http::Uri;

use mainstay_object::names::{Scheme, UrlPath};

/// The parts of a URL whose host is not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: NonZeroU16,
    pub(super) path: UrlPath,
}

/// The reason why a string is not a valid URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The scheme is missing, or is not `http` or `https`.
    Scheme,
    /// A different problem, which this message describes.
    Other(String),
}

/// Parses an absolute URL.
pub(super) fn parse(text: &str) -> Result<Parts, Fault> {
    let other = |why: &str| Fault::Other(why.to_owned());
    let scheme = match text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).as_deref() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err(Fault::Scheme),
    };
    let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| Fault::Other(error.to_string()))?;
    let authority = uri.authority().ok_or_else(|| other("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(other("it has a user, which is not sent; remove the part before the @"));
    }
    let written = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    let usual: u16 = if scheme == Scheme::Https { 443 } else { 80 };
    let port = match written.strip_prefix(':') {
        None => usual,
        Some(port) => port.parse().map_err(|_| other("its port must be a number from 1 to 65535"))?,
    };
    let port = NonZeroU16::new(port).ok_or_else(|| other("its port must be a number from 1 to 65535"))?;
    let path = path(uri.path_and_query().map_or("/", |path| path.as_str())).map_err(Fault::Other)?;
    Ok(Parts { scheme, host: authority.host().to_owned(), port, path })
}

/// Parses a path with its query. Segments that a client would resolve, such as `..`, are refused.
pub(super) fn path(text: &str) -> Result<UrlPath, String> {
    let text = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
    let only_path = text.split('?').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
    if text.contains('\\') || only_path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("its path has a segment . or .. or a backslash; write the resolved path".to_owned());
    }
    UrlPath::parse(&text).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_no_other_parts() {
        let check = |text: &str, expected: &str| {
            let parsed = match parse(text) {
                Ok(Parts { scheme, host, port, path }) => format!("{} {host} {port} {path}", scheme.as_str()),
                Err(Fault::Scheme) => "scheme".to_owned(),
                Err(Fault::Other(why)) => why,
            };
            assert!(parsed.contains(expected), "{text}: {parsed}");
        };
        check("http://f.team.svc", "http f.team.svc 80 /");
        check("HTTPS://f.team.svc:8443/a/b?c=%2e%2e/d", "https f.team.svc 8443 /a/b?c=%2e%2e/d");
        check("http://user:word@f.team.svc/", "it has a user");
        check("http://f.team.svc@169.254.169.254/", "it has a user");
        for port in ["0", "65536", "-1", "a", ""] {
            assert!(parse(&format!("http://f.team.svc:{port}/")).is_err(), "{port}");
        }
        for path in ["/..", "/../x", "/a/%2e%2E/b", "/./a", "/a\\..\\b"] {
            assert!(parse(&format!("http://f.team.svc{path}")).is_err(), "{path}");
        }
        for text in ["", "f", "//f.team.svc/", "file:///etc/passwd", "ftp://f", "javascript:x"] {
            check(text, "scheme");
        }
    }
}
