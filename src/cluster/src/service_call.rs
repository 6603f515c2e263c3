//! Calls a Service through the proxy of the API server, with the permissions of the connection.
//!
//! Invariant: a call reaches only the proxy path of one Service. No segment of a [`ServicePath`] points outside of it,
//! and it contains no host.
//! Invariant: the response has a bounded size.

use std::fmt;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error};
use super::kind::{Kind, Scope, encode};
use super::request::{Call, transport};

/// Maximum length of a path with its query, in bytes.
const LONGEST: usize = 4 << 10;
/// Characters of a query that are encoded. `%` is not one of them, because the query may be encoded already.
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A path with a query, below the root of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePath(String);

impl fmt::Display for ServicePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ServicePath {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > LONGEST {
            return Err("the path is longer than 4 KiB");
        }
        if text.contains('#') {
            return Err("the path has a fragment; write %23 for the character #");
        }
        let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
        let path = path.strip_prefix('/').ok_or("the path must begin with /")?;
        let mut whole = String::new();
        let last = path.split('/').count().saturating_sub(1);
        for (at, segment) in path.split('/').enumerate() {
            if segment.is_empty() && at != last {
                return Err("the path has an empty segment");
            }
            let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| "the path is not UTF-8")?;
            if leads_elsewhere(&decoded) {
                return Err(
                    "the path has a segment that is not allowed: `.`, `..`, an encoded slash or a control character",
                );
            }
            whole.push('/');
            encode(&mut whole, &decoded);
        }
        if let Some(query) = query {
            whole.push('?');
            whole.extend(utf8_percent_encode(query, QUERY));
        }
        Ok(Self(whole))
    }
}

/// Returns whether a segment could resolve to something other than a plain name, however often servers on the way
/// decode it.
fn leads_elsewhere(segment: &str) -> bool {
    let mut text = segment.to_owned();
    loop {
        if matches!(text.as_str(), "." | "..") || text.contains(['/', '\\']) || text.contains(char::is_control) {
            return true;
        }
        let next = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if next == text {
            return false;
        }
        text = next;
    }
}

/// A call of a Service.
#[derive(Clone, Debug)]
pub struct ServiceCall<'c> {
    /// Namespace of the Service.
    pub namespace: &'c str,
    /// Name of the Service.
    pub name: &'c str,
    /// Port of the Service.
    pub port: u16,
    /// Method. `GET`, `POST`, `PUT`, `PATCH` and `DELETE` need the verbs `get`, `create`, `update`, `patch` and `delete`.
    pub method: Method,
    /// Path.
    pub path: &'c ServicePath,
    /// Media type of the body, if there is one.
    pub content_type: Option<HeaderValue>,
    /// Body.
    pub body: Bytes,
}

/// The response of a Service, or of the API server on its behalf.
#[derive(Clone, Debug)]
pub struct ServiceAnswer {
    /// Status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The first bytes of the body.
    pub body: Bytes,
    /// Whether the body was longer.
    pub is_cut: bool,
}

impl Cluster {
    /// Calls a Service through the API server, and reads at most `most` bytes of the response. A response with any
    /// status is returned.
    ///
    /// # Errors
    /// If the names cannot be part of a path, or if no response arrives in time.
    pub async fn call_service(&self, wanted: &ServiceCall<'_>, most: usize) -> Result<ServiceAnswer, Error> {
        let services = Kind::fixed("v1", "Service", "services", Scope::Namespaced);
        let verb = match wanted.method {
            Method::GET => Verb::Get,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE => Verb::Delete,
            _ => Verb::Create,
        };
        let port = format!("{}:{}", wanted.name, wanted.port);
        let mut call = Call::object(Attempt::Call, verb, &services, Some(wanted.namespace), &port, Some("proxy"))?;
        call.path.push_str(&wanted.path.0);
        let mut request = Request::builder().method(wanted.method.clone()).uri(call.path.as_str());
        request = request.header(header::ACCEPT, "*/*");
        if let Some(content_type) = &wanted.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let unusable = |_| call.failed(Cause::Unaddressable);
        let mut request = request.body(Body::from(wanted.body.clone())).map_err(unusable)?;
        if let Some(account) = self.acts_as() {
            request.headers_mut().insert("impersonate-user", account.user());
        }
        self.requests().add(verb, &call.resource);
        let client = self.client(verb);
        let answered = async {
            let response = client.send(request).await.map_err(transport)?;
            let (parts, body) = response.into_parts();
            let (body, is_cut) = beginning(body, most).await?;
            Ok::<_, Cause>(ServiceAnswer { status: parts.status.as_u16(), headers: parts.headers, body, is_cut })
        };
        let answered = tokio::time::timeout(self.0.deadline, answered).await;
        answered.unwrap_or(Err(Cause::TimedOut(self.0.deadline))).map_err(|cause| call.failed(cause))
    }
}

/// Reads the first bytes of a body, and returns whether there are more.
async fn beginning(mut body: Body, most: usize) -> Result<(Bytes, bool), Cause> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Cause::Unreachable(Box::new(error)))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = most - read.len();
        read.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((read.freeze(), true));
        }
    }
    Ok((read.freeze(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_its_service() {
        for (text, expected) in [
            ("/", "/"),
            ("/a/b/", "/a/b/"),
            ("/a%20b?x=%2F&y=1", "/a%20b?x=%2F&y=1"),
            ("/a b?x=a b\"<>", "/a%20b?x=a%20b%22%3C%3E"),
            ("/..a/.b", "/..a/.b"),
            ("/?next=/../x", "/?next=/../x"),
        ] {
            assert_eq!(text.parse::<ServicePath>().map(|path| path.to_string()).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "a",
            "http://evil.example/",
            "//evil.example/",
            "/a//b",
            "/..",
            "/.",
            "/a/../b",
            "/%2e%2e/b",
            "/.%2E/b",
            "/%252e%252e/b",
            "/a%2f..%2fb",
            "/a%5c..%5cb",
            "/a\\b",
            "/a#b",
            "/a\r\nb",
            "/a%0d%0ab",
            "/%00",
            "/%ff",
        ] {
            assert!(text.parse::<ServicePath>().is_err(), "{text:?}");
        }
        assert!(format!("/{}", "a".repeat(LONGEST)).parse::<ServicePath>().is_err());
    }
}
