//! Builds HTTP responses.
//!
//! Not here: the content of responses.

use crate::body::Body;
use crate::status::Status;
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use std::convert::Infallible;

/// Returns a JSON response.
pub fn json(code: u16, body: Bytes) -> Response<Body> {
    with(code, "application/json", Full::new(body).boxed_unsync())
}

/// Returns a plain text response.
pub fn text(code: u16, body: impl Into<Bytes>) -> Response<Body> {
    with(code, "text/plain; charset=utf-8", Full::new(body.into()).boxed_unsync())
}

/// Returns a stream of JSON lines. The headers are sent immediately.
pub fn stream(lines: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = lines.map(|line| Ok::<_, Infallible>(Frame::data(line)));
    with(200, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// Returns a stream of plain text. The headers are sent immediately.
pub fn text_stream(parts: impl Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(part)));
    with(200, "text/plain", StreamBody::new(frames).boxed_unsync())
}

/// Returns an error response.
pub fn status(status: &Status) -> Response<Body> {
    let mut response = json(status.code, status.body().to_string().into());
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Returns a real server's 404 for unknown paths, groups and versions.
pub fn page_not_found() -> Response<Body> {
    text(404, "404 page not found\n")
}

/// Returns the 404 for a missing resource in a served group.
pub fn no_such_resource() -> Status {
    let mut status = Status::new(404, "NotFound", "the server could not find the requested resource");
    status.details = Some(serde_json::Map::new());
    status
}

/// Returns the 405 for an unsupported method.
pub fn method_not_allowed() -> Status {
    let mut status =
        Status::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
    status.details = Some(serde_json::Map::new());
    status
}

/// Maximum total length of a response's warnings, in characters. Beyond that, each warning is cut.
const MAX_WARNINGS: usize = 4096;
/// Maximum number of warnings: many clients read at most a hundred headers.
const MOST_WARNINGS: usize = 80;
/// Maximum length of one warning when the total is too long, in characters.
const MAX_WARNING: usize = 256;

/// Adds `Warning` headers, within the limits of clients.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let length = |text: &str| text.chars().count();
    let cut = warnings.iter().map(|w| length(w)).sum::<usize>() > MAX_WARNINGS;
    let mut total = 0;
    for warning in warnings.iter().take(MOST_WARNINGS) {
        let text: String = if cut { warning.chars().take(MAX_WARNING).collect() } else { warning.clone() };
        total += length(&text);
        if total > MAX_WARNINGS {
            break;
        }
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn with(code: u16, media: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
