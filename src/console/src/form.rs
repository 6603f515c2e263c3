//! Forms that create or change an object: the fields of a kind, the change of the live object, and its manifest.
//!
//! Invariant: a field that the user has not changed keeps its value in the object. Browsers replace line ends and the
//! character NUL, so an untouched field is recognised by what a browser makes of the live value.

use std::time::Duration;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::filter::Query;
use crate::readers::Readers;
use crate::row::FleetKind;
use crate::shown::LAST_APPLIED;
use mainstay_api::names;
use mainstay_object::{Key, syntax};

/// The names that a form suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suggested {
    /// The GitRepositories of the namespace.
    Repositories,
    /// The Secrets of the namespace, as far as the user may list them.
    Secrets,
    None,
}

/// The fields of a form, as the user wrote them.
pub(crate) trait ObjectForm: Default + Send + Sync + 'static {
    /// The kind of the object, in the version that the form writes.
    const KIND: FleetKind;
    /// The name of the kind in paths.
    const PLURAL: &'static str;
    /// The path of the form for a new object.
    const PATH: &'static str;
    /// Maximum size of the form, in bytes, and maximum time for it.
    const SIZE: usize = 64 << 10;
    const WITHIN: Duration = Duration::from_secs(10);
    const SUGGESTED: Suggested = Suggested::None;

    /// Returns the fields for a new object. The URL of the form may name some of them.
    fn blank(_url: &Query) -> Self {
        Self::default()
    }

    /// Reads the form.
    fn read(form: &Query) -> Self;

    /// Forgets the positions of rows in the live object, because the form was about another version of it.
    fn forget_positions(&mut self) {}

    /// Returns the name of the object.
    fn name(&self) -> &str;

    /// Returns the object that the fields describe, for the live object or for a new one in this namespace.
    ///
    /// # Errors
    /// Fails with the problem of the first invalid field.
    fn wanted(&self, live: Option<&Value>, namespace: &str) -> Result<Value, String>;

    /// Hides values of an object that the form does not show. Returns whether the object had any.
    fn hide(_object: &mut Value) -> bool {
        false
    }

    /// Returns the effect of a change as a sentence.
    ///
    /// # Errors
    /// Fails with the problems for which the agent would refuse the object.
    fn effect(readers: &Readers, live: Option<&Value>, wanted: &Value) -> Result<String, String>;
}

/// The fields of a form that also changes objects.
pub(crate) trait EditForm: ObjectForm {
    /// Returns the fields of an object.
    fn of(live: &Value) -> Self;

    /// Returns why an object cannot be changed in the form.
    fn refusal(_live: &Value) -> Option<&'static str> {
        None
    }
}

/// Returns the text as a browser sends it.
pub(crate) fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n").replace('\0', "\u{fffd}")
}

/// Returns the text of a field of one line as a browser sends it.
pub(crate) fn line(text: &str) -> String {
    text.replace(['\r', '\n'], "").replace('\0', "\u{fffd}").trim().to_owned()
}

/// Returns a new object without fields in its spec.
///
/// # Errors
/// Fails if the name is not one of an object.
pub(crate) fn new(kind: FleetKind, name: &str, namespace: &str) -> Result<Value, String> {
    if let Some(words) = syntax::subdomain(name) {
        return Err(format!("Name: {words}."));
    }
    let metadata = json!({"name": name, "namespace": namespace});
    Ok(json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, "spec": {}}))
}

/// Sets or removes a field. Parents that are missing or no objects are replaced.
pub(crate) fn set(object: &mut Value, pointer: &str, value: Option<Value>) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let name = name.replace("~1", "/");
    if object.pointer(parent).is_none_or(|parent| !parent.is_object()) {
        // A missing field is not removed, and no object is made of a value that is none.
        if value.is_none() || parent.is_empty() {
            return;
        }
        set(object, parent, Some(json!({})));
    }
    let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut) else { return };
    match value {
        Some(value) => drop(parent.insert(name, value)),
        None => drop(parent.remove(&name)),
    }
}

/// Returns the fields of a merge patch between two objects. Null removes a field.
fn changed(before: &Map<String, Value>, after: &Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for name in before.keys().chain(after.keys()) {
        match (before.get(name), after.get(name)) {
            (before, after) if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                all.insert(name.clone(), changed(before, after).into());
            }
            (_, after) => {
                all.insert(name.clone(), after.cloned().unwrap_or_default());
            }
        }
    }
    all
}

/// Returns the merge patch from the live object to the wanted one; `None` without a difference. It has only fields
/// that the form changes.
pub(crate) fn patch(live: &Value, wanted: &Value) -> Option<Value> {
    let changed = |pointer: &str| {
        let fields = |of: &Value| of.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default();
        changed(&fields(live), &fields(wanted))
    };
    let (spec, labels) = (changed("/spec"), changed("/metadata/labels"));
    let mut patch = json!({});
    if !spec.is_empty() {
        patch["spec"] = spec.into();
    }
    if !labels.is_empty() {
        patch["metadata"] = json!({"labels": labels});
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// Returns the object as its author would write it: without status, and without metadata that the cluster sets.
pub(crate) fn manifest(kind: FleetKind, object: &Value) -> Value {
    let mut metadata = Map::new();
    for name in ["name", "namespace", "labels", "annotations"] {
        if let Some(value) = object["metadata"].get(name) {
            metadata.insert(name.to_owned(), value.clone());
        }
    }
    for (field, name) in [("labels", names::SYNC_LABEL), ("annotations", LAST_APPLIED)] {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.remove(name);
            if map.is_empty() {
                metadata.remove(field);
            }
        }
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, "spec": object["spec"]})
}

/// Returns the identity and the generation of an object. Another object with the same name has another identity.
pub(crate) fn generation(live: &Value) -> String {
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let number = live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
    format!("{uid}:{number}")
}

/// Returns the digest of a change, by which it is recognised after its review.
pub(crate) fn digest(change: &Value, generation: &str) -> String {
    hex::encode(Sha256::digest(format!("{generation} {change}")))
}

/// The GitSync that manages an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeper {
    /// The GitSync; `None` if only a hashed label names it.
    pub(crate) git_sync: Option<Key>,
    /// The file in the repository; empty if it is not known.
    pub(crate) file: String,
    /// The path of the file if no tool built the object from it, and if no object is known before it in the file.
    pub(crate) path: Option<String>,
    /// Why only the label names the GitSync; empty if its inventory has the object.
    pub(crate) note: String,
}

/// Returns the GitSync that the label of an object names.
pub(crate) fn keeper_of_label(live: &Value) -> Option<Keeper> {
    let label = live.pointer("/metadata/labels")?.get(names::SYNC_LABEL)?.as_str()?;
    let git_sync = label.split_once('.').map(|(namespace, name)| FleetKind::GitSync.key(namespace, name));
    Some(Keeper { git_sync, file: String::new(), path: None, note: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_was_created_again_has_another_review() {
        let of = |uid: &str| generation(&json!({"metadata": {"uid": uid, "generation": 1}}));
        assert_eq!(of("a"), "a:1");
        let change = json!({"spec": {"url": "x"}});
        assert_ne!(digest(&change, &of("a")), digest(&change, &of("b")));
        assert_eq!(generation(&json!(null)), ":0");
    }
}
