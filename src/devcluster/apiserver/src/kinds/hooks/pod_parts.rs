//! The changeable parts of an existing Pod: `pods/ephemeralcontainers` adds debug containers, and `pods/resize` changes
//! the resources of containers.
//!
//! Not here: the resources of a whole pod (`spec.resources`), which cannot change.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, items, text};
use super::metadata::{Finalizers, NameRule, validate_metadata};
use super::pod::quality_of_service;
use super::pod_rules::{self, Restarts, duplicate};
use crate::status::Cause;

/// A subresource that changes a part of a Pod's spec.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// `pods/ephemeralcontainers`.
    EphemeralContainers,
    /// `pods/resize`.
    Resources,
}

/// Metadata that an update of a part cannot change.
const KEPT: [&str; 4] = ["labels", "annotations", "finalizers", "ownerReferences"];
/// The annotation of a mirror pod, which represents a static pod of its node.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Fields that ephemeral containers must not have, in the order of Go's type.
const SERVING: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

impl Part {
    /// Returns the part that a subresource changes.
    pub(super) fn of(subresource: &str) -> Option<Self> {
        match subresource {
            "ephemeralcontainers" => Some(Self::EphemeralContainers),
            "resize" => Some(Self::Resources),
            _ => None,
        }
    }

    /// Keeps everything of the old pod but the part.
    pub(super) fn prepare(self, old: &Value, pod: &mut Value) {
        let mut spec = old["spec"].clone();
        match self {
            Self::EphemeralContainers => {
                if let Some(spec) = spec.as_object_mut() {
                    take(spec, &pod["spec"], "ephemeralContainers");
                }
            }
            Self::Resources => {
                let same = |list: &str| items(&pod["spec"], &[list]).len() == items(&spec, &[list]).len();
                if !same("containers") || !same("initContainers") {
                    // The containers differ, so resources cannot be merged. Validation reports the difference.
                    return;
                }
                for list in ["containers", "initContainers"] {
                    let merged = resized(items(&spec, &[list]), items(&pod["spec"], &[list]));
                    if !merged.is_empty() {
                        spec[list] = merged.into();
                    }
                }
            }
        }
        let Some(pod) = pod.as_object_mut() else { return };
        pod.insert("spec".to_owned(), spec);
        take(pod, old, "status");
        if let Some(metadata) = pod.inner("metadata") {
            for field in KEPT {
                take(metadata, &old["metadata"], field);
            }
        }
    }

    /// Validates a change of the part.
    pub(super) fn validate(self, old: &Value, new: &Value) -> Vec<Cause> {
        if !at(old, &["metadata", "annotations", MIRROR]).is_null() {
            let why = match self {
                Self::EphemeralContainers => "static pods do not support ephemeral containers",
                Self::Resources => "static pods cannot be resized",
            };
            return vec![Cause::forbidden("[]", why)];
        }
        let mut causes = validate_metadata(new, Some(old), NameRule::Subdomain, Finalizers::Standard);
        pod_rules::validate_spec(&new["spec"], "spec", Restarts::Any, &mut causes);
        ephemeral_containers(&new["spec"], &mut causes);
        match self {
            Self::EphemeralContainers => kept(old, new, &mut causes),
            Self::Resources => resize(old, new, &mut causes),
        }
        causes
    }
}

