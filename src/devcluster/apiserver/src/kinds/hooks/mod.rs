//! The behaviour of built-in kinds: defaults, server-set fields, validation, generation, conversion.
//!
//! Each function takes an object (and, on updates, the stored one). It changes the object as a real API server would,
//! or returns the causes of a real server's refusal. Each group of kinds has a file; this module only dispatches to
//! them.
//!
//! Invariant: `default` is idempotent, so applying a stored object again changes nothing.
//! Invariant: no JSON causes a panic. Fields of a wrong type stay unchanged, and the schema refuses them.
//!
//! Not here: custom resources, which have schemas instead, and clocks. Times and identities are already in `metadata`.

mod access;
mod allocation;
mod autoscaling;
mod cluster;
mod configuration;
mod event;
mod fill;
mod job;
mod label_selector;
pub(crate) mod metadata;
mod pod;
mod pod_parts;
mod pod_rules;
mod policies;
mod quantity;
mod rules;
mod service;
mod storage;
mod webhooks;
mod workloads;

use serde_json::{Value, json};

pub use self::metadata::{Finalizers, NameRule, name_rule, validate_metadata};

pub use self::job::finished as job_finished;
pub use self::label_selector::matches as selects;
pub(crate) use self::quantity::Quantity;

pub use self::allocation::{Allocator, Held};
use self::fill::{Fill, Object, at, forget_nulls};
use crate::status::Cause;

/// Returns a quantity in billionths; `None` if invalid.
pub fn quantity(value: &Value) -> Option<i128> {
    quantity::nanos(value)
}

/// Formats a number of bytes as a quantity.
pub fn bytes(bytes: u64) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let whole = units.into_iter().find(|(_, power)| bytes > 0 && bytes.is_multiple_of(1 << power));
    whole.map_or_else(|| bytes.to_string(), |(unit, power)| format!("{}{unit}", bytes >> power))
}

/// Returns the allocations of `object`; empty for all kinds but Service.
pub fn held(api_version: &str, kind: &str, object: &Value) -> Held {
    if (api_version, kind) == ("v1", "Service") { service::held(object) } else { Held::default() }
}

/// Returns why Go's decoder would refuse an object beyond its field types: base64 of Secrets, quantities. The text
/// becomes the end of a 400: `<Kind> in version "<v>" cannot be handled as a <Kind>: <text>`.
pub fn check_decodable(api_version: &str, kind: &str, object: &Value) -> Result<(), String> {
    let template = ["spec", "template", "spec"];
    match (api_version, kind) {
        ("v1", "Secret") => configuration::check_base64(object, &["data"]),
        ("v1", "ConfigMap") => configuration::check_base64(object, &["binaryData"]),
        ("v1", "Pod") => pod_rules::check_quantities(&object["spec"]),
        ("apps/v1", _) => pod_rules::check_quantities(at(object, &template)),
        ("batch/v1", "Job") => job::check(object, &template),
        ("batch/v1", "CronJob") => job::check(object, &["spec", "jobTemplate", "spec", "template", "spec"]),
        ("v1", "PersistentVolumeClaim") => pod_rules::check_list(at(object, &["spec", "resources", "requests"])),
        ("v1", "PersistentVolume") => pod_rules::check_list(at(object, &["spec", "capacity"])),
        ("v1", "ResourceQuota") => pod_rules::check_list(at(object, &["spec", "hard"])),
        _ => Ok(()),
    }
}

