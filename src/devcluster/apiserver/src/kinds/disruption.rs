//! The condition of a PodDisruptionBudget: whether it allows evictions now.

use crate::object::conditions;
use serde_json::{Value, json};

/// Returns the conditions of a budget with this number of allowed disruptions.
pub fn allowing(budget: &Value, allowed: i64, generation: &Value, now: &Value) -> Value {
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_condition(budget, status, reason, "", generation, now)
}

/// Returns the conditions of a budget. The transition time is kept if the status does not change.
pub fn set_condition(
    budget: &Value,
    status: &str,
    reason: &str,
    message: &str,
    generation: &Value,
    now: &Value,
) -> Value {
    let old = conditions(budget).iter().find(|c| c["type"] == "DisruptionAllowed" && c["status"] == status);
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": old.map_or(now, |c| &c["lastTransitionTime"]),
    });
    if !generation.is_null() {
        condition["observedGeneration"] = generation.clone();
    }
    json!([condition])
}
