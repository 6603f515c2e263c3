//! Validates an applied configuration against its schema, with the error texts of a real server's typed converter.
//!
//! Server-side apply is always strict. An unknown field, a wrong type or a duplicate list item is an error, regardless
//! of the request's field validation.

use std::collections::BTreeSet;

use serde_json::Value;

use super::element::element;
use crate::schema::node::{Array, List, Scalar, Shape, View};

/// Checks a configuration. The error contains all findings.
pub(crate) fn check(view: View<'_>, value: &Value) -> Result<(), String> {
    let mut findings = Vec::new();
    visit(view, value, "", &mut findings);
    match findings.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        _ => Err(format!("errors:\n  {}", findings.join("\n  "))),
    }
}

fn visit(view: View<'_>, value: &Value, path: &str, findings: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    match &view.node.shape {
        Shape::Any | Shape::Opaque => {}
        Shape::Scalar(scalar) => {
            if let Some(finding) = mismatch(*scalar, value) {
                findings.push(place(path, &finding));
            }
        }
        Shape::Object(object) => {
            let Value::Object(map) = value else {
                findings.push(place(path, &format!("expected map, got &{{{}}}", plain(value))));
                return;
            };
            for (key, child) in map {
                // Only findings need a path, and most values are valid scalars.
                match object.properties.get(key).copied().or(object.additional) {
                    None => findings.push(format!("{path}.{key}: field not declared in schema")),
                    Some(id) => match (&view.at(id).node.shape, child) {
                        (Shape::Scalar(Scalar::String), Value::String(_)) => {}
                        _ => visit(view.at(id), child, &format!("{path}.{key}"), findings),
                    },
                }
            }
        }
        Shape::Array(array) => visit_list(view, array, value, path, findings),
    }
}

fn visit_list(view: View<'_>, array: &Array, value: &Value, path: &str, findings: &mut Vec<String>) {
    let Value::Array(items) = value else {
        findings.push(place(path, &format!("expected list, got &{{{}}}", plain(value))));
        return;
    };
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let step = if array.list == List::Atomic {
            format!("[{i}]")
        } else {
            match element(&array.list, item) {
                Err(why) => {
                    findings.push(place(path, &format!("element {i}: {why}")));
                    continue;
                }
                Ok(element) => {
                    let shown = element.show();
                    if !seen.insert(element) {
                        findings.push(place(path, &format!("duplicate entries for key {shown}")));
                    }
                    shown
                }
            }
        };
        visit(view.at(array.items), item, &format!("{path}{step}"), findings);
    }
}

fn place(path: &str, finding: &str) -> String {
    if path.is_empty() { finding.to_owned() } else { format!("{path}: {finding}") }
}

fn mismatch(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::String | Scalar::Bytes | Scalar::Time | Scalar::MicroTime => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", literal(value))),
        Scalar::Int32 | Scalar::Int64 | Scalar::Number => {
            (!value.is_number()).then(|| format!("expected numeric (int or float), got {}", type_name(value)))
        }
        Scalar::Boolean => (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", plain(value))),
        Scalar::IntOrString | Scalar::Quantity => {
            (value.is_array() || value.is_object()).then(|| format!("expected any scalar, got &{{{}}}", plain(value)))
        }
    }
}

/// Formats a value like Go's `%v`.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs = map.iter().map(|(k, v)| format!("{k}:{}", plain(v))).collect::<Vec<_>>();
            format!("map[{}]", pairs.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// Formats a value like Go's `%#v`.
fn literal(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) => {
            let pairs = map.iter().map(|(k, v)| format!("{k:?}:{}", literal(v))).collect::<Vec<_>>();
            format!("map[string]interface {{}}{{{}}}", pairs.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
