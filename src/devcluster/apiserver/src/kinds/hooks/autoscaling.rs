//! HorizontalPodAutoscalers in both versions.
//!
//! Stored as `autoscaling/v2`. Annotations
//! `autoscaling.alpha.kubernetes.io/{metrics,behavior,conditions,current-metrics}` carry the fields that v1 lacks.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, items};
use super::rules;
use crate::status::Cause;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";

/// Sets defaults: at least one replica, and 80 % of the requested CPU if there are no metrics.
pub(super) fn default(api_version: &str, object: &mut Object) {
    if let Some(status) = object.inner("status") {
        status.value("desiredReplicas", 0);
        let counts = if api_version == "autoscaling/v1" { "currentReplicas" } else { "currentMetrics" };
        let empty = if api_version == "autoscaling/v1" { Value::from(0) } else { Value::Null };
        status.value(counts, empty);
    }
    let Some(spec) = object.object("spec") else { return };
    spec.value("minReplicas", 1);
    if api_version == "autoscaling/v2" {
        spec.drop_zero(&["metrics"]);
        spec.value("metrics", json!([cpu(&80.into())]));
        for (direction, window) in [("scaleUp", 0), ("scaleDown", 300)] {
            let Some(rules) = spec.inner("behavior").and_then(|b| b.inner(direction)) else { continue };
            if direction == "scaleUp" {
                rules.value("stabilizationWindowSeconds", window);
            }
            rules.text("selectPolicy", "Max");
            rules.value(
                "policies",
                if direction == "scaleUp" {
                    json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}])
                } else {
                    json!([{"type": "Percent", "value": 100, "periodSeconds": 15}])
                },
            );
        }
    }
}

fn cpu(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// Validates an autoscaler.
pub(super) fn validate(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let most = spec["maxReplicas"].as_i64().unwrap_or(0);
    if let Some(least) = spec["minReplicas"].as_i64().filter(|least| *least < 1) {
        causes.push(Cause::invalid("spec.minReplicas", &least.into(), "must be greater than or equal to 1"));
    }
    if most == 0 {
        causes.push(Cause::required("spec.maxReplicas", "must be set and greater than 0"));
    } else if most < 0 {
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), "must be greater than or equal to 1"));
    }
    if spec["minReplicas"].as_i64().is_some_and(|least| most < least) {
        let why = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &most.into(), why));
    }
    rules::autoscalers::validate(spec, causes);
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && at(metric, &["resource", "name"]) == "cpu"
        && at(metric, &["resource", "target", "type"]) == "Utilization"
}

/// Converts an autoscaler to the other version.
pub(super) fn convert(object: &Value, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    if to == "autoscaling/v1" {
        to_v1(&mut object);
    } else {
        to_v2(&mut object);
    }
    object
}

fn to_v1(object: &mut Value) {
    let mut notes: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = object["spec"].as_object_mut() {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let (cpu, others): (Vec<&Value>, Vec<&Value>) = items(&metrics, &[]).iter().partition(|m| is_cpu(m));
        if let Some(target) = cpu.first() {
            let percent = at(target, &["resource", "target", "averageUtilization"]).clone();
            spec.insert("targetCPUUtilizationPercentage".into(), percent);
        }
        if !others.is_empty() {
            notes.push((METRICS, json!(others).to_string()));
        }
        if let Some(behavior) = spec.remove("behavior") {
            notes.push((BEHAVIOR, behavior.to_string()));
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        let metrics = status.remove("currentMetrics").unwrap_or_default();
        let cpu = items(&metrics, &[]).iter().find(|m| at(m, &["resource", "name"]) == "cpu");
        let percent = cpu.map(|m| at(m, &["resource", "current", "averageUtilization"]).clone());
        if let Some(percent) = percent.filter(|p| !p.is_null()) {
            status.insert("currentCPUUtilizationPercentage".into(), percent);
        }
        if metrics.is_array() {
            notes.push((CURRENT, metrics.to_string()));
        }
        if let Some(conditions) = status.remove("conditions") {
            notes.push((CONDITIONS, conditions.to_string()));
        }
        status.value("currentReplicas", 0);
        status.value("desiredReplicas", 0);
    }
    for (key, note) in notes {
        object["metadata"]["annotations"][key] = note.into();
    }
}

fn to_v2(object: &mut Value) {
    let mut noted = |key: &str| -> Option<Value> {
        let annotations = object["metadata"]["annotations"].as_object_mut()?;
        let note = annotations.remove(key)?;
        serde_json::from_str(note.as_str().unwrap_or_default()).ok()
    };
    let (metrics, behavior, conditions, current) = (noted(METRICS), noted(BEHAVIOR), noted(CONDITIONS), noted(CURRENT));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.drop_zero(&["annotations"]);
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        let mut list = metrics.and_then(|m| m.as_array().cloned()).unwrap_or_default();
        if let Some(percent) = spec.remove("targetCPUUtilizationPercentage").filter(|p| !p.is_null()) {
            list.insert(0, cpu(&percent));
        }
        if !list.is_empty() {
            spec.insert("metrics".into(), list.into());
        }
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        status.remove("currentCPUUtilizationPercentage");
        status.insert("currentMetrics".into(), current.unwrap_or_default());
        status.drop_zero(&["currentReplicas"]);
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_v2_through_v1_and_back() {
        let v2 = json!({
            "apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "minReplicas": 1, "metrics": [cpu(&60.into()), {"type": "Pods", "pods": {}}], "behavior": {"scaleUp": {}}},
            "status": {"desiredReplicas": 0, "currentMetrics": null},
        });
        let v1 = convert(&v2, "autoscaling/v1");
        assert_eq!(v1["spec"], json!({"maxReplicas": 3, "minReplicas": 1, "targetCPUUtilizationPercentage": 60}));
        assert_eq!(v1["metadata"]["annotations"][METRICS], r#"[{"pods":{},"type":"Pods"}]"#);
        assert_eq!(convert(&v1, "autoscaling/v2"), v2);
    }
}
