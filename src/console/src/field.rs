//! Reads fields of objects of any kind, for pages.

use jiff::Timestamp;
use serde_json::Value;

use crate::text::plain;

/// Returns the string at a JSON pointer, cut to a maximum length.
pub(crate) fn text_at(live: &Value, pointer: &str, most: usize) -> String {
    live.pointer(pointer).and_then(Value::as_str).map(|text| plain(text, most)).unwrap_or_default()
}

/// Returns the time at a JSON pointer.
pub(crate) fn time_at(live: &Value, pointer: &str) -> Option<Timestamp> {
    live.pointer(pointer)?.as_str()?.parse().ok()
}
