//! Validates the `metadata` of every object: names, labels, annotations, finalizers, owners.
//!
//! Not here: immutable metadata (uid, creationTimestamp, …). The write path restores or compares it.

use serde_json::Value;

use super::fill::{at, items, text};
use crate::status::Cause;

/// The naming rule of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain of at most 253 bytes: most kinds.
    Subdomain,
    /// A DNS label of at most 63 bytes: Namespaces and Services.
    Label,
    /// Any segment of a URL path: RBAC.
    PathSegment,
}

/// The validation rule for finalizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizers {
    /// Built-in kinds: `kubernetes`, `orphan`, `foregroundDeletion`, or qualified by a domain.
    Standard,
    /// Custom resources: any qualified name.
    Any,
}

/// Returns the naming rule of a built-in kind.
pub fn name_rule(api_version: &str, kind: &str) -> NameRule {
    match (api_version, kind) {
        ("v1", "Namespace" | "Service") => NameRule::Label,
        ("rbac.authorization.k8s.io/v1", _) => NameRule::PathSegment,
        _ => NameRule::Subdomain,
    }
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Maximum total size of all annotations, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Validates `metadata`. With `old`, also refuses new finalizers on a terminating object.
pub fn validate_metadata(object: &Value, old: Option<&Value>, rule: NameRule, finalizers: Finalizers) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    name(metadata, rule, &mut causes);
    let found = causes.len();
    owners(metadata, &mut causes);
    labels("metadata.labels", &metadata["labels"], &mut causes);
    annotations("metadata.annotations", &metadata["annotations"], &mut causes);
    if old.is_some() {
        // Reported twice, as by a real server: by the general validation and by the validation of the kind.
        causes.extend_from_within(found..);
    }
    finalizer_names(metadata, finalizers, &mut causes);
    if let Some(old) = old.filter(|old| !at(old, &["metadata", "deletionTimestamp"]).is_null()) {
        let had = items(old, &["metadata", "finalizers"]);
        let added: Vec<String> =
            items(metadata, &["finalizers"]).iter().filter(|f| !had.contains(f)).map(Value::to_string).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            // Reported twice, as by a real server: by the general validation and by the validation of the kind.
            causes
                .extend([Cause::forbidden("metadata.finalizers", &why), Cause::forbidden("metadata.finalizers", &why)]);
        }
    }
    causes
}

fn name(metadata: &Value, rule: NameRule, causes: &mut Vec<Cause>) {
    let generate = text(metadata, &["generateName"]);
    // The base may end in a dash, because a generated suffix follows.
    let masked =
        if generate.len() > 1 && generate.ends_with('-') { format!("{generate}a") } else { generate.to_owned() };
    if let Some(why) = Some(masked).filter(|masked| !masked.is_empty()).and_then(|masked| own_fault(&masked, rule)) {
        causes.push(Cause::invalid("metadata.generateName", &generate.into(), &why));
    }
    let name = text(metadata, &["name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
        return;
    }
    if let Some(why) = own_fault(name, rule) {
        causes.push(Cause::invalid("metadata.name", &name.into(), &why));
    }
}

/// Returns the error of an object's name. The wording differs from that for names within objects.
fn own_fault(name: &str, rule: NameRule) -> Option<String> {
    let why = name_fault(name, rule)?;
    if rule == NameRule::Label && name.contains('.') {
        return Some("must not contain dots".to_owned());
    }
    Some(if why.starts_with("must be no more than") { why.replace("bytes", "characters") } else { why })
}

/// Returns the error of `name` under `rule`, in the API's words.
pub(super) fn name_fault(name: &str, rule: NameRule) -> Option<String> {
    let limit = if rule == NameRule::Label { 63 } else { 253 };
    match rule {
        NameRule::PathSegment => {
            if matches!(name, "." | "..") {
                return Some(format!("may not be '{name}'"));
            }
            return ["/", "%"].iter().find(|c| name.contains(**c)).map(|c| format!("may not contain '{c}'"));
        }
        _ if name.len() > limit => return Some(format!("must be no more than {limit} bytes")),
        _ => {}
    }
    let fine = if rule == NameRule::Label { is_label(name) } else { name.split('.').all(is_label) };
    (!fine).then(|| if rule == NameRule::Label { LABEL.to_owned() } else { SUBDOMAIN.to_owned() })
}

/// Returns whether `text` is a DNS label, regardless of its length.
pub(super) fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if outer(*first) && outer(*last))
        && bytes.iter().all(|b| outer(*b) || *b == b'-')
}

/// Validates a DNS label of at most 63 bytes.
pub(super) fn label_fault(text: &str) -> Option<String> {
    name_fault(text, NameRule::Label)
}

fn is_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    matches!((bytes.first(), bytes.last()), (Some(f), Some(l)) if f.is_ascii_alphanumeric() && l.is_ascii_alphanumeric())
        && bytes.iter().all(inner)
}

