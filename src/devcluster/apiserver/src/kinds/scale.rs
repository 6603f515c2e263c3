//! The replicas of an object as an `autoscaling/v1` Scale.
//!
//! Not here: reading and writing a Scale through the API (`verbs::scale`).

use super::table::{Kind, ScalePaths};
use crate::object::text;
use serde_json::{Value, json};

/// Returns the paths of the kind's replicas.
pub(crate) fn paths(kind: &Kind) -> ScalePaths {
    kind.custom.as_ref().and_then(|c| c.scale.clone()).unwrap_or_else(|| ScalePaths {
        spec: "/spec/replicas".to_owned(),
        status: "/status/replicas".to_owned(),
        selector: None,
    })
}

/// Returns the Scale of an object.
pub fn of(kind: &Kind, object: &Value) -> Value {
    let paths = paths(kind);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match &paths.selector {
        Some(pointer) => text(object, pointer).to_owned(),
        None => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    // Zero is omitted in the spec, but not in the status.
    let spec = match number(&paths.spec) {
        0 => json!({}),
        wanted => json!({"replicas": wanted}),
    };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// Formats a label selector as text.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").or(Some(selector)).and_then(Value::as_object);
    let mut terms: Vec<String> =
        labels.into_iter().flatten().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let name = text(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match text(expression, "/operator") {
            "In" => terms.push(format!("{name} in ({})", values.join(","))),
            "NotIn" => terms.push(format!("{name} notin ({})", values.join(","))),
            "Exists" => terms.push(name.to_owned()),
            _ => terms.push(format!("!{name}")),
        }
    }
    terms.join(",")
}

/// Sets the desired replicas of an object.
pub(crate) fn set_replicas(kind: &Kind, object: &mut Value, replicas: Value) {
    let mut at = object;
    for part in paths(kind).spec.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = replicas;
}