/// Copies a field from `from`, or removes it if it is missing there.
fn take(to: &mut Object, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

/// Returns the old containers with the resources of the new containers. If the names differ, returns the new
/// containers.
fn resized(old: &[Value], new: &[Value]) -> Vec<Value> {
    if old.iter().zip(new).any(|(old, new)| old["name"] != new["name"]) {
        return new.to_vec();
    }
    let merge = |(old, new): (&Value, &Value)| {
        let mut merged = old.clone();
        if let Some(merged) = merged.as_object_mut() {
            take(merged, new, "resources");
            take(merged, new, "resizePolicy");
        }
        merged
    };
    old.iter().zip(new).map(merge).collect()
}

/// Validates ephemeral containers.
fn ephemeral_containers(spec: &Value, causes: &mut Vec<Cause>) {
    let not = "cannot be set for an Ephemeral Container";
    let name_of = |container: &Value| text(container, &["name"]).to_owned();
    let others: Vec<String> =
        ["containers", "initContainers"].iter().flat_map(|list| items(spec, &[list])).map(name_of).collect();
    let volumes = pod_rules::volume_names(spec, "spec", &mut Vec::new());
    let mut names: Vec<&str> = others.iter().map(String::as_str).collect();
    for (index, container) in items(spec, &["ephemeralContainers"]).iter().enumerate() {
        let here = format!("spec.ephemeralContainers[{index}]");
        let mut common = container.clone();
        if let Some(common) = common.as_object_mut() {
            for field in ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle"] {
                common.remove(field);
            }
        }
        let name = text(container, &["name"]);
        pod_rules::new_name(container, &here, &[], causes);
        pod_rules::validate_container(&common, &here, &volumes, causes);
        if names.contains(&name) {
            causes.push(duplicate(format!("{here}.name"), &name.into()));
        }
        names.push(name);
        let target = text(container, &["targetContainerName"]);
        if !target.is_empty() && !others.iter().any(|other| other == target) {
            let field = format!("{here}.targetContainerName");
            causes.push(Cause::new("FieldValueNotFound", field, format!("Not found: \"{target}\"")));
        }
        for field in SERVING.into_iter().filter(|field| !is_empty(&container[*field])) {
            causes.push(Cause::forbidden(format!("{here}.{field}"), not));
        }
        for (index, mount) in items(container, &["volumeMounts"]).iter().enumerate() {
            for field in ["subPath", "subPathExpr"].into_iter().filter(|field| !text(mount, &[field]).is_empty()) {
                causes.push(Cause::forbidden(format!("{here}.volumeMounts[{index}].{field}"), not));
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// Validates that existing ephemeral containers are neither changed nor removed.
fn kept(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let now = items(new, &["spec", "ephemeralContainers"]);
    for before in items(old, &["spec", "ephemeralContainers"]) {
        let why = match now.iter().find(|container| container["name"] == before["name"]) {
            Some(same) if same == before => continue,
            Some(_) => "changed",
            None => "removed",
        };
        let name = text(before, &["name"]);
        let why = format!("existing ephemeral containers {name:?} may not be {why}\n");
        causes.push(Cause::forbidden("spec.ephemeralContainers", &why));
    }
}

fn resize(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let class = match text(old, &["status", "qosClass"]) {
        "" => quality_of_service(&old["spec"]),
        known => known,
    };
    if class != quality_of_service(&new["spec"]) {
        causes.push(Cause::invalid("spec", &class.into(), "Pod QOS Class may not change as a result of resizing"));
    }
    let running = items(old, &["status", "containerStatuses"]).iter().find(|c| c["state"]["running"].is_object());
    if running.is_some_and(|container| container["resources"].is_null()) {
        causes.push(Cause::forbidden("spec", "Pod running on node without support for resize"));
    }
    let before = causes.len();
    for list in ["containers", "initContainers"] {
        same_containers(old, new, list, causes);
    }
    if causes.len() > before {
        return;
    }
    let pairs = |list: &str| -> Vec<(Value, Value)> {
        let (old, new) = (items(old, &["spec", list]), items(new, &["spec", list]));
        old.iter().cloned().zip(new.iter().cloned()).collect()
    };
    for list in ["initContainers", "containers"] {
        for (index, (old, new)) in pairs(list).iter().enumerate() {
            for what in ["requests", "limits"] {
                let asked = |c: &Value| c["resources"][what].as_object().cloned().unwrap_or_default();
                let now = asked(new);
                if asked(old).keys().any(|name| !now.contains_key(name)) {
                    let field = format!("spec.{list}[{index}].resources.{what}");
                    causes.push(Cause::forbidden(field, &format!("resource {what} cannot be removed")));
                }
            }
        }
    }
    for (old, new) in pairs("containers") {
        if !differs_in_room_only(&old, &new) {
            causes.push(Cause::forbidden("spec", "only cpu and memory resources are mutable"));
        }
    }
    for (index, (old, new)) in pairs("initContainers").into_iter().enumerate() {
        let field = format!("spec.initContainers[{index}]");
        if !differs_in_room_only(&old, &new) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            causes.push(Cause::forbidden(&field, why));
        }
        let restarts =
            items(&new, &["resizePolicy"]).iter().any(|policy| policy["restartPolicy"] == "RestartContainer");
        if old != new && restarts && new["restartPolicy"] != "Always" {
            let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            causes.push(Cause::forbidden(&field, why));
        }
    }
}

fn same_containers(old: &Value, new: &Value, list: &str, causes: &mut Vec<Cause>) {
    let (old, new) = (items(old, &["spec", list]), items(new, &["spec", list]));
    if old.len() != new.len() {
        let why = format!("{list} may not be added or removed on resize");
        causes.push(Cause::forbidden(format!("spec.{list}"), &why));
        return;
    }
    for (index, _) in old.iter().zip(new).enumerate().filter(|(_, (old, new))| old["name"] != new["name"]) {
        let why = format!("{list} may not be renamed or reordered on resize");
        causes.push(Cause::forbidden(format!("spec.{list}[{index}].name"), &why));
    }
}

/// Returns whether two containers differ in CPU and memory only.
fn differs_in_room_only(old: &Value, new: &Value) -> bool {
    let rest = |container: &Value| {
        let mut container = container.clone();
        let mut resources = json!({});
        for what in ["limits", "requests"] {
            let all = container["resources"][what].as_object().into_iter().flatten();
            let fixed: Object = all
                .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            resources[what] = fixed.into();
        }
        resources["claims"] = container["resources"]["claims"].clone();
        container["resources"] = resources;
        container
    };
    rest(old) == rest(new)
}
