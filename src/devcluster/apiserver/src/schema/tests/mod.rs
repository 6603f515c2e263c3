//! Validation of definitions, and the effect of their schemas on objects.

mod builtin;
mod custom;
mod definition;
mod rules;

use serde_json::Value;

use super::{Schema, structural, validate};
use crate::status::Cause;

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

/// Returns a schema whose `spec` has these properties.
fn schema(properties: &str) -> Schema {
    let mut root = yaml("{type: object, properties: {spec: {type: object}}}");
    root["properties"]["spec"]["properties"] = yaml(properties);
    structural(&root, false).unwrap()
}

/// Formats causes as `field: message (reason)`, without the common prefix of reasons.
fn show(causes: &[Cause]) -> String {
    let line = |c: &Cause| format!("{}: {} ({})", c.field, c.message, c.reason.trim_start_matches("FieldValue"));
    causes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn findings(schema: &Schema, spec: &str) -> String {
    let object =
        serde_json::json!({"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": yaml(spec)});
    show(&validate(schema, &object, None))
}
