//! Responses in YAML, for clients that request it.
//!
//! A finished JSON response is converted to YAML, so verbs need not know about it.
//!
//! Invariant: YAML 1.1 and 1.2 parsers read the same values. `serde_yaml` does not quote `yes` or times. This writer
//! therefore quotes all strings but plain words.
//!
//! Not here: watches, which have no YAML form.

use super::respond;
use crate::body::Body;
use crate::status::Status;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

/// Returns whether a path has a YAML form.
pub(super) fn is_offered(path: &str) -> bool {
    ["/api", "/apis", "/version"].iter().any(|root| {
        let below = path.strip_prefix(root);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Converts a JSON response to YAML.
pub(super) async fn instead_of_json(response: Response<Body>) -> Response<Body> {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return respond::status(&Status::internal("the answer has no YAML form"));
    };
    let mut text = String::new();
    write(&value, 0, &mut text);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
    Response::from_parts(parts, Full::from(text).boxed_unsync())
}

/// Writes a value at the end of the current line, and its contents on the next lines.
fn write(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (key, value)) in fields.iter().enumerate() {
                if at > 0 {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str(&scalar(key));
                out.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => below(value, indent + 2, out),
                    Value::Array(items) if !items.is_empty() => below(value, indent, out),
                    _ => {
                        out.push(' ');
                        write(value, indent, out);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.extend(std::iter::repeat_n(' ', indent));
                }
                out.push_str("- ");
                write(item, indent + 2, out);
            }
        }
        Value::String(text) => {
            out.push_str(&scalar(text));
            out.push('\n');
        }
        other => {
            out.push_str(&other.to_string());
            out.push('\n');
        }
    }
}

fn below(value: &Value, indent: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    write(value, indent, out);
}

/// Writes a string in JSON quotes, which are valid in YAML, unless it is an unambiguous plain word.
fn scalar(text: &str) -> String {
    const MEANT: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    let letter = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/'));
    if letter && plain && !MEANT.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: &Value, expected: &str) {
        let mut out = String::new();
        write(value, 0, &mut out);
        assert_eq!(out, expected);
        let read: Value = serde_yaml::from_str(&out).unwrap();
        assert_eq!(&read, value);
    }

    #[test]
    fn quotes_what_could_be_something_else() {
        check(
            &json!({"a": "yes", "b": "1", "c": "x: y\n", "d": "", "e": "plain", "y": "2026-01-01T00:00:00Z"}),
            "a: \"yes\"\nb: \"1\"\nc: \"x: y\\n\"\nd: \"\"\ne: plain\n\"y\": \"2026-01-01T00:00:00Z\"\n",
        );
    }

    #[test]
    fn nests_maps_and_lists() {
        check(
            &json!({"a": {"b": [1, {"c": null, "d": [[], [true]]}], "e": {}}, "f": []}),
            "a:\n  b:\n  - 1\n  - c: null\n    d:\n    - []\n    - - true\n  e: {}\nf: []\n",
        );
    }
}