pub(crate) fn qualified_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else if let Some(why) = name_fault(prefix, NameRule::Subdomain) {
                faults.push(format!("prefix part {why}"));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name_part(name) {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// Validates labels: qualified keys, short values.
pub(super) fn labels(field: &str, labels: &Value, causes: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let faults =
            qualified_faults(key).into_iter().map(|why| why.replace("a qualified name must", "a valid label key must"));
        causes.extend(faults.map(|why| Cause::invalid(field, &key.as_str().into(), &why)));
        let faults = label_value_faults(value.as_str().unwrap_or_default());
        causes.extend(faults.iter().map(|why| Cause::invalid(field, value, why)));
    }
}

/// Validates the value of a label.
pub(crate) fn label_value_faults(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes");
    }
    if !text.is_empty() && !is_name_part(text) {
        faults.push(LABEL_VALUE);
    }
    faults
}

pub(super) fn annotations(field: &str, annotations: &Value, causes: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let lower = key.to_lowercase();
        causes.extend(qualified_faults(&lower).iter().map(|why| Cause::invalid(field, &key.as_str().into(), why)));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS_LIMIT {
        let message = format!("Too long: may not be more than {ANNOTATIONS_LIMIT} bytes");
        causes.push(Cause::new("FieldValueTooLong", field, message));
    }
}

fn finalizer_names(metadata: &Value, rule: Finalizers, causes: &mut Vec<Cause>) {
    let list = &metadata["finalizers"];
    let has = |name: &str| items(metadata, &["finalizers"]).iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", list, why));
    }
    for (index, finalizer) in items(metadata, &["finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let faults = qualified_faults(name);
        causes.extend(faults.iter().map(|why| Cause::invalid("metadata.finalizers", finalizer, why)));
        let standard = matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
        if rule == Finalizers::Standard && faults.is_empty() && !name.contains('/') && !standard {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
}

fn owners(metadata: &Value, causes: &mut Vec<Cause>) {
    let references = items(metadata, &["ownerReferences"]);
    for reference in references {
        let version = text(reference, &["apiVersion"]);
        if version.is_empty() || version.matches('/').count() > 1 {
            let at = "metadata.ownerReferences.apiVersion";
            causes.push(Cause::invalid(at, &version.into(), "version must not be empty"));
        }
        for field in ["kind", "name", "uid"] {
            if text(reference, &[field]).is_empty() {
                causes.push(Cause::invalid(
                    format!("metadata.ownerReferences.{field}"),
                    &"".into(),
                    "must not be empty",
                ));
            }
        }
        if version == "v1" && text(reference, &["kind"]) == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            causes.push(Cause::invalid("metadata.ownerReferences", reference, why));
        }
    }
    let controllers: Vec<&Value> = references.iter().filter(|r| r["controller"] == true).collect();
    if let [first, second, ..] = controllers.as_slice() {
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
            text(first, &["kind"]),
            text(first, &["name"]),
            text(second, &["kind"]),
            text(second, &["name"])
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &Value::from(references.to_vec()), &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(metadata: Value, expected: &[&str]) {
        let causes = validate_metadata(&json!({"metadata": metadata}), None, NameRule::Subdomain, Finalizers::Standard);
        let lines: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        lines.iter().zip(expected).for_each(|(line, start)| assert!(line.starts_with(start), "{line}"));
    }

    #[test]
    fn asks_for_a_name() {
        check(json!({}), &["metadata.name: Required value: name or genera"]);
        check(json!({"name": "A"}), &["metadata.name: Invalid value: \"A\": a lowercase "]);
        check(json!({"name": "a.b-c.d"}), &[]);
    }

    #[test]
    fn refuses_labels_that_are_no_labels() {
        check(
            json!({"name": "a", "labels": {"a/b/c": "x", "ok": "-"}}),
            &["metadata.labels: Invalid value: \"a/b/c\": a va", "metadata.labels: Invalid value: \"-\": a valid l"],
        );
        check(json!({"name": "a", "labels": {"a.b/C_d": "", "x": "Y.z"}}), &[]);
    }

    #[test]
    fn wants_qualified_finalizers() {
        check(json!({"name": "a", "finalizers": ["x"]}), &["metadata.finalizers[0]: Invalid value: \"x\": name is n"]);
        check(json!({"name": "a", "finalizers": ["a.b/c", "orphan"]}), &[]);
    }

    #[test]
    fn adds_no_finalizer_while_terminating() {
        let old =
            json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"]}});
        let new = json!({"metadata": {"name": "a", "finalizers": ["a.b/c", "a.b/d"]}});
        let causes = validate_metadata(&new, Some(&old), NameRule::Subdomain, Finalizers::Standard);
        assert_eq!(
            causes[0].message,
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"a.b/d\"}"
        );
    }
}