/// Sets the kind's defaults, removes nulls and zero values that Go omits, and normalises quantities. Idempotent.
pub fn default(api_version: &str, kind: &str, object: &mut Value) {
    forget_nulls(object);
    let Some(object) = object.as_object_mut() else { return };
    match (api_version, kind) {
        ("v1", "ConfigMap") => configuration::default_config_map(object),
        ("v1", "Secret") => configuration::default_secret(object),
        ("v1", "ServiceAccount") => configuration::default_service_account(object),
        ("v1", "Service") => service::default_service(object),
        ("v1", "Endpoints") => service::default_endpoints(object),
        ("discovery.k8s.io/v1", "EndpointSlice") => service::default_slice(object),
        ("v1", "Pod") => pod::default_pod(object),
        ("v1", "Namespace") => cluster::default_namespace(object),
        ("v1", "Node") => {
            object.value("spec", json!({}));
            cluster::default_node_status(object);
        }
        ("v1", "PersistentVolumeClaim") => storage::default_claim(object),
        ("v1", "PersistentVolume") => storage::default_volume(object),
        ("v1", "ResourceQuota") => cluster::default_quota(object),
        ("v1", "LimitRange") => cluster::default_limit_range(object),
        (_, "Event") => event::default(api_version, object),
        ("v1", "ReplicationController") | ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::default(kind, object);
        }
        ("batch/v1", "Job") => job::default_job(object),
        ("batch/v1", "CronJob") => job::default_cron_job(object),
        (_, "HorizontalPodAutoscaler") => autoscaling::default(api_version, object),
        ("networking.k8s.io/v1", "NetworkPolicy") => access::default_policy(object),
        ("networking.k8s.io/v1", "Ingress") => {
            if let Some(status) = object.inner("status") {
                status.value("loadBalancer", json!({}));
            }
        }
        ("policy/v1", "PodDisruptionBudget") => cluster::default_budget_status(object),
        ("rbac.authorization.k8s.io/v1", _) => access::default_rbac(kind, object),
        ("storage.k8s.io/v1", "StorageClass") => storage::default_class(object),
        ("scheduling.k8s.io/v1", "PriorityClass") => {
            object.text("preemptionPolicy", "PreemptLowerPriority");
            object.value("value", 0);
            object.drop_zero(&["globalDefault", "description"]);
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => cluster::default_definition(object),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding") => {
            policies::default(kind, object);
        }
        ("admissionregistration.k8s.io/v1", _) => webhooks::default(kind, object),
        _ => {}
    }
}

/// Prepares a new object after its defaults: initial status, addresses, names from the UID. `metadata.name`, `uid`,
/// `creationTimestamp` and `namespace` must be set.
pub fn prepare_create(api_version: &str, kind: &str, object: &mut Value, allocator: &mut dyn Allocator) -> Vec<Cause> {
    if (api_version, kind) == ("v1", "Service") {
        return service::prepare_create(object, allocator);
    }
    let Some(object) = object.as_object_mut() else { return Vec::new() };
    match (api_version, kind) {
        ("v1", "Pod") => pod::prepare(object),
        ("v1", "Namespace") => cluster::prepare_namespace(object),
        ("v1", "Node") => cluster::prepare_node(object),
        ("v1", "PersistentVolumeClaim" | "PersistentVolume") => storage::prepare_create(kind, object),
        ("v1", "ReplicationController") | ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::prepare_create(kind, object);
        }
        ("batch/v1", "Job") => job::prepare_create(object),
        ("v1", "ResourceQuota")
        | ("batch/v1", "CronJob")
        | ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => initial(object, json!({})),
        ("networking.k8s.io/v1", "Ingress") => initial(object, json!({"loadBalancer": {}})),
        ("policy/v1", "PodDisruptionBudget") => {
            initial(object, json!({}));
            cluster::default_budget_status(object);
        }
        (_, "HorizontalPodAutoscaler") => {
            initial(object, json!({}));
            autoscaling::default(api_version, object);
        }
        _ => {}
    }
    Vec::new()
}

fn initial(object: &mut Object, status: Value) {
    object.insert("status".into(), status);
}

/// Returns whether the kind has a `/status` endpoint, so that its main endpoint ignores `status`.
fn has_status(api_version: &str, kind: &str) -> bool {
    match api_version {
        "v1" => matches!(
            kind,
            "Namespace"
                | "Service"
                | "Pod"
                | "PersistentVolumeClaim"
                | "PersistentVolume"
                | "Node"
                | "ResourceQuota"
                | "ReplicationController"
        ),
        "apps/v1" => kind != "ControllerRevision",
        "batch/v1" | "autoscaling/v1" | "autoscaling/v2" | "policy/v1" | "apiextensions.k8s.io/v1" => true,
        "networking.k8s.io/v1" => kind == "Ingress",
        "admissionregistration.k8s.io/v1" => kind == "ValidatingAdmissionPolicy",
        _ => false,
    }
}

