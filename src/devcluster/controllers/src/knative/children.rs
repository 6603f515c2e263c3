//! Writes children of an object, unless another object controls them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::kinds::MANAGER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{controller, controller_reference, is_terminating, text};

/// Why a child is not in its desired state.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// Another object controls the object of that name.
    NotOwned,
    /// The API server refused the write with this message.
    Refused(String),
    /// An object of that name terminates.
    Leaving,
}

/// An existing child.
pub(super) struct Child {
    pub(super) object: Arc<Value>,
    /// Whether this call created the child.
    pub(super) is_new: bool,
}

/// Whether `owner` controls `object`.
pub(super) fn controls(owner: &Value, object: &Value) -> bool {
    controller(object).is_some_and(|reference| reference["uid"] == owner["metadata"]["uid"])
}

/// Builds an object that `owner` controls.
pub(super) fn built(owner: &Value, api_version: &str, kind: &str, name: &str) -> Value {
    serde_json::json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "name": name, "namespace": owner["metadata"]["namespace"], "ownerReferences": [controller_reference(owner)],
        },
    })
}

/// Creates or updates a child. An update sets labels and spec and keeps the annotations in `kept`.
pub(super) fn ensure(
    client: &Client,
    storage: &str,
    owner: &Value,
    desired: Value,
    kept: &[&str],
) -> Result<Child, Missing> {
    let known = match existing(client, storage, owner, &desired)? {
        Ok(known) => known,
        Err(created) => return Ok(created),
    };
    let mut next = (*known).clone();
    let mut annotations = desired["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    for name in kept {
        if let Some(value) = known["metadata"]["annotations"].get(*name) {
            annotations.insert((*name).to_owned(), value.clone());
        }
    }
    set(&mut next, "labels", desired["metadata"]["labels"].as_object().cloned().unwrap_or_default());
    set(&mut next, "annotations", annotations);
    next["spec"] = desired["spec"].clone();
    if next == *known {
        return Ok(Child { object: known, is_new: false });
    }
    let (namespace, name) = super::kinds::place(&known);
    let subject = Subject::new(storage, namespace, name);
    client.update(MANAGER, &subject, next);
    let object = client.get(&subject).ok_or(Missing::Leaving)?;
    Ok(Child { object, is_new: false })
}

/// Creates a child. An existing child is not changed.
pub(super) fn create(client: &Client, storage: &str, owner: &Value, desired: &Value) -> Result<Child, Missing> {
    Ok(match existing(client, storage, owner, desired)? {
        Ok(object) => Child { object, is_new: false },
        Err(created) => created,
    })
}

fn existing(
    client: &Client,
    storage: &str,
    owner: &Value,
    desired: &Value,
) -> Result<Result<Arc<Value>, Child>, Missing> {
    let (namespace, name) = (text(owner, "/metadata/namespace"), text(desired, "/metadata/name"));
    match client.get(&Subject::new(storage, namespace, name)) {
        Some(known) if !controls(owner, &known) => Err(Missing::NotOwned),
        Some(known) if is_terminating(&known) => Err(Missing::Leaving),
        Some(known) => Ok(Ok(known)),
        None => {
            let made = client.create(MANAGER, storage, namespace, desired.clone());
            let object = made.map_err(|status| Missing::Refused(status.message))?;
            Ok(Err(Child { object, is_new: true }))
        }
    }
}

/// Sets a map of the metadata, or removes it if it is empty.
fn set(object: &mut Value, field: &str, value: Map<String, Value>) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if value.is_empty() {
            metadata.remove(field);
        } else {
            metadata.insert(field.to_owned(), value.into());
        }
    }
}
