//! What Knative's webhooks say: defaults, and refusals with the reasons of a real one.
//!
//! `defaults` completes, `object` and `container` find what is wrong; [`answer`] is what a webhook would answer. The configurations that
//! have it asked are in `setup.yaml`: without those nobody asks.
//!
//! Deliberately absent: the dry run of a pod, unknown fields of volumes and probes, and the settings of `config-features`, which are off.

mod container;
mod defaults;
mod findings;
mod object;

use serde_json::{Value, json};

use crate::knative::kinds::NAMESPACE;
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::Server;

/// The Service that stands for the webhooks, and their paths.
const SERVICE: &str = "webhook";
const DEFAULTING: &str = "/defaulting";
const VALIDATION: &str = "/resource-validation";

/// The answer of the webhook behind a Service, as the `response` of an AdmissionReview whose patch is not encoded; `None`: it is not one
/// of these.
pub fn answer(server: &Server, service: &Value, review: &Value) -> Option<Value> {
    if service["namespace"] != NAMESPACE || service["name"] != SERVICE {
        return None;
    }
    let request = &review["request"];
    let kind = text(request, "/kind/kind");
    let object = &request["object"];
    let user = text(request, "/userInfo/username");
    match text(service, "/path") {
        DEFAULTING => {
            let settings = defaults::Settings::read(server);
            let completed = defaults::complete(kind, object, &request["oldObject"], user, &settings);
            let changed = ["spec", "metadata"].into_iter().filter(|field| completed[field] != object[field]);
            let patch =
                changed.map(|field| json!({"op": "add", "path": format!("/{field}"), "value": completed[field]}));
            Some(json!({"allowed": true, "patch": patch.collect::<Vec<_>>()}))
        }
        VALIDATION => {
            let found = object::check(kind, object, &request["oldObject"], user);
            if found.0.is_empty() {
                return Some(json!({"allowed": true}));
            }
            let message = format!("validation failed: {}", found.0.join("\n"));
            Some(json!({"allowed": false, "status": {"code": 400, "reason": "BadRequest", "message": message}}))
        }
        _ => None,
    }
}
