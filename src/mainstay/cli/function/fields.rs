//! Places of an object in JSON.

use serde_json::Value;

/// The text at a place of an object.
pub(super) fn text_at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
