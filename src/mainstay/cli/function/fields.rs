//! Access to fields of a JSON object.

use serde_json::Value;

/// Returns the string at a JSON pointer; empty if there is none.
pub(super) fn text_at<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
