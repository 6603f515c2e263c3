//! Applies the defaults of a custom resource's schema, and removes fields of built-in objects that Go would omit.
//!
//! Not here: the defaults of built-in kinds, which are code (`kinds::hooks`).

use serde_json::{Map, Value};

use super::node::{Object, Schema, Shape, View};

/// Sets declared defaults at any depth of the existing value. A `null` counts as missing if the field has a default and
/// is not nullable.
pub fn apply_defaults(schema: &Schema, value: &mut Value) {
    fill(schema.view(), value);
    forget_nulls(schema.view(), value);
}

/// Removes remaining nulls that are not allowed.
fn forget_nulls(view: View<'_>, value: &mut Value) {
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) => map.retain(|key, child| {
            let Some(id) = object.properties.get(key).copied().or(object.additional) else { return true };
            let below = view.at(id);
            if child.is_null() && !below.node.nullable && !matches!(below.node.shape, Shape::Any) {
                return false;
            }
            forget_nulls(below, child);
            true
        }),
        (Shape::Array(array), Value::Array(items)) => {
            for item in items {
                forget_nulls(view.at(array.items), item);
            }
        }
        _ => {}
    }
}

fn fill(view: View<'_>, value: &mut Value) {
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) => {
            for (name, id) in &object.properties {
                let Some(default) = &view.at(*id).node.default else { continue };
                let stands_in = |v: &Value| v.is_null() && !view.at(*id).node.nullable;
                if map.get(name).is_none_or(stands_in) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, child) in map.iter_mut() {
                if let Some(id) = object.properties.get(key).copied().or(object.additional) {
                    let child_view = view.at(id);
                    replace_null(child_view, child);
                    fill(child_view, child);
                }
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            let item_view = view.at(array.items);
            for item in items {
                replace_null(item_view, item);
                fill(item_view, item);
            }
        }
        _ => {}
    }
}

fn replace_null(view: View<'_>, value: &mut Value) {
    if let (Value::Null, Some(default), false) = (&*value, &view.node.default, view.node.nullable) {
        *value = default.clone();
    }
}

/// Optional fields that are written as `null` when empty: a HorizontalPodAutoscaler's metrics and an Event's times.
const WRITTEN_NULL: [&str; 4] = ["currentMetrics", "eventTime", "firstTimestamp", "lastTimestamp"];

fn is_written_null(object: &Object, key: &str, field: View<'_>) -> bool {
    WRITTEN_NULL.contains(&key)
        || matches!(field.node.shape, Shape::Array(_)) && object.required.iter().any(|required| required == key)
}

/// Normalises a built-in object as if Go had decoded and encoded it: removes `null` fields and omittable empty
/// collections, and replaces `null` in maps by zero values.
pub fn normalise(schema: &Schema, value: &mut Value) {
    tidy(schema.view(), value);
}

fn tidy(view: View<'_>, value: &mut Value) {
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) => map.retain(|key, child| {
            let Some(id) = object.properties.get(key).copied() else {
                if let Some(id) = object.additional {
                    zero(view.at(id), child);
                    tidy(view.at(id), child);
                }
                return true;
            };
            let child_view = view.at(id);
            tidy(child_view, child);
            match child {
                Value::Null => is_written_null(object, key, child_view),
                Value::Array(items) => !items.is_empty() || object.required.contains(key),
                Value::Object(fields) => {
                    !fields.is_empty() || !is_free_map(child_view) || object.required.contains(key)
                }
                _ => true,
            }
        }),
        (Shape::Array(array), Value::Array(items)) => {
            for item in items {
                zero(view.at(array.items), item);
                tidy(view.at(array.items), item);
            }
        }
        _ => {}
    }
}

fn is_free_map(view: View<'_>) -> bool {
    view.object().is_some_and(|o| o.properties.is_empty())
}

/// Replaces a `null` in a map or list by the zero value of its type.
fn zero(view: View<'_>, value: &mut Value) {
    if !value.is_null() {
        return;
    }
    match &view.node.shape {
        Shape::Scalar(super::node::Scalar::String) => *value = "".into(),
        Shape::Object(object) if !object.properties.is_empty() => *value = Value::Object(Map::new()),
        _ => {}
    }
}
