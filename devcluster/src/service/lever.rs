//! The levers over HTTP: `/devcluster/…`.
//!
//! Deliberately absent: levers that only make sense in process.

use super::{Asked, Body, respond};
use crate::{levers::Fault, server::Server, status::Status};
use http::{Method, Response};
use serde_json::json;

/// Moves a lever.
pub(super) fn answer(server: &Server, name: &str, asked: &Asked) -> Response<Body> {
    let outcome = match (&asked.parts.method, name) {
        (&Method::POST, "compact") => Ok(json!({"resourceVersion": server.store().compact().to_string()})),
        (&Method::POST, "drop-watches") => {
            let resource = asked.query.text("resource");
            server.store().end_watches((!resource.is_empty()).then_some(resource));
            Ok(json!({}))
        }
        (&Method::POST, "fail-next") => serde_json::from_slice::<Fault>(&asked.body)
            .map(|fault| {
                server.levers().fail_next(fault);
                json!({})
            })
            .map_err(|e| Status::bad_request(format!("reading the fault: {e}"))),
        (&Method::DELETE, "fail-next") => {
            server.levers().clear_faults();
            Ok(json!({}))
        }
        (&Method::GET, "counters") => {
            Ok(json!({"requests": server.levers().counts(), "resourceVersion": server.store().version().to_string()}))
        }
        (&Method::DELETE, "counters") => {
            server.levers().reset_counts();
            Ok(json!({}))
        }
        (_, "compact" | "drop-watches" | "fail-next" | "counters") => Err(respond::method_not_allowed()),
        _ => return respond::page_not_found(),
    };
    match outcome {
        Ok(body) => respond::json(200, body.to_string().into()),
        Err(status) => respond::status(&status),
    }
}
