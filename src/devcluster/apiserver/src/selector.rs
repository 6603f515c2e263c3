//! Label and field selectors: their syntax, and whether they match an object.
//!
//! Labels: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`, joined by commas. `!=` and
//! `notin` also match objects without the label. Fields: `=`, `==`, `!=`, joined by commas. A table in this file lists
//! the field paths of each kind.
//!
//! Not here: selectors inside objects (`matchLabels`), except in `selects`.

mod labels;

use self::labels::Requirement;
use crate::{
    kinds::table::Kind,
    status::Status,
    store::{Key, Stored},
};
use serde_json::Value;

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

/// The selectors of a list or watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

impl Selector {
    /// Parses both selectors; 400 on invalid syntax or on a field that the kind does not support.
    pub fn parse(kind: &Kind, label_text: &str, fields: &str) -> Result<Self, Status> {
        Ok(Self {
            labels: labels::parse(label_text).map_err(Status::bad_request)?,
            fields: parse_fields(kind, fields)?,
        })
    }

    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns the name if at most one object can match.
    pub fn name(&self) -> Option<&str> {
        self.fields.iter().find(|t| t.equal && t.path == "metadata.name").map(|t| t.value.as_str())
    }

    /// Returns whether an object matches.
    pub fn matches(&self, key: &Key, stored: &Stored) -> bool {
        self.labels.iter().all(|r| r.holds(|name| label(stored, name)))
            && self.fields.iter().all(|t| t.holds(key, stored))
    }
}

fn label<'a>(stored: &'a Stored, name: &str) -> Option<&'a str> {
    stored.labels.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str())
}

impl Requirement {
    fn holds<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let number = |name: &str| label(name).and_then(|v| v.parse::<i64>().ok());
        match self {
            Self::In(name, values) => label(name).is_some_and(|v| values.iter().any(|x| x == v)),
            Self::NotIn(name, values) => label(name).is_none_or(|v| values.iter().all(|x| x != v)),
            Self::Exists(name) => label(name).is_some(),
            Self::Absent(name) => label(name).is_none(),
            Self::Greater(name, than) => number(name).is_some_and(|v| v > *than),
            Self::Less(name, than) => number(name).is_some_and(|v| v < *than),
        }
    }
}

impl FieldTerm {
    fn holds(&self, key: &Key, stored: &Stored) -> bool {
        let equal = match self.path.as_str() {
            "metadata.name" => key.name() == self.value,
            "metadata.namespace" => key.namespace() == self.value,
            path => field_text(&stored.value(), path) == self.value,
        };
        equal == self.equal
    }
}

/// Returns a field as selectors compare it. A missing field is empty, a missing number zero, a missing boolean false.
fn field_text(object: &Value, path: &str) -> String {
    let newer = path.strip_prefix("regarding.").map(|rest| format!("involvedObject.{rest}"));
    let path = match path {
        "source" => "source.component",
        "reportingController" => "reportingComponent",
        path => newer.as_deref().unwrap_or(path),
    };
    let pointer = format!("/{}", path.replace('.', "/"));
    match object.pointer(&pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            "status.successful" | "status.replicas" => "0".to_owned(),
            "source.component" => field_text(object, "reportingComponent"),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}

/// Returns the supported field paths of a kind, besides name and namespace.
fn known_fields(kind: &Kind) -> &'static [&'static str] {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("batch", "jobs") => &["status.successful"],
        ("", "replicationcontrollers") => &["status.replicas"],
        _ => &[],
    }
}

/// Splits at commas without a backslash before them.
fn split_unescaped(text: &str) -> Vec<&str> {
    let (mut escaped, mut start, mut parts) = (false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        if c == ',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldTerm>, Status> {
    let mut parts = split_unescaped(text);
    parts.sort_unstable();
    let mut terms = Vec::new();
    for part in parts.into_iter().filter(|p| !p.is_empty()) {
        let Some((path, value, equal)) = split_term(part) else {
            return Err(Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")));
        };
        let value = unescaped(value).map_err(|why| Status::bad_request(format!("invalid field selector: {why}")))?;
        terms.push(FieldTerm { path: path.to_owned(), value, equal });
    }
    // An empty path with an empty value matches everything.
    terms.retain(|term| !term.path.is_empty() || !term.value.is_empty());
    for path in terms.iter().map(|term| term.path.as_str()) {
        let custom = kind.custom.as_ref().is_some_and(|c| c.selectable.iter().any(|s| s == path));
        if !matches!(path, "metadata.name" | "metadata.namespace") && !custom && !known_fields(kind).contains(&path) {
            return Err(Status::bad_request(unknown_field(kind, path)));
        }
    }
    Ok(terms)
}

/// Splits a term at its first operator. The third part is whether the operator means equality.
fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let at = term.char_indices().map(|(at, _)| at).find(|at| {
        let rest = &term[*at..];
        rest.starts_with("!=") || rest.starts_with('=')
    })?;
    let (path, rest) = term.split_at(at);
    let operators = [("!=", false), ("==", true), ("=", true)];
    operators.iter().find_map(|(operator, equal)| Some((path, rest.strip_prefix(operator)?, *equal)))
}

/// Removes the backslashes before commas, equals signs and backslashes.
fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => match characters.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(other) => return Err(format!("invalid escape sequence: \\{other}")),
                None => return Err("invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => return Err(format!("unescaped character in value: {}", u32::from(c))),
            c => out.push(c),
        }
    }
    Ok(out)
}

fn unknown_field(kind: &Kind, path: &str) -> String {
    if kind.custom.is_some() || known_fields(kind).is_empty() {
        let custom = kind.custom.iter().flat_map(|c| c.selectable.iter()).map(|s| format!(", \"{s}\""));
        let more: String = if kind.custom.is_some() { custom.collect() } else { String::new() };
        if kind.custom.is_some() {
            return format!("field label not supported: {path}");
        }
        return format!(
            "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"{more}"
        );
    }
    format!("field label not supported: {path}")
}

/// Returns whether an object's label selector (`matchLabels`, `matchExpressions`) matches labels. An empty selector
/// matches all.
pub fn selects(selector: &serde_json::Value, labels: &serde_json::Value) -> bool {
    let label = |name: &str| labels.get(name).and_then(serde_json::Value::as_str);
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    wanted.into_iter().all(|(name, value)| label(name).is_some_and(|l| value == l))
        && expressions.all(|expression| {
            let found = label(expression["key"].as_str().unwrap_or_default());
            let mut values = expression["values"].as_array().into_iter().flatten();
            match expression["operator"].as_str().unwrap_or_default() {
                "In" => found.is_some_and(|l| values.any(|value| value == l)),
                "NotIn" => found.is_none_or(|l| values.all(|value| value != l)),
                "Exists" => found.is_some(),
                "DoesNotExist" => found.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let requirements = labels::parse(selector).unwrap();
        let find = |name: &str| labels.iter().find(|(k, _)| *k == name).map(|(_, v)| *v);
        assert_eq!(requirements.iter().all(|r| r.holds(find)), expected, "{selector} on {labels:?}");
    }

    #[test]
    fn matches_labels_as_the_api_does() {
        let labels = &[("app", "web"), ("tier", "1")];
        check("app=web", labels, true);
        check("app==web,tier in (1, 2)", labels, true);
        check("app!=web", labels, false);
        check("other!=x", labels, true);
        check("other notin (x,y)", labels, true);
        check("app,!other", labels, true);
        check("tier>0,tier<2", labels, true);
        check("a.b/c=", labels, false);
    }
}
