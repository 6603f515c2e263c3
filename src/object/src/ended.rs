//! Determines whether a live object has ended: a finished Job, or a terminated Pod.
//!
//! Not here: the consequences. A garbage collector may delete such an object without causing drift.

use serde_json::Value;

use super::Key;

/// How an object ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The object succeeded.
    Succeeded,
    /// The object failed and is not retried.
    Failed,
}

/// Returns whether objects of this kind can end.
pub fn can_end(key: &Key) -> bool {
    key.is("batch", "Job") || key.is("", "Pod")
}

/// Returns how a live object ended, if it did. A Pod that is being deleted has not ended by itself.
pub fn ended(key: &Key, live: &Value) -> Option<Ended> {
    if key.is("batch", "Job") {
        let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
        let is = |kind: &str| conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True");
        return match (is("Complete"), is("Failed")) {
            (_, true) => Some(Ended::Failed),
            (true, false) => Some(Ended::Succeeded),
            (false, false) => None,
        };
    }
    // A Pod with the policy `Always` that ended was evicted or lost its node, so it must be reverted.
    let policy = live.pointer("/spec/restartPolicy").and_then(Value::as_str);
    let is_to_end = matches!(policy, Some("Never" | "OnFailure"));
    if !key.is("", "Pod") || !is_to_end || live.pointer("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    match live.pointer("/status/phase").and_then(Value::as_str) {
        Some("Succeeded") => Some(Ended::Succeeded),
        Some("Failed") => Some(Ended::Failed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn jobs_end_by_their_conditions_and_pods_by_their_phase() {
        let (job, pod) = (Key::new("batch", "Job", Some("a"), "b"), Key::new("", "Pod", Some("a"), "b"));
        let with = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        assert_eq!(ended(&job, &with("Complete", "True")), Some(Ended::Succeeded));
        assert_eq!(ended(&job, &with("Failed", "True")), Some(Ended::Failed));
        assert_eq!(ended(&job, &with("FailureTarget", "True")), None, "its pods are still being ended");
        assert_eq!(ended(&job, &with("Complete", "False")), None);
        let phase = |phase: &str| ended(&pod, &json!({"spec": {"restartPolicy": "Never"}, "status": {"phase": phase}}));
        assert_eq!((phase("Succeeded"), phase("Failed")), (Some(Ended::Succeeded), Some(Ended::Failed)));
        assert_eq!((phase("Running"), phase("Pending")), (None, None));
        let evicted = json!({"spec": {"restartPolicy": "Always"}, "status": {"phase": "Failed", "reason": "Evicted"}});
        assert_eq!(ended(&pod, &evicted), None);
        let deleted = json!({
            "metadata": {"deletionTimestamp": "x"}, "spec": {"restartPolicy": "Never"}, "status": {"phase": "Failed"},
        });
        assert_eq!(ended(&pod, &deleted), None);
        let other = Key::new("", "ConfigMap", Some("a"), "b");
        assert_eq!(ended(&other, &json!({"status": {"phase": "Succeeded"}})), None);
    }
}
