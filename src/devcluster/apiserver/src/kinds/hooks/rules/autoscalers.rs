//! Validation of HorizontalPodAutoscalers: target, metrics and behavior.

use crate::kinds::hooks::{
    fill::{items, text},
    metadata::{NameRule, label_fault, name_fault},
};
use crate::status::Cause;
use serde_json::Value;

/// The metric types and their fields, in the order of a real server.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// Validates the spec of an autoscaler (`autoscaling/v2`), except for its replica counts.
pub(in crate::kinds::hooks) fn validate(spec: &Value, causes: &mut Vec<Cause>) {
    reference(&spec["scaleTargetRef"], "spec.scaleTargetRef", causes);
    let metrics = items(spec, &["metrics"]);
    for (index, metric) in metrics.iter().enumerate() {
        source(metric, &format!("spec.metrics[{index}]"), causes);
    }
    let elsewhere = metrics.iter().any(|m| matches!(text(m, &["type"]), "Object" | "External"));
    if spec["minReplicas"] == 0 && !elsewhere {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        causes.push(Cause::forbidden("spec.metrics", why));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if rules.is_object() {
            scaling(rules, &format!("spec.behavior.{direction}"), causes);
        }
    }
}

fn reference(reference: &Value, here: &str, causes: &mut Vec<Cause>) {
    for part in ["kind", "name"] {
        let (field, value) = (format!("{here}.{part}"), text(reference, &[part]));
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        } else if let Some(why) = name_fault(value, NameRule::PathSegment) {
            causes.push(Cause::invalid(field, &value.into(), &why));
        }
    }
    let version = text(reference, &["apiVersion"]);
    let why = match version.matches('/').count() {
        0 => "apiVersion must specify API group".to_owned(),
        1 => return,
        _ => format!("unexpected GroupVersion string: {version}"),
    };
    causes.push(Cause::invalid(format!("{here}.apiVersion"), &version.into(), &why));
}

fn source(metric: &Value, here: &str, causes: &mut Vec<Cause>) {
    let kind = text(metric, &["type"]);
    let field = format!("{here}.type");
    if kind.is_empty() {
        causes.push(Cause::required(&field, "must specify a metric source type"));
    }
    let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let unknown = || Cause::not_supported(&field, &kind.into(), &known);
    if !known.contains(&kind) {
        causes.push(unknown());
    }
    let present: Vec<&str> =
        SOURCES.iter().map(|(_, field)| *field).filter(|field| !metric[*field].is_null()).collect();
    if let Some(first) = present.first() {
        details(first, &metric[*first], &format!("{here}.{first}"), causes);
    }
    let expected = SOURCES.iter().find(|(source, _)| *source == kind).map(|(_, field)| *field);
    match expected {
        Some(expected) if metric[expected].is_null() => {
            let why = "must populate information for the given metric source";
            causes.push(Cause::required(format!("{here}.{expected}"), why));
        }
        None => causes.push(unknown()),
        _ => {}
    }
    if present.len() > 1 {
        for other in present.iter().filter(|field| Some(**field) != expected) {
            let why = "must populate the given metric source only";
            causes.push(Cause::forbidden(format!("{here}.{other}"), why));
        }
    }
}

