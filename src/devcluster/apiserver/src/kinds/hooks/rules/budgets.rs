//! PodDisruptionBudgets.

use super::{at_most_all, count_or_percent, invalid, label_selector};
use crate::status::Cause;
use serde_json::Value;

/// Validates the spec of a PodDisruptionBudget.
pub(in crate::kinds::hooks) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let printed = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]
        );
        causes.push(invalid("spec", &printed, "minAvailable and maxUnavailable cannot be both set"));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let path = format!("spec.{field}");
        count_or_percent(&path, &spec[field], causes);
        at_most_all(&path, &spec[field], causes);
    }
    label_selector("spec.selector", &spec["selector"], causes);
    let policy = &spec["unhealthyPodEvictionPolicy"];
    let known = ["AlwaysAllow", "IfHealthyBudget"];
    if policy.as_str().is_some_and(|given| !known.contains(&given)) {
        causes.push(Cause::not_supported("spec.unhealthyPodEvictionPolicy", policy, &known));
    }
}
