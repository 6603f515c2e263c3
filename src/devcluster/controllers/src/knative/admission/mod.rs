//! Knative's admission webhooks: defaults, and refusals with the messages of a real installation.
//!
//! `defaults` completes objects; `object` and `container` validate them. [`answer`] returns a webhook's response. The
//! webhook configurations are in `setup.yaml`; without them no webhook is called.
//!
//! Not here: the dry run of a pod, unknown fields of volumes and probes, and `config-features`, which are off.

mod container;
mod defaults;
mod findings;
mod object;

use serde_json::{Value, json};

use crate::knative::kinds::NAMESPACE;
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::Server;

/// The Service of the webhooks, and their paths.
const SERVICE: &str = "webhook";
const DEFAULTING: &str = "/defaulting";
const VALIDATION: &str = "/resource-validation";

/// Returns a webhook's response as the `response` of an AdmissionReview, with an unencoded patch. `None` if the Service
/// is not Knative's.
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
