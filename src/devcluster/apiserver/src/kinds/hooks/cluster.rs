//! Namespaces, Nodes, PriorityClasses, ResourceQuotas, LimitRanges, PodDisruptionBudgets, Leases, CRDs.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, text};
use super::quantity;
use crate::status::Cause;

/// Sets the name label of a Namespace. The label cannot be removed.
pub(super) fn default_namespace(object: &mut Object) {
    let Some(metadata) = object.object("metadata") else { return };
    let name = metadata.str("name").to_owned();
    if !name.is_empty()
        && let Some(labels) = metadata.object("labels")
    {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
    object.value("spec", json!({}));
}

/// Sets `spec.finalizers` and the phase of a new Namespace.
pub(super) fn prepare_namespace(object: &mut Object) {
    default_namespace(object);
    object.insert("spec".into(), json!({"finalizers": ["kubernetes"]}));
    object.insert("status".into(), json!({"phase": "Active"}));
}

/// Validates a Namespace: its phase must match its deletion state.
pub(super) fn validate_namespace(object: &Value, causes: &mut Vec<Cause>) {
    let phase = &object["status"]["phase"];
    let why = match (at(object, &["metadata", "deletionTimestamp"]).is_null(), phase.as_str()) {
        (true, Some(phase)) if phase != "Active" => "may only be 'Active' if `deletionTimestamp` is empty",
        (false, Some(phase)) if phase != "Terminating" => {
            "may only be 'Terminating' if `deletionTimestamp` is not empty"
        }
        _ => return,
    };
    causes.push(Cause::invalid("status.Phase", phase, why));
}

/// Adds the not-ready taint to a new Node, which lasts until its first heartbeat.
pub(super) fn prepare_node(object: &mut Object) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if let Some(spec) = object.object("spec") {
        spec.value("taints", json!([]));
        if let Some(Value::Array(taints)) = spec.get_mut("taints")
            && !taints.contains(&taint)
        {
            taints.push(taint);
        }
    }
    default_node_status(object);
}

/// Sets the fields of a Node's status that are written even if empty.
pub(super) fn default_node_status(object: &mut Object) {
    let Some(status) = object.object("status") else { return };
    status.value("daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    for list in ["capacity", "allocatable"] {
        quantity::normalise(status.inner(list));
    }
    let Some(info) = status.object("nodeInfo") else { return };
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        info.value(field, "");
    }
}

/// Normalises the quantities of a ResourceQuota.
pub(super) fn default_quota(object: &mut Object) {
    quantity::normalise(object.inner("spec").and_then(|s| s.inner("hard")));
    if let Some(status) = object.inner("status") {
        for list in ["hard", "used"] {
            quantity::normalise(status.inner(list));
        }
    }
}

/// Sets default limits of containers from the maximum, and default requests from limits or the minimum.
pub(super) fn default_limit_range(object: &mut Object) {
    for item in object.inner("spec").into_iter().flat_map(|spec| spec.each("limits")) {
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            quantity::normalise(item.inner(list));
        }
        if item.str("type") != "Container" {
            continue;
        }
        for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
            if let Some(source) = item.inner(from).cloned()
                && let Some(target) = item.object(to)
            {
                source.into_iter().for_each(|(name, value)| target.value(&name, value));
            }
        }
    }
}

/// Sets the counts of a PodDisruptionBudget's status, which are written even if zero.
pub(super) fn default_budget_status(object: &mut Object) {
    if let Some(status) = object.inner("status") {
        for count in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.value(count, 0);
        }
    }
}

pub(super) fn validate_priority_class(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let name = text(object, &["metadata", "name"]);
    let value = object["value"].as_i64().unwrap_or(0);
    if old.is_none()
        && name.starts_with("system-")
        && !matches!(name, "system-cluster-critical" | "system-node-critical")
    {
        let why = "priority class names with 'system-' prefix are reserved for system use only. error: undefined system priority classes";
        causes.push(Cause::forbidden("metadata.name", why));
    }
    if value > 1_000_000_000 && !name.starts_with("system-") {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        causes.push(Cause::forbidden("value", why));
    }
    let Some(old) = old else { return };
    if old["value"] != object["value"] {
        causes.push(Cause::forbidden("value", "may not be changed in an update."));
    }
    if old["preemptionPolicy"] != object["preemptionPolicy"] {
        causes.push(Cause::invalid("preemptionPolicy", &object["preemptionPolicy"], "field is immutable"));
    }
}

pub(super) fn validate_lease(object: &Value, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if spec["leaseDurationSeconds"].as_i64().is_some_and(|n| n <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &spec["leaseDurationSeconds"],
            "must be greater than 0",
        ));
    }
    if spec["leaseTransitions"].as_i64().is_some_and(|n| n < 0) {
        let why = "must be greater than or equal to 0";
        causes.push(Cause::invalid("spec.leaseTransitions", &spec["leaseTransitions"], why));
    }
}

/// Sets the names that derive from the kind, and the conversion strategy `None`.
pub(super) fn default_definition(object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    if let Some(names) = spec.object("names") {
        let kind = names.str("kind").to_owned();
        if !kind.is_empty() {
            names.text("singular", &kind.to_lowercase());
            names.text("listKind", &format!("{kind}List"));
        }
        names.drop_zero(&["shortNames", "categories"]);
    }
    if let Some(conversion) = spec.object("conversion") {
        conversion.text("strategy", "None");
        if let Some(service) =
            conversion.inner("webhook").and_then(|w| w.inner("clientConfig")).and_then(|c| c.inner("service"))
        {
            service.value("port", 443);
        }
    }
    spec.drop_zero(&["preserveUnknownFields"]);
}

/// Keeps the fields of a Namespace that only its controller may change.
pub(super) fn prepare_namespace_update(old: &Value, object: &mut Object) {
    default_namespace(object);
    object.insert("spec".into(), at(old, &["spec"]).clone());
}