fn details(source: &str, of: &Value, here: &str, causes: &mut Vec<Cause>) {
    let measured = &of["target"];
    let (value, average, share) = (&measured["value"], &measured["averageValue"], &measured["averageUtilization"]);
    let at = |field: &str| format!("{here}.target.{field}");
    match source {
        "object" => reference(&of["describedObject"], &format!("{here}.describedObject"), causes),
        "resource" | "containerResource" if text(of, &["name"]).is_empty() => {
            causes.push(Cause::required(format!("{here}.name"), "must specify a resource name"));
        }
        _ => {}
    }
    if source == "containerResource" {
        let (field, name) = (format!("{here}.container"), text(of, &["container"]));
        if name.is_empty() {
            causes.push(Cause::required(field, "must specify a container"));
        } else if let Some(why) = label_fault(name) {
            causes.push(Cause::invalid(field, &name.into(), &why));
        }
    }
    if matches!(source, "object" | "external" | "pods") {
        let (field, name) = (format!("{here}.metric.name"), text(of, &["metric", "name"]));
        if name.is_empty() {
            causes.push(Cause::required(field, "must specify a metric name"));
        } else if let Some(why) = name_fault(name, NameRule::PathSegment) {
            causes.push(Cause::invalid(field, &name.into(), &why));
        }
    }
    target(measured, &format!("{here}.target"), causes);
    match source {
        "object" if value.is_null() && average.is_null() => {
            causes.push(Cause::required(at("averageValue"), "must set either a target value or averageValue"));
        }
        "external" if value.is_null() && average.is_null() => {
            let why = "must set either a target value for metric or a per-pod target";
            causes.push(Cause::required(at("averageValue"), why));
        }
        "external" if !value.is_null() && !average.is_null() => {
            let why = "may not set both a target value for metric and a per-pod target";
            causes.push(Cause::forbidden(at("value"), why));
        }
        "pods" if average.is_null() => {
            causes.push(Cause::required(at("averageValue"), "must specify a positive target averageValue"));
        }
        "resource" | "containerResource" if share.is_null() && average.is_null() => {
            let why = "must set either a target raw value or a target utilization";
            causes.push(Cause::required(at("averageUtilization"), why));
        }
        "resource" | "containerResource" if !share.is_null() && !average.is_null() => {
            let why = "may not set both a target raw value and a target utilization";
            causes.push(Cause::forbidden(at("averageValue"), why));
        }
        _ => {}
    }
}

fn target(target: &Value, here: &str, causes: &mut Vec<Cause>) {
    let kind = text(target, &["type"]);
    if kind.is_empty() {
        causes.push(Cause::required(format!("{here}.type"), "must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let why = "must be either Utilization, Value, or AverageValue";
        causes.push(Cause::invalid(format!("{here}.type"), &kind.into(), why));
    }
    for field in ["value", "averageValue"] {
        if !target[field].is_null() && !is_positive(&target[field]) {
            causes.push(Cause::invalid(format!("{here}.{field}"), &target[field], "must be positive"));
        }
    }
    let share = &target["averageUtilization"];
    if share.as_i64().is_some_and(|share| share < 1) {
        causes.push(Cause::invalid(format!("{here}.averageUtilization"), share, "must be greater than 0"));
    }
}

/// Returns whether a quantity is larger than zero.
fn is_positive(quantity: &Value) -> bool {
    let Some(text) = quantity.as_str() else { return quantity.as_f64().is_some_and(|n| n > 0.0) };
    let number = text.split(['e', 'E']).next().unwrap_or_default();
    !text.starts_with('-') && number.bytes().any(|b| (b'1'..=b'9').contains(&b))
}

fn scaling(rules: &Value, here: &str, causes: &mut Vec<Cause>) {
    let window = &rules["stabilizationWindowSeconds"];
    let field = format!("{here}.stabilizationWindowSeconds");
    match window.as_i64() {
        Some(seconds) if seconds < 0 => {
            causes.push(Cause::invalid(field, window, "must be greater than or equal to zero"));
        }
        Some(seconds) if seconds > 3600 => {
            causes.push(Cause::invalid(field, window, "must be less than or equal to 3600"));
        }
        _ => {}
    }
    let chosen = &rules["selectPolicy"];
    let known = ["Disabled", "Max", "Min"];
    if chosen.as_str().is_some_and(|given| !known.contains(&given)) {
        causes.push(Cause::not_supported(format!("{here}.selectPolicy"), chosen, &known));
    }
    let policies = items(rules, &["policies"]);
    if policies.is_empty() {
        causes.push(Cause::required(format!("{here}.policies"), "must specify at least one Policy"));
    }
    for (index, policy) in policies.iter().enumerate() {
        let here = format!("{here}.policies[{index}]");
        let known = ["Percent", "Pods"];
        let kind = text(policy, &["type"]);
        if !known.contains(&kind) {
            causes.push(Cause::not_supported(format!("{here}.type"), &kind.into(), &known));
        }
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or(0);
            if number <= 0 {
                causes.push(Cause::invalid(format!("{here}.{field}"), &number.into(), "must be greater than zero"));
            } else if field == "periodSeconds" && number > 1800 {
                let why = "must be less than or equal to 1800";
                causes.push(Cause::invalid(format!("{here}.{field}"), &number.into(), why));
            }
        }
    }
    if rules["tolerance"].as_str().is_some_and(|tolerance| tolerance.starts_with('-')) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid(format!("{here}.tolerance"), &rules["tolerance"], why));
    }
}
