//! The parts of GitSyncs, GitRepositories, Functions and Receivers that are kept in memory.
//!
//! Invariant: `managedFields` and irrelevant annotations, labels and owners are dropped. The remaining fields count
//! against the memory of the namespace.
//!
//! Not here: the handling of objects that lack memory.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};

use mainstay_api::conditions::Reason;
use mainstay_api::names::{ANNOTATION_PREFIX, FLUX_EVENT_PREFIX, FLUX_REQUESTED_AT};
use mainstay_engine::managed::memory_limit;

/// Namespace and name.
pub(super) type Name = (String, String);

/// Fields of `metadata` that are kept, besides Mainstay's annotations.
const METADATA: [&str; 9] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
    "annotations",
];

/// Whether labels are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    /// Labels are kept.
    Kept,
    /// Labels are dropped.
    Dropped,
}

/// Step of counted memory, in bytes, so that a change of a status rarely needs more.
const STEP: usize = 4 << 10;

/// Returns the creation time of an object. An object without a creation time counts as the oldest.
pub(super) fn since_of(live: &Value) -> Timestamp {
    let text = live.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or(Timestamp::MIN)
}

/// Removes unneeded fields from an object.
pub(super) fn trim(object: &mut Value, labels: Labels) {
    // The history is not kept. A GitSync reads it when it adds an entry.
    object.get_mut("status").and_then(Value::as_object_mut).map(|status| status.remove("history"));
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, _| METADATA.contains(&name.as_str()) || labels == Labels::Kept && name == "labels");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        let prefixes = [ANNOTATION_PREFIX, FLUX_EVENT_PREFIX];
        let is_kept = |name: &str| name == FLUX_REQUESTED_AT || prefixes.iter().any(|prefix| name.starts_with(prefix));
        annotations.retain(|name, _| is_kept(name));
    }
}

/// Returns the approximate memory of an object, in bytes.
pub(super) fn memory(value: &Value) -> usize {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::Object(fields) => fields.iter().map(|(name, field)| name.len() + memory(field)).sum(),
        _ => 0,
    };
    own + size_of::<Value>()
}

/// Returns the counted memory: `each`, and `copies` of an object of this size.
pub(super) const fn counted(each: usize, copies: usize, bytes: usize) -> usize {
    (each + copies.saturating_mul(bytes)).next_multiple_of(STEP)
}

/// Returns the message for an object that lacks memory. The object would fit with a total budget of `needed` bytes.
pub(super) fn no_memory(bytes: usize, needed: usize) -> String {
    format!(
        "the agent has no memory left for this namespace to keep the object ({} KiB); set limits.memory of the \
         agent's Deployment to at least {}Mi, which is also enough for the objects that wait longer; or delete unused \
         objects of the namespace, or make this object smaller",
        bytes.div_ceil(1 << 10),
        memory_limit(needed).div_ceil(1 << 20)
    )
}

/// Returns the status with this condition set to False, because there is no memory.
pub(super) fn status_without_memory(live: &Value, condition: &str, why: String, now: Timestamp) -> Value {
    let known = live.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([]));
    let mut conditions: Vec<Condition> = serde_json::from_value(known).unwrap_or_default();
    let old = conditions.iter().position(|known| known.type_ == condition).map(|at| conditions.remove(at));
    let since = old.filter(|old| old.status == "False").map(|old| old.last_transition_time);
    conditions.insert(
        0,
        Condition {
            type_: condition.to_owned(),
            status: "False".to_owned(),
            reason: Reason::MemoryExhausted.as_str(),
            message: why,
            last_transition_time: since.unwrap_or(Time(now)),
            observed_generation: live.pointer("/metadata/generation").and_then(Value::as_i64),
        },
    );
    json!({"status": {"conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irrelevant_fields_take_no_memory() {
        let fat = "x".repeat(200 << 10);
        let mut object = json!({
            "metadata": {
                "name": "a", "namespace": "shop", "uid": "1", "labels": {"a": "b"}, "finalizers": ["x"],
                "annotations": {"mainstay.dev/requestedAt": "now", "reconcile.fluxcd.io/requestedAt": "now", "event.toolkit.fluxcd.io/commit": "0", "kubectl.kubernetes.io/last-applied-configuration": fat},
                "managedFields": [{"manager": fat}], "ownerReferences": [{"name": fat}], "selfLink": fat,
            },
            "spec": {"gitRepository": "a"},
        });
        let mut labelled = object.clone();
        trim(&mut object, Labels::Dropped);
        let annotations = json!({
            "mainstay.dev/requestedAt": "now", "reconcile.fluxcd.io/requestedAt": "now",
            "event.toolkit.fluxcd.io/commit": "0",
        });
        let metadata =
            json!({"name": "a", "namespace": "shop", "uid": "1", "finalizers": ["x"], "annotations": annotations});
        assert_eq!(object, json!({"metadata": metadata, "spec": {"gitRepository": "a"}}));
        assert!(memory(&object) < 1000);
        trim(&mut labelled, Labels::Kept);
        assert_eq!(labelled["metadata"]["labels"], json!({"a": "b"}));
    }

    #[test]
    fn other_conditions_stay() {
        let known = json!({"type": "Healthy", "status": "True", "reason": "Healthy", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let live = json!({"metadata": {"generation": 3}, "status": {"conditions": [known]}});
        let status = status_without_memory(&live, "Ready", no_memory(5000, 48 << 20), Timestamp::UNIX_EPOCH);
        let conditions = &status["status"]["conditions"];
        assert_eq!((&conditions[0]["reason"], &conditions[1]["type"]), (&json!("MemoryExhausted"), &json!("Healthy")));
        assert_eq!(conditions[0]["observedGeneration"], 3);
        let message = conditions[0]["message"].as_str().unwrap();
        assert!(message.contains("5 KiB") && message.contains("at least 160Mi"), "{message}");
    }
}
