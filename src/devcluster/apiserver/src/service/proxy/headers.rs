//! The forwarded parts of a request and its response: paths, headers and links.

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Hop-by-hop headers, which belong to one connection.
const OF_CONNECTION: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Response headers that would let a program act for this server's origin.
const OF_ORIGIN: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Returns whether a client requests another protocol.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE)
        && values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes hop-by-hop headers.
fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in named.iter().map(String::as_str).chain(OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Returns the request headers for a pod, without the client's credentials for this server.
pub(super) fn of_request(sent: &HeaderMap, path: &str, host: &str, upgrade: bool, local: bool) -> HeaderMap {
    let mut headers = sent.clone();
    let wanted = headers.get(header::UPGRADE).cloned();
    end_to_end(&mut headers);
    let secret = |name: &HeaderName| *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-");
    let secrets: Vec<HeaderName> = headers.keys().filter(|name| secret(name)).cloned().collect();
    // The body is already read and is sent in one piece.
    for name in secrets.into_iter().chain([header::CONTENT_LENGTH]) {
        headers.remove(name);
    }
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    put("x-forwarded-uri", path);
    if local {
        let before = sent.get("x-forwarded-for").and_then(|value| value.to_str().ok());
        put("x-forwarded-for", &before.map_or_else(|| "127.0.0.1".to_owned(), |before| format!("{before}, 127.0.0.1")));
    }
    if !sent.contains_key(header::HOST) {
        put("host", host);
    }
    if let Some(wanted) = wanted.filter(|_| upgrade) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, wanted);
    }
    headers
}

/// Rewrites the response headers for a client.
pub(super) fn of_answer(headers: &mut HeaderMap, links: &Links<'_>) {
    end_to_end(headers);
    for name in OF_ORIGIN {
        headers.remove(name);
    }
    let link = headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    if let Some(moved) = link.and_then(|link| HeaderValue::from_str(&links.through(link)).ok()) {
        headers.insert(header::LOCATION, moved);
    }
}

/// The base of links in responses.
pub(super) struct Links<'a> {
    /// Path of the proxy.
    pub(super) root: &'a str,
    /// Host of the pod, as the pod may name it.
    pub(super) pod: &'a str,
    /// Host of the client's request.
    pub(super) client: &'a str,
}

impl Links<'_> {
    /// Rewrites a link to point to the proxy. Links to other hosts and relative links stay unchanged.
    fn through(&self, link: &str) -> String {
        let (origin, rest) = match link.split_once("//") {
            Some((scheme, rest)) if scheme.is_empty() || scheme.ends_with(':') && !scheme.contains('/') => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (Some((scheme, &rest[..end])), &rest[end..])
            }
            _ => (None, link),
        };
        let same = |host: &str| host == self.pod || host == self.client;
        if origin.is_some_and(|(_, host)| !same(host)) || !rest.starts_with('/') {
            return link.to_owned();
        }
        let origin = origin.filter(|(_, host)| *host == self.client).map(|(scheme, host)| format!("{scheme}//{host}"));
        let origin = origin.unwrap_or_default();
        if rest.starts_with(self.root) {
            return format!("{origin}{rest}");
        }
        format!("{origin}{}{rest}", self.root)
    }
}

/// Removes `.`, `..` and double slashes from a path, which then cannot leave its root.
pub(super) fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Encodes a path for a request, with a leading slash.
pub(super) fn encoded(path: &str) -> String {
    let mut out = String::from("/");
    for byte in path.trim_start_matches('/').bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_root() {
        for (path, expected) in
            [("a/b", "a/b"), ("a//b", "a/b"), ("../../x", "x"), ("a/./b/../c", "a/c"), ("", ""), ("..", "")]
        {
            assert_eq!(cleaned(path), expected, "{path}");
        }
        assert_eq!(encoded("a b/ü?#%"), "/a%20b/%C3%BC%3F%23%25");
        assert_eq!(encoded("a\r\nHost: x"), "/a%0D%0AHost:%20x");
    }

    #[test]
    fn links_lead_through_the_proxy() {
        let links =
            Links { root: "/api/v1/namespaces/n/services/s/proxy", pod: "10.0.0.1:80", client: "localhost:8001" };
        let root = links.root;
        for (link, expected) in [
            ("/a/", format!("{root}/a/")),
            ("/a?b=c#d", format!("{root}/a?b=c#d")),
            ("a/b", "a/b".to_owned()),
            ("http://10.0.0.1:80/a", format!("{root}/a")),
            ("http://localhost:8001/a", format!("http://localhost:8001{root}/a")),
            ("http://example.com/a", "http://example.com/a".to_owned()),
            ("//example.com/a", "//example.com/a".to_owned()),
            ("/api/v1/namespaces/n/services/s/proxy/a", format!("{root}/a")),
            ("", String::new()),
        ] {
            assert_eq!(links.through(link), expected, "{link}");
        }
    }

    #[test]
    fn secrets_and_connections_stay_here() {
        let mut sent = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("impersonate-user", "x"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "5"),
            ("x-kept", "1"),
            ("host", "h"),
            ("upgrade", "websocket"),
        ] {
            sent.insert(name, HeaderValue::from_static(value));
        }
        let names = |upgrade: bool| {
            let headers = of_request(&sent, "/p", "pod", upgrade, false);
            let mut names: Vec<String> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(names(false), "host x-forwarded-uri x-kept");
        assert_eq!(names(true), "connection host upgrade x-forwarded-uri x-kept");
    }
}
