//! Responses that the gateway creates itself, in the format of Envoy and Oathkeeper.

use bytes::Bytes;
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN, VARY};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use loopback::web::Refusal;
use serde_json::{Value, json};

use super::decide::Allowed;
use super::forward::Body;

/// Returns Oathkeeper's error response. `id` is the request's ID.
pub(super) fn refused(status: u16, id: Option<&HeaderValue>) -> Response<Body> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = match status.as_u16() {
        401 => "The request could not be authorized",
        403 => "The requested action was forbidden",
        404 => "The requested resource could not be found",
        _ => "An internal server error occurred, please contact the system administrator",
    };
    let reason = status.canonical_reason().unwrap_or_default();
    let mut error = json!({"code": status.as_u16(), "status": reason});
    if let Some(id) = id.and_then(|id| id.to_str().ok()) {
        error["request"] = id.into();
    }
    error["message"] = message.into();
    let mut answer = json(&json!({"error": error}));
    *answer.status_mut() = status;
    answer
}

/// Refuses a request from a page of another site: 403.
pub(super) fn foreign(refusal: &Refusal) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{refusal}\n"))).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::FORBIDDEN;
    answer
}

/// Returns a value as JSON with a line feed.
pub(super) fn json(value: &Value) -> Response<Body> {
    let body = format!("{value}\n");
    let mut answer = Response::new(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync());
    set(answer.headers_mut(), CONTENT_TYPE, "application/json");
    answer
}

pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut answer = Response::new(None);
    *answer.status_mut() = status;
    whole(answer)
}

pub(super) fn whole(answer: Response<Option<Body>>) -> Response<Body> {
    let none = || Full::default().map_err(|never| match never {}).boxed_unsync();
    answer.map(|body| body.unwrap_or_else(none))
}

pub(super) fn with_origin(mut answer: Response<Body>, allowed: Option<Allowed>) -> Response<Body> {
    if let Some(allowed) = allowed {
        set(answer.headers_mut(), ACCESS_CONTROL_ALLOW_ORIGIN, &allowed.origin);
        answer.headers_mut().append(VARY, HeaderValue::from_name(ORIGIN));
    }
    answer
}

pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}
