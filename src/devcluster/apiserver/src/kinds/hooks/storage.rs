//! PersistentVolumes, PersistentVolumeClaims, StorageClasses.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, items, text};
use super::quantity;
use crate::status::Cause;

/// Sets the defaults of a claim, also within a StatefulSet.
pub(super) fn default_claim(claim: &mut Object) {
    let Some(spec) = claim.object("spec") else { return };
    spec.text("volumeMode", "Filesystem");
    spec.value("resources", json!({}));
    spec.drop_zero(&["volumeName"]);
    if let Some(resources) = spec.inner("resources") {
        for list in ["limits", "requests"] {
            quantity::normalise(resources.inner(list));
        }
    }
    if let Some(status) = claim.inner("status") {
        status.text("phase", "Pending");
        quantity::normalise(status.inner("capacity"));
    }
}

pub(super) fn default_volume(volume: &mut Object) {
    let Some(spec) = volume.object("spec") else { return };
    spec.text("persistentVolumeReclaimPolicy", "Retain");
    spec.text("volumeMode", "Filesystem");
    quantity::normalise(spec.inner("capacity"));
    if let Some(path) = spec.inner("hostPath") {
        path.value("type", "");
    }
    if let Some(status) = volume.inner("status") {
        status.text("phase", "Pending");
    }
}

pub(super) fn default_class(class: &mut Object) {
    class.text("reclaimPolicy", "Delete");
    class.text("volumeBindingMode", "Immediate");
}

/// Sets the protection finalizer and phase of a new claim or volume.
pub(super) fn prepare_create(kind: &str, object: &mut Object) {
    let (finalizer, status) = if kind == "PersistentVolume" {
        let now = object.get("metadata").map(|m| m["creationTimestamp"].clone()).unwrap_or_default();
        ("kubernetes.io/pv-protection", json!({"phase": "Pending", "lastPhaseTransitionTime": now}))
    } else {
        ("kubernetes.io/pvc-protection", json!({"phase": "Pending"}))
    };
    object.insert("status".into(), status);
    let Some(metadata) = object.object("metadata") else { return };
    metadata.value("finalizers", json!([]));
    if let Some(Value::Array(list)) = metadata.get_mut("finalizers")
        && !list.iter().any(|f| f == finalizer)
    {
        list.push(finalizer.into());
    }
}

pub(super) fn validate_claim(claim: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &claim["spec"];
    if items(spec, &["accessModes"]).is_empty() {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if at(spec, &["resources", "requests", "storage"]).is_null() {
        causes.push(Cause::required("spec.resources[storage]", ""));
    }
    let Some(old) = old else { return };
    let frozen = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("resources");
            spec.remove("volumeAttributesClassName");
        }
        spec
    };
    let unbound = text(old, &["spec", "volumeName"]).is_empty();
    let (mut before, after) = (frozen(old), frozen(claim));
    // The volume name can be set once, by binding, and the storage class once, by a late default.
    if unbound && let Some(before) = before.as_object_mut() {
        for field in ["volumeName", "storageClassName"] {
            if let Some(value) = after.get(field) {
                before.value(field, value.clone());
            }
        }
    }
    if before != after {
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        causes.push(Cause::forbidden("spec", why));
        return;
    }
    let storage = |claim: &Value| quantity::nanos(at(claim, &["spec", "resources", "requests", "storage"]));
    if storage(claim) < storage(old) {
        let why = "field can not be less than status.capacity";
        causes.push(Cause::forbidden("spec.resources.requests.storage", why));
    }
}

pub(super) fn validate_volume(volume: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &volume["spec"];
    if items(spec, &["accessModes"]).is_empty() {
        causes.push(Cause::required("spec.accessModes", ""));
    }
    if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        causes.push(Cause::required("spec.capacity", ""));
    }
    let source = |volume: &Value| -> Vec<(String, Value)> {
        let other = [
            "accessModes",
            "capacity",
            "claimRef",
            "mountOptions",
            "nodeAffinity",
            "persistentVolumeReclaimPolicy",
            "storageClassName",
            "volumeAttributesClassName",
            "volumeMode",
        ];
        let fields = volume["spec"].as_object().into_iter().flatten();
        fields.filter(|(k, _)| !other.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    if source(volume).is_empty() {
        causes.push(Cause::required("spec", "must specify a volume type"));
    }
    if old.is_some_and(|old| source(old) != source(volume)) {
        let why = "spec.persistentvolumesource is immutable after creation";
        causes.push(Cause::forbidden("spec.persistentvolumesource", why));
    }
}

pub(super) fn validate_class(class: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if text(class, &["provisioner"]).is_empty() {
        causes.push(Cause::required("provisioner", ""));
    }
    let Some(old) = old else { return };
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        if old[field] != class[field] {
            causes.push(Cause::invalid(field, &class[field], "field is immutable"));
        }
    }
}
