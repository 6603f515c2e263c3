//! Fields of any object, read from its JSON.
//!
//! Invariant: a missing field, or a field of a different type, reads as empty. Validation has checked the types before.

use serde_json::{Value, json};

/// Returns the owner reference to the controller of an object.
pub fn controller(object: &Value) -> Option<&Value> {
    owners(object).iter().find(|owner| owner["controller"] == true)
}

/// Returns the owner references of an object.
pub fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns a controller reference to `owner`.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns whether an object is marked for deletion.
pub fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns whether an object has a finalizer.
pub fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == name))
}

/// Returns the object's finalizers except one.
pub fn finalizers_without(object: &Value, name: &str) -> Value {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter(|f| *f != name).cloned().collect()
}

/// Returns whether a condition is `True`.
pub fn is_true(object: &Value, condition: &str) -> bool {
    conditions(object).iter().any(|c| c["type"] == condition && c["status"] == "True")
}

/// Returns the conditions of an object.
pub fn conditions(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns an integer field; zero if missing.
pub fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns a string field; empty if missing.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
