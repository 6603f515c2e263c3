//! Responses with the headers of every page.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};

use crate::page;

/// Content security policy that allows only scripts, styles and images of this server: nothing inline, no frames, no
/// other hosts.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers of every page.
pub(super) fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer`, browsers send `Origin: null` when a form of the page itself is submitted.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
        ("cache-control", "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Returns a response of this content type.
pub(super) fn of_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

/// Returns a page.
pub(super) fn page(status: StatusCode, mut html: String) -> Response {
    // The memory of a response is counted by its length.
    html.shrink_to_fit();
    of_type(status, "text/html; charset=utf-8", html)
}

/// Returns a page with one message.
pub(super) fn message(status: StatusCode, title: &str, text: &str) -> Response {
    page(status, page::message(title, text))
}

/// Returns a response that takes no memory: the server is busy, and the client may try again.
pub(super) fn busy(text: &'static str) -> Response {
    let mut response = of_type(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", text);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Redirects to another page of this server.
pub(super) fn see_other(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
}
