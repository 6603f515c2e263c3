//! Label and field selectors, from their text to a decision about an object.
//!
//! Labels: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`, joined by commas. `!=` and
//! `notin` also match objects without the label. Fields: `=`, `==`, `!=`, joined by commas; which paths a kind knows
//! is a table here.
//!
//! Deliberately absent: selectors inside objects (`matchLabels`), which belong to the kinds that have them.

use crate::{
    kinds::table::Kind,
    status::Status,
    store::{Key, Stored},
};
use serde_json::Value;

/// One condition on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

/// One condition on a field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    path: String,
    value: String,
    equal: bool,
}

/// Which objects a list or watch is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

impl Selector {
    /// Parses both texts; 400 when one makes no sense or names a field the kind does not know.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Status> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(kind, fields)? })
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The name, when only one object can match.
    pub fn name(&self) -> Option<&str> {
        self.fields.iter().find(|t| t.equal && t.path == "metadata.name").map(|t| t.value.as_str())
    }

    /// Whether an object is selected.
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

/// A field as selectors compare it; absent fields are empty, numbers zero and booleans false.
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

/// Field paths that selectors may name, besides name and namespace.
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

/// The parts between commas that have no backslash before them.
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
    let mut terms = Vec::new();
    for part in split_unescaped(text).into_iter().filter(|p| !p.is_empty()) {
        let (path, value, equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (path, value, true)
        } else {
            return Err(Status::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'")));
        };
        let custom = kind.custom.as_ref().is_some_and(|c| c.selectable.iter().any(|s| s == path));
        if !matches!(path, "metadata.name" | "metadata.namespace") && !custom && !known_fields(kind).contains(&path) {
            return Err(Status::bad_request(unknown_field(kind, path)));
        }
        let value = value.replace("\\,", ",").replace("\\=", "=").replace("\\\\", "\\");
        terms.push(FieldTerm { path: path.to_owned(), value, equal });
    }
    Ok(terms)
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

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Status> {
    let refuse = |why: String| Status::bad_request(format!("unable to parse requirement: {why}"));
    let mut requirements = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            if text.trim().is_empty() {
                continue;
            }
            return Err(refuse("found '', expected: identifier after ','".to_owned()));
        }
        requirements.push(requirement(part).map_err(refuse)?);
    }
    Ok(requirements)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<Requirement, String> {
    if let Some(name) = part.strip_prefix('!') {
        return Ok(Requirement::Absent(label_name(name.trim())?));
    }
    if let Some((name, values)) = part.strip_suffix(')').and_then(|p| p.split_once('(')) {
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        values.iter().try_for_each(|v| label_value(v))?;
        let mut words = name.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => Ok(Requirement::In(label_name(name)?, values)),
            (Some(name), Some("notin"), None) => Ok(Requirement::NotIn(label_name(name)?, values)),
            _ => Err(format!("found '{part}', expected: in, notin, =, ==, !=, gt, lt")),
        };
    }
    for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((name, value)) = part.split_once(operator) {
            let (name, value) = (label_name(name.trim())?, value.trim().to_owned());
            label_value(&value)?;
            return Ok(if equal { Requirement::In(name, vec![value]) } else { Requirement::NotIn(name, vec![value]) });
        }
    }
    for (operator, greater) in [('>', true), ('<', false)] {
        if let Some((name, value)) = part.split_once(operator) {
            let number = value.trim().parse().map_err(|_| {
                format!(
                    "values[0][{}]: Invalid value: \"{0}\": for 'Gt', 'Lt' operators, the value must be an integer",
                    value.trim()
                )
            })?;
            let name = label_name(name.trim())?;
            return Ok(if greater { Requirement::Greater(name, number) } else { Requirement::Less(name, number) });
        }
    }
    Ok(Requirement::Exists(label_name(part)?))
}

fn label_name(name: &str) -> Result<String, String> {
    let (prefix, last) = name.split_once('/').map_or((None, name), |(p, l)| (Some(p), l));
    let fine = is_label_text(last) && !last.is_empty() && prefix.is_none_or(|p| !p.is_empty() && p.len() <= 253);
    if fine {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "<nil>: Invalid value: \"{name}\": name part must consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
             for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        ))
    }
}

fn label_value(value: &str) -> Result<(), String> {
    if is_label_text(value) {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: \"{value}\": a valid label must be an empty string or consist of alphanumeric characters, \
         '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
         '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    ))
}

/// Whether a text may be a label value or the last part of a label name.
pub fn is_label_text(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(text.chars().next())
        && edge(text.chars().last())
}

/// Whether a label selector of an object (`matchLabels`, `matchExpressions`) selects labels; an empty one selects all.
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
        let requirements = parse_labels(selector).unwrap();
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

    #[test]
    fn refuses_nonsense() {
        for text in ["a b", "=x", "a in b", "a=b c", "app=web,", "a>x"] {
            assert_eq!(parse_labels(text).unwrap_err().code, 400, "{text}");
        }
    }
}
