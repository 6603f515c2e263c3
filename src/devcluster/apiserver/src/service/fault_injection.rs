//! Fault injection over HTTP: `/devcluster/…`.
//!
//! Not here: faults that only make sense in process.

use super::{request::Asked, respond};
use crate::body::Body;
use crate::{
    fault_injection::{Fault, Simulation},
    server::Server,
    verbs::decode,
};
use http::{Method, Response};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

/// A simulation and its containers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Simulated {
    image: String,
    #[serde(default)]
    container: String,
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    termination_message: Option<String>,
    #[serde(default)]
    after_millis: u64,
}

impl Simulated {
    fn simulation(self) -> Simulation {
        let Self { exit_code, termination_message, .. } = self;
        Simulation { exit_code, termination_message, after: Duration::from_millis(self.after_millis) }
    }
}

/// Answers a request below `/devcluster/`.
pub(super) fn answer(server: &Server, name: &str, asked: &Asked) -> Response<Body> {
    let outcome = match (&asked.parts.method, name) {
        (&Method::POST, "compact") => Ok(json!({"resourceVersion": server.store().compact().to_string()})),
        (&Method::POST, "drop-watches") => {
            let resource = asked.query.text("resource");
            server.store().end_watches((!resource.is_empty()).then_some(resource));
            Ok(json!({}))
        }
        (&Method::POST, "fail-next") => decode::typed::<Fault>("fault", &asked.body).map(|fault| {
            server.faults().fail_next(fault);
            json!({})
        }),
        (&Method::DELETE, "fail-next") => {
            server.faults().clear_faults();
            Ok(json!({}))
        }
        (&Method::POST, "simulate") => decode::typed::<Simulated>("simulation", &asked.body).map(|request| {
            server.faults().simulate(&request.image.clone(), &request.container.clone(), request.simulation());
            json!({})
        }),
        (&Method::DELETE, "simulate") => {
            server.faults().clear_simulations();
            Ok(json!({}))
        }
        (&Method::POST, "fire-cron-job") => {
            server.faults().fire(asked.query.text("namespace"), asked.query.text("name"));
            Ok(json!({}))
        }
        (&Method::GET, "counters") => {
            Ok(json!({"requests": server.faults().counts(), "resourceVersion": server.store().version().to_string()}))
        }
        (&Method::DELETE, "counters") => {
            server.faults().reset_counts();
            Ok(json!({}))
        }
        (_, "compact" | "drop-watches" | "fail-next" | "simulate" | "fire-cron-job" | "counters") => {
            Err(respond::method_not_allowed())
        }
        _ => return respond::page_not_found(),
    };
    match outcome {
        Ok(body) => respond::json(200, body.to_string().into()),
        Err(status) => respond::status(&status),
    }
}
