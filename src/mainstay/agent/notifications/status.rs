//! The condition of Providers and Alerts.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::agent::kept::Name;
use mainstay_cluster::{Cluster, Kind};

/// Returns the conditions of a live object.
pub(super) fn conditions(live: &Value) -> Vec<Condition> {
    live.pointer("/status/conditions").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

/// Reads the conditions that another agent may have written. Those that cannot be read are none, so they are written again.
pub(super) async fn read(cluster: &Cluster, kind: &Kind, (namespace, name): &Name) -> Vec<Condition> {
    let live = cluster.get(kind, Some(namespace), name).await;
    live.ok().flatten().map(|live| conditions(&live)).unwrap_or_default()
}

/// Returns the patch of a status.
pub(super) fn patch(conditions: &[Condition], generation: Option<i64>) -> Value {
    json!({"status": {"observedGeneration": generation, "conditions": conditions}})
}
