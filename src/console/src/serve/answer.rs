//! Answers with the headers that every page has.

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};

use crate::page;

/// Allows the scripts, styles and images of this server only: nothing inline, no frame, no other host.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Adds the headers.
pub(super) fn secured(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        // With `no-referrer`, browsers send `Origin: null` with the forms of the page itself.
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

/// Returns an answer of this type.
pub(super) fn of_type(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    (status, [(header::CONTENT_TYPE, content_type)], body.into()).into_response()
}

/// Returns a page.
pub(super) fn page(status: StatusCode, html: String) -> Response {
    of_type(status, "text/html; charset=utf-8", html)
}

/// Returns a page with one message.
pub(super) fn message(status: StatusCode, title: &str, text: &str) -> Response {
    page(status, page::message(title, text))
}

/// Leads to another page of this server.
pub(super) fn see_other(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path)]).into_response()
}
