//! Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, text};
use super::pod;
use super::pod_rules::{self, Restarts};
use super::{rules, storage};
use crate::status::Cause;

pub(super) fn default(kind: &str, object: &mut Object) {
    let Some(spec) = object.object("spec") else { return };
    pod::default_template(spec);
    spec.drop_zero(&["minReadySeconds", "paused"]);
    match kind {
        "Deployment" => {
            spec.value("replicas", 1);
            spec.value("revisionHistoryLimit", 10);
            spec.value("progressDeadlineSeconds", 600);
            if let Some(strategy) = spec.object("strategy") {
                strategy.text("type", "RollingUpdate");
                if strategy.str("type") == "RollingUpdate"
                    && let Some(rolling) = strategy.object("rollingUpdate")
                {
                    rolling.value("maxUnavailable", "25%");
                    rolling.value("maxSurge", "25%");
                }
            }
        }
        "StatefulSet" => default_stateful_set(spec),
        "DaemonSet" => {
            spec.value("revisionHistoryLimit", 10);
            if let Some(strategy) = spec.object("updateStrategy") {
                strategy.text("type", "RollingUpdate");
                if strategy.str("type") == "RollingUpdate"
                    && let Some(rolling) = strategy.object("rollingUpdate")
                {
                    rolling.value("maxUnavailable", 1);
                    rolling.value("maxSurge", 0);
                }
            }
        }
        "ReplicationController" => default_replication_controller(object),
        _ => spec.value("replicas", 1),
    }
    required_status(kind, object);
}

fn default_stateful_set(spec: &mut Object) {
    spec.value("replicas", 1);
    spec.value("revisionHistoryLimit", 10);
    spec.text("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.object("updateStrategy") {
        if strategy.str("type").is_empty() {
            strategy.text("type", "RollingUpdate");
            strategy.value("rollingUpdate", json!({}));
        }
        if strategy.str("type") == "RollingUpdate"
            && let Some(rolling) = strategy.inner("rollingUpdate")
        {
            rolling.value("partition", 0);
        }
    }
    if let Some(policy) = spec.object("persistentVolumeClaimRetentionPolicy") {
        policy.text("whenDeleted", "Retain");
        policy.text("whenScaled", "Retain");
    }
    for claim in spec.each("volumeClaimTemplates") {
        claim.text("apiVersion", "v1");
        claim.text("kind", "PersistentVolumeClaim");
        storage::default_claim(claim);
        claim.insert("status".into(), json!({"phase": "Pending"}));
    }
}

/// Sets a missing selector and missing labels to the template's labels.
fn default_replication_controller(object: &mut Object) {
    let labels = object.get("spec").map(|s| at(s, &["template", "metadata", "labels"]).clone()).unwrap_or_default();
    if let Some(spec) = object.object("spec") {
        spec.value("replicas", 1);
        if labels.is_object() {
            spec.value("selector", labels.clone());
        }
    }
    if labels.is_object()
        && let Some(metadata) = object.object("metadata")
    {
        metadata.value("labels", labels);
    }
}

/// Returns the counts that are written even if zero.
fn status_counts(kind: &str) -> &'static [&'static str] {
    match kind {
        "ReplicaSet" | "ReplicationController" => &["replicas"],
        "StatefulSet" => &["replicas", "availableReplicas"],
        "DaemonSet" => &["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"],
        _ => &[],
    }
}

fn required_status(kind: &str, object: &mut Object) {
    if let Some(status) = object.inner("status") {
        for count in status_counts(kind) {
            status.value(count, 0);
        }
    }
}

/// Sets the initial status, and the template generation of DaemonSets.
pub(super) fn prepare_create(kind: &str, object: &mut Object) {
    object.insert("status".into(), json!({}));
    required_status(kind, object);
    if kind == "DaemonSet" {
        template_generation(object, 1);
    }
}

fn template_generation(object: &mut Object, generation: i64) {
    if let Some(annotations) = object.object("metadata").and_then(|m| m.object("annotations")) {
        annotations.insert("deprecated.daemonset.template.generation".into(), generation.to_string().into());
    }
}

/// Increments a DaemonSet's template generation if the template changed.
pub(super) fn prepare_update(kind: &str, old: &Value, object: &mut Object) {
    if kind == "DaemonSet" {
        let was = text(old, &["metadata", "annotations", "deprecated.daemonset.template.generation"]);
        let changed = at(old, &["spec", "template"]) != object.get("spec").map_or(&Value::Null, |s| &s["template"]);
        template_generation(object, was.parse().unwrap_or(1) + i64::from(changed));
    }
}

pub(super) fn validate(kind: &str, object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &object["spec"];
    if kind == "ReplicationController" {
        pod_rules::validate_template(&spec["template"], "spec.template", Restarts::Always, causes);
        if let Some(replicas) = spec["replicas"].as_i64().filter(|n| *n < 0) {
            causes.push(Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0"));
        }
    } else {
        rules::workloads::validate(kind, spec, causes);
    }
    let Some(old) = old else { return };
    match kind {
        "StatefulSet" => stateful_set_update(old, object, causes),
        "ReplicationController" => {}
        _ if at(old, &["spec", "selector"]) != &spec["selector"] => {
            causes.push(Cause::invalid("spec.selector", &spec["selector"], "field is immutable"));
        }
        _ => {}
    }
}

fn stateful_set_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    let frozen = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(spec) = spec.as_object_mut() {
            for field in [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ] {
                spec.remove(field);
            }
        }
        spec
    };
    if frozen(old) != frozen(new) {
        causes.push(Cause::forbidden("spec", "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
    }
}
