//! Removes unknown fields and reports their paths.
//!
//! Paths are ordered like those of a real server's strict decoder: depth first, keys in their order.

use std::fmt::Write as _;

use serde_json::Value;

use super::node::{Schema, Shape, View};

/// Removes every field that `schema` does not declare. Returns their paths: `spec.bogus`, `spec.items[0].extra`.
pub fn drop_unknown(schema: &Schema, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune(schema.view(), value, &mut String::new(), &mut unknown);
    unknown
}

fn prune(view: View<'_>, value: &mut Value, path: &mut String, unknown: &mut Vec<String>) {
    let length = path.len();
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) => map.retain(|key, child| {
            if length > 0 {
                path.push('.');
            }
            path.push_str(key);
            let known = object.properties.get(key).copied().or(object.additional);
            match known {
                Some(id) => prune(view.at(id), child, path, unknown),
                None => unknown.push(path.clone()),
            }
            path.truncate(length);
            known.is_some()
        }),
        (Shape::Array(array), Value::Array(items)) => {
            for (i, item) in items.iter_mut().enumerate() {
                // Writing to a String cannot fail.
                let _ = write!(path, "[{i}]");
                prune(view.at(array.items), item, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
