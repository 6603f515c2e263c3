//! The attributes of a request in faults, and the response of an injected fault.
//!
//! Public, so that a proxy in front of another server can inject the same faults.
//!
//! Not here: matching of faults to requests ([`crate::fault_injection`]).

use super::respond;
use crate::body::Body;
use crate::{
    access::user,
    fault_injection::{Asked, Fault},
    status::{GroupResource, Status},
};
use http::{Method, Response, header};
use serde_json::Value;

/// Returns the verb of a request about objects, as in [`Fault::verb`]; `none` if there is no such verb.
pub fn verb(method: &Method, is_collection: bool, is_watch: bool, content_type: &str) -> &'static str {
    match *method {
        Method::GET | Method::HEAD if is_collection && is_watch => "watch",
        Method::GET | Method::HEAD if is_collection => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT if !is_collection => "update",
        Method::PATCH if !is_collection => {
            if content_type.starts_with("application/apply-patch") {
                "apply"
            } else {
                "patch"
            }
        }
        Method::DELETE if is_collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "none",
    }
}

/// Returns the response of a fault to a request.
pub fn answer(asked: &Asked<'_>, fault: &Fault) -> Response<Body> {
    match &fault.body {
        Some(Value::String(text)) => return retry_after(respond::text(fault.code, text.clone()), fault),
        Some(body) => return retry_after(respond::json(fault.code, body.to_string().into()), fault),
        None => {}
    }
    if fault.code == 429 && fault.reason.is_empty() && fault.message.is_empty() {
        let mut response = respond::text(429, "Too many requests, please try again later.\n");
        response.headers_mut().insert(header::RETRY_AFTER, fault.retry_after.unwrap_or(1).into());
        return response;
    }
    let gr = GroupResource { group: asked.group.to_owned(), resource: asked.resource.to_owned() };
    let mut status = match (fault.code, fault.message.as_str()) {
        (404, "") => Status::not_found(&gr, asked.name),
        (409, "") => Status::stale(&gr, asked.name),
        (401, "") => Status::new(401, "Unauthorized", "Unauthorized"),
        (403, "") => Status::forbidden(&gr, asked.name, &denial(asked)),
        (code, message) => {
            let reason = match code {
                401 => "Unauthorized",
                403 => "Forbidden",
                404 => "NotFound",
                409 => "Conflict",
                410 => "Expired",
                422 => "Invalid",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "Timeout",
                _ => "InternalError",
            };
            let message = if message.is_empty() { "this fault was injected" } else { message };
            Status::new(code, reason, message)
        }
    };
    if !fault.reason.is_empty() {
        status.reason.clone_from(&fault.reason);
    }
    // A real server never answers 429 without `Retry-After`.
    let usual = (fault.code == 429).then_some(1);
    status.retry_after = fault.retry_after.or(usual);
    respond::status(&status)
}

/// Returns the message of a denial by RBAC, in the words of a real server.
fn denial(asked: &Asked<'_>) -> String {
    let verb = if asked.verb == "apply" { "patch" } else { asked.verb };
    let sub = if asked.subresource.is_empty() { String::new() } else { format!("/{}", asked.subresource) };
    let place = if asked.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", asked.namespace)
    };
    format!(
        "User \"{}\" cannot {verb} resource \"{}{sub}\" in API group \"{}\" {place}",
        user::ADMIN,
        asked.resource,
        asked.group
    )
}

fn retry_after(mut response: Response<Body>, fault: &Fault) -> Response<Body> {
    if let Some(seconds) = fault.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}
