//! The condition of Providers and Alerts.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use mainstay_api::conditions::{self, Reason, Type};
use mainstay_cluster::{Cluster, Kind, Part};
use mainstay_object::failure::chain;

/// The state that a condition shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Whether only a change of the spec helps.
    pub(super) is_stalled: bool,
}

impl State {
    pub(super) fn ready(message: impl Into<String>) -> Self {
        Self { reason: Reason::Sending, message: message.into(), is_stalled: false }
    }

    pub(super) fn not_ready(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), is_stalled: false }
    }

    pub(super) fn invalid(reason: Reason, problems: &[String]) -> Self {
        Self { reason, message: problems.join("; "), is_stalled: true }
    }
}

/// Returns the conditions of a live object.
pub(super) fn conditions(live: &Value) -> Vec<Condition> {
    live.pointer("/status/conditions").and_then(|all| serde_json::from_value(all.clone()).ok()).unwrap_or_default()
}

/// Returns the conditions after a state.
pub(super) fn after(old: &[Condition], state: &State, generation: Option<i64>, now: Timestamp) -> Vec<Condition> {
    let mut new = old.to_vec();
    let ready = if state.reason == Reason::Sending { "True" } else { "False" };
    conditions::set(&mut new, Type::Ready, ready, state.reason, &state.message, generation, now);
    new.retain(|condition| state.is_stalled || condition.type_ != Type::Stalled.as_str());
    if state.is_stalled {
        conditions::set(&mut new, Type::Stalled, "True", state.reason, &state.message, generation, now);
    }
    new
}

/// Writes a status. Returns whether it is written, or its object is gone.
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
