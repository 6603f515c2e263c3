//! Merge patches (RFC 7386) and JSON patches (RFC 6902).

use serde_json::Value;

use crate::status::Status;

/// The most operations a JSON patch may have.
const MOST_OPERATIONS: usize = 10_000;

/// The most bytes that the `copy` operations of one patch may make together; doubling copies would else fill the memory.
const MOST_COPIED: usize = 3 * 1024 * 1024;

/// How deep a JSON patch may build; deeper objects cannot be read again and exhaust the stack.
const DEEPEST: usize = 110;

/// The live object with a merge patch laid over it; `null` removes.
pub fn merge(live: &Value, patch: &Value) -> Value {
    let mut object = live.clone();
    json_patch::merge(&mut object, patch);
    object
}

/// The live object after the operations of a JSON patch.
///
/// Errors: 400 when the patch is no list of operations, 413 when it is too long, 422 when an operation or a test fails or copies
/// grow without bounds.
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

/// One operation. Replacing a map key that is not there adds it, as the real server does.
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

/// How many lists and objects lie in each other.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The 422 that says no more than that.
fn unprocessable() -> Status {
    let mut status = Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
    status.details = Some(serde_json::Map::new());
    status
}