/// Prepares the new state for an update through the main endpoint. Keeps the old status, the Service's addresses and
/// the Job's selector.
pub fn prepare_update(
    api_version: &str,
    kind: &str,
    old: &Value,
    object: &mut Value,
    allocator: &mut dyn Allocator,
) -> Vec<Cause> {
    if has_status(api_version, kind)
        && let Some(object) = object.as_object_mut()
    {
        match old.get("status") {
            Some(status) => object.insert("status".into(), status.clone()),
            None => object.remove("status"),
        };
    }
    if (api_version, kind) == ("v1", "Service") {
        return service::prepare_update(old, object, allocator);
    }
    let Some(object) = object.as_object_mut() else { return Vec::new() };
    match (api_version, kind) {
        ("v1", "Namespace") => cluster::prepare_namespace_update(old, object),
        ("v1", "Pod") => keep_bound(old, object),
        ("apps/v1", "DaemonSet") => workloads::prepare_update(kind, old, object),
        ("batch/v1", "Job") => job::prepare_update(old, object),
        _ => {}
    }
    Vec::new()
}

/// Keeps the fields that admission added to a Pod, if the new version lacks them.
fn keep_bound(old: &Value, object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    for field in ["nodeName", "serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "tolerations"] {
        if let Some(value) = old["spec"].get(field) {
            spec.value(field, value.clone());
        }
    }
}

/// Prepares the new state for an update through `/status`. Keeps everything but the status and metadata; some kinds
/// also keep part of the metadata.
pub fn prepare_status_update(api_version: &str, kind: &str, old: &Value, object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    for (field, value) in old.as_object().into_iter().flatten() {
        if field != "status" && field != "metadata" {
            object.insert(field.clone(), value.clone());
        }
    }
    object.retain(|field, _| matches!(field.as_str(), "status" | "metadata") || old.get(field).is_some());
    let kept: &[&str] = match (api_version, kind) {
        ("apps/v1", "Deployment") => &["labels"],
        ("v1", "Pod") => &["ownerReferences", "deletionTimestamp", "deletionGracePeriodSeconds"],
        ("apiextensions.k8s.io/v1", _) => &["labels", "annotations", "finalizers", "ownerReferences"],
        _ => &[],
    };
    let Some(metadata) = object.inner("metadata") else { return };
    for field in kept {
        match old["metadata"].get(*field) {
            Some(value) => metadata.insert((*field).to_owned(), value.clone()),
            None => metadata.remove(*field),
        };
    }
}

/// Prepares the new state for a Pod update through `/ephemeralcontainers` or `/resize`. Keeps everything but that part.
pub(crate) fn prepare_part(subresource: &str, old: &Value, object: &mut Value) {
    if let Some(part) = pod_parts::Part::of(subresource) {
        part.prepare(old, object);
    }
}

/// Validates a Pod update through `/ephemeralcontainers` or `/resize`; `None` for other subresources.
pub(crate) fn validate_part(subresource: &str, old: &Value, object: &Value) -> Option<Vec<Cause>> {
    pod_parts::Part::of(subresource).map(|part| part.validate(old, object))
}

