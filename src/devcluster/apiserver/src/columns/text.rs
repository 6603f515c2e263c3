//! Text helpers for cells: selectors, lists, `<none>`.

use serde_json::Value;

/// Returns the string at a JSON pointer, or "".
pub(super) fn str_at<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns `<none>` for an empty string.
pub(super) fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// Formats a scalar; "" for null.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Formats labels as `a=b,c=d`, or `<none>`.
pub(super) fn labels(labels: &Value) -> String {
    let pairs: Vec<String> =
        labels.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", scalar(value))).collect();
    or_none(&pairs.join(","))
}

/// Formats a LabelSelector as `a=b,c in (d,e)`, or `<none>`.
pub(super) fn selector(selector: &Value) -> String {
    let mut parts: Vec<String> = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", scalar(value)))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = str_at(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match str_at(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    or_none(&parts.join(","))
}

/// Returns a string field of each object in a list.
pub(super) fn each<'a>(list: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    list.as_array().into_iter().flatten().filter_map(move |item| item[field].as_str())
}
