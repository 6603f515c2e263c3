//! Whether a CustomResourceDefinition is allowed.

use serde_json::Value;

use super::structural;
use crate::status::Cause;

/// Everything that is wrong with a definition (after defaulting).
pub fn validate_definition(definition: &Value) -> Vec<Cause> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten().enumerate();
    versions
        .filter_map(|(i, version)| {
            let path = format!("spec.versions[{i}].schema.openAPIV3Schema");
            structural::load(version.get("schema")?.get("openAPIV3Schema")?, false, &path).err()
        })
        .flatten()
        .collect()
}