/// Validates `object` (causes of a 422). With `old`, also checks the immutable fields.
pub fn validate(api_version: &str, kind: &str, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate_metadata(object, old, name_rule(api_version, kind), Finalizers::Standard);
    let more = &mut causes;
    match (api_version, kind) {
        ("v1", "ConfigMap") => configuration::validate_config_map(object, old, more),
        ("v1", "Secret") => configuration::validate_secret(object, old, more),
        ("v1", "Service") => service::validate_service(object, old, more),
        ("discovery.k8s.io/v1", "EndpointSlice") => service::validate_slice(object, old, more),
        ("v1", "Namespace") => cluster::validate_namespace(object, more),
        ("v1", "Pod") => match old {
            Some(old) => pod_rules::immutable(old, object, more),
            None => pod_rules::validate_new(object, more),
        },
        ("v1", "PersistentVolumeClaim") => storage::validate_claim(object, old, more),
        ("v1", "PersistentVolume") => storage::validate_volume(object, old, more),
        (_, "Event") => event::validate(api_version, object, old, more),
        ("v1", "ReplicationController") | ("apps/v1", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet") => {
            workloads::validate(kind, object, old, more);
        }
        ("batch/v1", "Job") => job::validate_job(object, old, more),
        ("batch/v1", "CronJob") => job::validate_cron_job(object, more),
        (_, "HorizontalPodAutoscaler") => autoscaling::validate(object, more),
        ("networking.k8s.io/v1", "Ingress") => rules::ingresses::validate(&object["spec"], more),
        ("networking.k8s.io/v1", "NetworkPolicy") => rules::network_policies::validate(&object["spec"], more),
        ("policy/v1", "PodDisruptionBudget") => rules::budgets::validate(&object["spec"], more),
        ("rbac.authorization.k8s.io/v1", _) => access::validate_rbac(kind, object, old, more),
        ("storage.k8s.io/v1", "StorageClass") => storage::validate_class(object, old, more),
        ("scheduling.k8s.io/v1", "PriorityClass") => cluster::validate_priority_class(object, old, more),
        ("coordination.k8s.io/v1", "Lease") => cluster::validate_lease(object, more),
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            webhooks::validate(object, more);
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => policies::validate(object, more),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            policies::validate_binding(object, more);
        }
        _ => {}
    }
    causes
}

/// Returns whether an update through the main endpoint increments the generation; `None` for kinds without generations.
/// The first generation is 1.
pub fn generation_changes(api_version: &str, kind: &str, old: &Value, new: &Value) -> Option<bool> {
    let spec = || old["spec"] != new["spec"];
    match (api_version, kind) {
        ("apps/v1", "Deployment") => {
            Some(spec() || at(old, &["metadata", "annotations"]) != at(new, &["metadata", "annotations"]))
        }
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            Some(old["webhooks"] != new["webhooks"])
        }
        ("apps/v1", "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | (
            "batch/v1"
            | "networking.k8s.io/v1"
            | "policy/v1"
            | "apiextensions.k8s.io/v1"
            | "admissionregistration.k8s.io/v1",
            _,
        )
        | ("v1", "ReplicationController") => Some(spec()),
        ("v1", "Pod") => Some(spec() && !is_placement(&old["spec"], &new["spec"])),
        ("discovery.k8s.io/v1", "EndpointSlice") => Some(
            ["addressType", "endpoints", "ports"].iter().any(|field| old[*field] != new[*field])
                || at(old, &["metadata", "labels"]) != at(new, &["metadata", "labels"]),
        ),
        ("scheduling.k8s.io/v1", "PriorityClass") => Some(false),
        _ => None,
    }
}

/// Returns whether only the node was set. Binding by the scheduler does not increment the generation.
fn is_placement(old: &Value, new: &Value) -> bool {
    let mut unplaced = new.clone();
    let placed = unplaced.as_object_mut().and_then(|spec| spec.remove("nodeName")).is_some();
    placed && old.get("nodeName").is_none() && *old == unplaced
}

/// Converts an object to another version of its group. HorizontalPodAutoscalers and Events change their fields; other
/// kinds only change `apiVersion`.
pub fn convert(object: &Value, from: &str, to: &str) -> Value {
    if from == to {
        return object.clone();
    }
    match object["kind"].as_str().unwrap_or_default() {
        "HorizontalPodAutoscaler" => autoscaling::convert(object, to),
        "Event" => event::convert(object, to),
        _ => {
            let mut object = object.clone();
            object["apiVersion"] = to.into();
            object
        }
    }
}

#[cfg(test)]
mod tests;
