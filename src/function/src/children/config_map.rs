//! The ConfigMap with an inline Function's source and dependency file for its build.

use serde_json::{Value, json};

use super::metadata;
use crate::{Code, ResolvedFunction};
use mainstay_api::names;

/// Returns the ConfigMap; `None` for a Git Function.
pub fn build(function: &ResolvedFunction, name: &str) -> Option<Value> {
    let Code::Inline { source, dependencies } = &function.code else { return None };
    Some(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(function, name),
        "data": { names::SOURCE_KEY: source, names::DEPENDENCIES_KEY: dependencies }
    }))
}
