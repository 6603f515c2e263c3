//! Fields of any object, read from its JSON.
//!
//! Invariant: what is absent or of another type reads as empty, never as an error: validation has had its say before.

use serde_json::{Value, json};

/// The reference to the controller of an object.
pub fn controller(object: &Value) -> Option<&Value> {
    owners(object).iter().find(|owner| owner["controller"] == true)
}

/// The owner references of an object.
pub fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

/// A controller reference to `owner`.
pub fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// Whether an object is marked for deletion.
pub fn is_terminating(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whether an object has a finalizer.
pub fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|list| list.iter().any(|f| f == name))
}

/// The object's finalizers without one.
pub fn finalizers_without(object: &Value, name: &str) -> Value {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter(|f| *f != name).cloned().collect()
}

/// Whether a condition is true.
pub fn is_true(object: &Value, condition: &str) -> bool {
    conditions(object).iter().any(|c| c["type"] == condition && c["status"] == "True")
}

/// The conditions of an object.
pub fn conditions(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
}

/// A whole number in an object, zero when absent.
pub fn count(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// A text in an object, empty when absent.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
