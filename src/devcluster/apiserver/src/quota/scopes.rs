//! Scopes of quotas, which restrict a quota to certain pods.

use serde_json::Value;

/// Returns whether a quota with this spec applies to an object.
pub(super) fn fit(spec: &Value, plural: &str, object: &Value) -> bool {
    let plain = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let is_pod = plural == "pods";
    plain.into_iter().all(|scope| is_pod && has(object, scope, "Exists", &Value::Null))
        && selected.into_iter().all(|term| {
            let text = |field: &str| term[field].as_str().unwrap_or_default();
            is_pod && has(object, text("scopeName"), text("operator"), &term["values"])
        })
}

/// Returns whether a pod is in a scope.
fn has(pod: &Value, scope: &str, operator: &str, values: &Value) -> bool {
    let spec = &pod["spec"];
    let ends = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let best_effort = pod["status"]["qosClass"] == "BestEffort";
    match scope {
        "Terminating" => ends,
        "NotTerminating" => !ends,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().unwrap_or_default();
            let listed = values.as_array().is_some_and(|values| values.iter().any(|value| value == class));
            match operator {
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => {
            crosses(&spec["affinity"]["podAffinity"]) || crosses(&spec["affinity"]["podAntiAffinity"])
        }
        _ => false,
    }
}

fn crosses(affinity: &Value) -> bool {
    let list = |field: &str| affinity[field].as_array().cloned().unwrap_or_default();
    let required = list("requiredDuringSchedulingIgnoredDuringExecution");
    let preferred = list("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = preferred.into_iter().map(|weighted| weighted["podAffinityTerm"].clone());
    required.into_iter().chain(preferred).any(|term| {
        term["namespaces"].as_array().is_some_and(|list| !list.is_empty()) || !term["namespaceSelector"].is_null()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scopes_choose_pods() {
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high"}, "status": {"qosClass": "Burstable"}});
        let class = |operator: &str, values: Value| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        for (spec, expected) in [
            (json!({}), true),
            (json!({"scopes": ["Terminating"]}), true),
            (json!({"scopes": ["Terminating", "BestEffort"]}), false),
            (json!({"scopes": ["NotBestEffort"]}), true),
            (class("In", json!(["high", "low"])), true),
            (class("NotIn", json!(["high"])), false),
            (class("Exists", Value::Null), true),
        ] {
            assert_eq!(fit(&spec, "pods", &pod), expected, "{spec}");
        }
        assert!(!fit(&json!({"scopes": ["NotTerminating"]}), "services", &json!({})));
    }
}
