//! Merge patches (RFC 7386) and JSON patches (RFC 6902).

use serde_json::Value;

use crate::status::Status;

/// Maximum number of operations of a JSON patch.
const MOST_OPERATIONS: usize = 10_000;

/// Maximum total size of `copy` operations in one patch, in bytes. Repeated doubling could fill the memory.
const MOST_COPIED: usize = 3 * 1024 * 1024;

/// Maximum depth of an object after a JSON patch. Deeper objects cannot be parsed again and exhaust the stack.
const DEEPEST: usize = 110;

/// Returns the live object after a merge patch, in which `null` removes a field.
pub fn merge(live: &Value, patch: &Value) -> Value {
    let mut object = live.clone();
    json_patch::merge(&mut object, patch);
    object
}

/// Returns the live object after a JSON patch.
///
/// Errors: 400 if the patch is not a list of operations; 413 if it is too long; 422 if an operation or test fails, or
/// if copies or depth exceed a limit.
pub fn json(live: &Value, patch: &Value) -> Result<Value, Status> {
    let Some(operations) = patch.as_array() else {
        let found = if patch.is_object() { "object" } else { "value" };
        return Err(Status::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type jsonpatch.Patch"
        )));
    };
    if operations.len() > MOST_OPERATIONS {
        let text = "The allowed maximum operations in a JSON patch is 10000, got ";
        return Err(Status::new(413, "RequestEntityTooLarge", format!("{text}{}", operations.len())));
    }
    let mut object = live.clone();
    let mut copied = 0;
    for operation in operations {
        let from = operation.get("from").and_then(Value::as_str).unwrap_or_default();
        let place = operation.get("path").and_then(Value::as_str).unwrap_or_default().matches('/').count();
        let brought = operation.get("value").or_else(|| object.pointer(from)).map_or(0, depth);
        if place + brought > DEEPEST {
            return Err(unprocessable());
        }
        if operation.get("op").is_some_and(|op| op == "copy") {
            copied += object.pointer(from).map_or(0, |value| value.to_string().len());
            if copied > MOST_COPIED {
                return Err(unprocessable());
            }
        }
        step(&mut object, operation)?;
    }
    Ok(object)
}

/// Executes one operation. As on a real server, replacing a missing map key adds the key.
fn step(object: &mut Value, operation: &Value) -> Result<(), Status> {
    let parsed =
        |value: Value| serde_json::from_value::<json_patch::PatchOperation>(value).map_err(|_| unprocessable());
    let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
    let replaces_missing_key = text("op") == "replace"
        && object.pointer(text("path")).is_none()
        && text("path").rsplit_once('/').and_then(|(parent, _)| object.pointer(parent)).is_some_and(Value::is_object);
    let operation = if replaces_missing_key {
        let mut add = operation.clone();
        add["op"] = "add".into();
        parsed(add)?
    } else {
        parsed(operation.clone())?
    };
    json_patch::patch(object, std::slice::from_ref(&operation)).map_err(|_| unprocessable())
}

/// Returns the number of nested lists and objects.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the 422 without details.
fn unprocessable() -> Status {
    let mut status = Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
    status.details = Some(serde_json::Map::new());
    status
}
