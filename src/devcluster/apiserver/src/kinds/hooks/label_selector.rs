//! Label selectors in specs.

use serde_json::Value;

use super::fill::{items, text};

/// Returns whether a LabelSelector matches labels. A missing selector matches nothing.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let equal = selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| &labels[key] == value);
    equal
        && items(selector, &["matchExpressions"]).iter().all(|expression| {
            let value = labels.get(text(expression, &["key"]));
            let listed = value.is_some_and(|v| items(expression, &["values"]).contains(v));
            match text(expression, &["operator"]) {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
