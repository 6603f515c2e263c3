//! The condition of Providers and Alerts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use mainstay_cluster::{Cluster, Kind, Part};
use mainstay_object::failure::chain;

/// Returns the conditions of a live object.
pub(super) fn conditions(live: &Value) -> Vec<Condition> {
    live.pointer("/status/conditions").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

/// Writes a status. Returns true if the status was written or its object is gone.
pub(super) async fn write(
    cluster: &Cluster,
    kind: &Kind,
    (namespace, name): (&str, &str),
    conditions: &[Condition],
    generation: Option<i64>,
) -> bool {
    let patch = json!({"status": {"observedGeneration": generation, "conditions": conditions}});
    match cluster.patch_merge(kind, Some(namespace), name, Part::Status, &patch).await {
        Ok(_) => true,
        Err(error) if error.is_not_found() => true,
        Err(error) => {
            tracing::warn!(namespace, name, why = chain(&error), "status of this {} not written", kind.kind);
            false
        }
    }
}
