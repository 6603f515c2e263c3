//! The metadata that all kinds share: what the server owns, what clients may write, what finalizers mean.
//!
//! Invariant: `uid`, `creationTimestamp`, `deletionTimestamp`, `deletionGracePeriodSeconds` and `generation` of a
//! stored object were set here and nowhere else.
//!
//! Deliberately absent: managedFields (`patch`), and name rules of single kinds (`kinds::hooks`).

use super::text;
use crate::{selector::is_label_text, status::Cause};
use serde_json::{Map, Value};

/// Annotations of an object altogether, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Characters of generated names, without those that make words or are misread.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Random characters after `generateName`.
const GENERATED: usize = 5;
/// Longest base of a generated name.
const MAX_BASE: usize = 63 - GENERATED;

/// Fields that only the server writes.
const SERVER_OWNED: [&str; 5] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// `metadata`, which decoding has made an object.
pub fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    object["metadata"].as_object_mut().expect("metadata was just made an object")
}

/// A name from a `generateName`.
pub fn generated_name(base: &str) -> String {
    let end = base.char_indices().map(|(i, _)| i).take_while(|i| *i <= MAX_BASE).last().unwrap_or(0);
    let cut = if base.len() > MAX_BASE { &base[..end] } else { base };
    let random = (0..GENERATED).map(|_| char::from(NAME_ALPHABET[fastrand::usize(..NAME_ALPHABET.len())]));
    cut.chars().chain(random).collect()
}

/// Sets what the server owns on a new object.
pub fn begin(object: &mut Value, namespace: &str, name: &str, now: &str) {
    let metadata = of(object);
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    if !name.is_empty() {
        metadata.insert("name".to_owned(), name.into());
    }
    if namespace.is_empty() {
        metadata.remove("namespace");
    } else {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
}

/// Restores what the server owns from the live object.
pub fn keep(old: &Value, new: &mut Value) {
    let metadata = of(new);
    for field in SERVER_OWNED.iter().chain(&["name", "namespace", "resourceVersion"]) {
        match old["metadata"].get(field) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
    metadata.remove("selfLink");
    if metadata.get("managedFields").is_none_or(Value::is_null) {
        match old["metadata"].get("managedFields") {
            Some(value) => metadata.insert("managedFields".to_owned(), value.clone()),
            None => metadata.remove("managedFields"),
        };
    }
}

/// Whether the object has been marked for deletion.
pub fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The finalizers of an object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Adds one to the generation.
pub fn next_generation(object: &mut Value) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
    of(object).insert("generation".to_owned(), generation.into());
}

/// What is wrong with the metadata of an object, as far as all kinds agree.
pub fn validate(object: &Value, old: Option<&Value>, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    if text(object, "/metadata/name").is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    }
    if !namespaced && !text(object, "/metadata/namespace").is_empty() {
        causes.push(Cause::forbidden("metadata.namespace", "not allowed on this type"));
    }
    causes.extend(labels(&metadata["labels"]));
    causes.extend(annotations(&metadata["annotations"]));
    for finalizer in finalizers(object) {
        let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer);
        if !standard && (!finalizer.contains('/') || qualified_name(finalizer).is_err()) {
            let why = qualified_name(finalizer)
                .err()
                .unwrap_or("name is neither a standard finalizer name nor is it fully qualified");
            causes.push(Cause::invalid("metadata.finalizers", &finalizer.into(), why));
        }
    }
    causes.extend(owners(&metadata["ownerReferences"]));
    if let Some(old) = old.filter(|old| is_terminating(old)) {
        causes.extend(late_finalizers(old, object));
    }
    causes
}

fn late_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    let before = finalizers(old);
    let added: Vec<String> =
        finalizers(new).into_iter().filter(|f| !before.contains(f)).map(|f| format!("{f:?}")).collect();
    if added.is_empty() {
        return None;
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Some(Cause::forbidden("metadata.finalizers", &why))
}

fn labels(labels: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, value) in labels.as_object().into_iter().flatten() {
        if let Err(why) = qualified_name(name) {
            causes.push(Cause::invalid("metadata.labels", &name.as_str().into(), why));
        }
        if !is_label_text(value.as_str().unwrap_or_default()) {
            let why = if value.as_str().is_some_and(|v| v.len() > 63) {
                "must be no more than 63 bytes"
            } else {
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                 start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                 for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            };
            causes.push(Cause::invalid("metadata.labels", value, why));
        }
    }
    causes
}

fn annotations(annotations: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for (name, value) in annotations.as_object().into_iter().flatten() {
        size += name.len() + value.as_str().map_or(0, str::len);
        if let Err(why) = qualified_name(&name.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &name.as_str().into(), why));
        }
    }
    if size > MAX_ANNOTATIONS {
        causes.push(Cause::new(
            "FieldValueTooLong",
            "metadata.annotations",
            format!("Too long: may not be more than {MAX_ANNOTATIONS} bytes"),
        ));
    }
    causes
}

fn owners(owners: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut controllers = 0;
    for owner in owners.as_array().into_iter().flatten() {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let given = owner.get(field).cloned().unwrap_or_else(|| "".into());
                causes.push(Cause::invalid(format!("metadata.ownerReferences.{field}"), &given, why));
            }
        }
        controllers += usize::from(owner["controller"] == true);
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true",
        ));
    }
    causes
}

/// Checks `prefix/name` or `name`, as labels, annotations and finalizers are called.
fn qualified_name(name: &str) -> Result<(), &'static str> {
    const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                        an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                        is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
                          '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                          for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let (prefix, last) = name.split_once('/').map_or((None, name), |(p, l)| (Some(p), l));
    if prefix == Some("") {
        return Err("prefix part must be non-empty");
    }
    if last.is_empty() {
        return Err("name part must be non-empty");
    }
    if last.len() > 63 {
        return Err("name part must be no more than 63 bytes");
    }
    let dns = |p: &str| {
        p.len() <= 253
            && p.split('.').all(|part| {
                !part.is_empty()
                    && !part.starts_with('-')
                    && !part.ends_with('-')
                    && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
            })
    };
    if prefix.is_some_and(|p| !dns(p)) {
        return Err(PREFIX);
    }
    if is_label_text(last) { Ok(()) } else { Err(NAME) }
}
