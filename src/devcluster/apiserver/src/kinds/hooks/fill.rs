//! Fills defaults into missing fields of untyped objects.
//!
//! In Go types, a missing field, `null` and (for plain strings) `""` are the same. [`Fill::text`] implements this rule
//! for plain strings, and [`Fill::value`] for all other types.
//!
//! Invariant: a field of an unexpected JSON type stays unchanged.

use serde_json::{Map, Value};

/// A JSON object.
pub(super) type Object = Map<String, Value>;

/// Access to fields that may be missing.
pub(super) trait Fill {
    /// Sets `key` if it is missing or null.
    fn value(&mut self, key: &str, value: impl Into<Value>);
    /// Sets `key` if it is missing, null or empty.
    fn text(&mut self, key: &str, value: &str);
    /// Returns the object under `key`, and creates it if missing; `None` for a value of another type.
    fn object(&mut self, key: &str) -> Option<&mut Object>;
    /// Returns the object under `key`, if there is one.
    fn inner(&mut self, key: &str) -> Option<&mut Object>;
    /// Returns the objects in the list under `key`.
    fn each(&mut self, key: &str) -> impl Iterator<Item = &mut Object>;
    /// Removes the fields among `keys` that hold a Go zero value, which Go omits.
    fn drop_zero(&mut self, keys: &[&str]);
    /// Returns the string under `key`; empty if missing.
    fn str(&self, key: &str) -> &str;
}

impl Fill for Object {
    fn value(&mut self, key: &str, value: impl Into<Value>) {
        if self.get(key).is_none_or(Value::is_null) {
            self.insert(key.to_owned(), value.into());
        }
    }

    fn text(&mut self, key: &str, value: &str) {
        if self.get(key).is_none_or(|v| v.is_null() || v == "") {
            self.insert(key.to_owned(), value.into());
        }
    }

    fn object(&mut self, key: &str) -> Option<&mut Object> {
        self.value(key, Object::new());
        self.inner(key)
    }

    fn inner(&mut self, key: &str) -> Option<&mut Object> {
        self.get_mut(key).and_then(Value::as_object_mut)
    }

    fn each(&mut self, key: &str) -> impl Iterator<Item = &mut Object> {
        self.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
    }

    fn drop_zero(&mut self, keys: &[&str]) {
        for key in keys {
            if self.get(*key).is_some_and(is_zero) {
                self.remove(*key);
            }
        }
    }

    fn str(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_i64() == Some(0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

/// Returns the value at `path` (keys only), or null.
pub(super) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, key| &value[*key])
}

/// Returns the string at `path`, or "".
pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// Returns the items of the list at `path`; none if it is not a list.
pub(super) fn items<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Maps from string to string, where Go reads `null` as the empty string.
const TEXT_MAPS: [&str; 8] =
    ["labels", "annotations", "data", "stringData", "binaryData", "matchLabels", "nodeSelector", "parameters"];

/// Removes nulls, which decoding into Go types drops, and the empty maps and lists of `metadata`.
pub(super) fn forget_nulls(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    drop_nulls(object);
    if let Some(metadata) = object.inner("metadata") {
        metadata.drop_zero(&["labels", "annotations", "finalizers", "ownerReferences", "generateName", "selfLink"]);
    }
}

fn drop_nulls(map: &mut Object) {
    map.retain(|key, value| match value {
        Value::Null => false,
        Value::Object(inner) if TEXT_MAPS.contains(&key.as_str()) => {
            inner.values_mut().filter(|v| v.is_null()).for_each(|v| *v = "".into());
            true
        }
        Value::Object(inner) => {
            if key != "fieldsV1" {
                drop_nulls(inner);
            }
            true
        }
        Value::Array(list) => {
            list.iter_mut().filter_map(Value::as_object_mut).for_each(drop_nulls);
            true
        }
        _ => true,
    });
}
