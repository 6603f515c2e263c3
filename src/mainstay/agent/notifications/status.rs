//! The condition of Providers and Alerts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

/// Returns the conditions of a live object.
pub(super) fn conditions(live: &Value) -> Vec<Condition> {
    live.pointer("/status/conditions").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

/// Returns the patch of a status.
pub(super) fn patch(conditions: &[Condition], generation: Option<i64>) -> Value {
    json!({"status": {"observedGeneration": generation, "conditions": conditions}})
}
