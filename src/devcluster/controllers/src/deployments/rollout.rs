//! Sizes of the ReplicaSets during a rollout.

use serde_json::Value;

use super::sets::{SETS, SOURCE, Sets};
use devcluster_apiserver::client::Client;
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::object::{count, is_terminating, text};

/// Annotation with the replicas of the Deployment.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// Annotation with the most pods that the Deployment may have.
pub(super) const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// Resizes a ReplicaSet and emits an Event.
pub(super) fn resize(client: &Client, deployment: &Value, set: &Value, replicas: i64) {
    let old = count(set, "/spec/replicas");
    let mut next = set.clone();
    next["spec"]["replicas"] = replicas.into();
    next["metadata"]["annotations"][DESIRED] = count(deployment, "/spec/replicas").to_string().into();
    next["metadata"]["annotations"][MAXIMUM] = most(deployment).to_string().into();
    if next == *set || !client.update(CONTROLLER, &subject(SETS, set), next) {
        return;
    }
    if old != replicas {
        emit_scaled(client, deployment, set, old, replicas);
    }
}

/// Returns `maxSurge` (rounded up) and `maxUnavailable` (rounded down) as numbers of pods.
fn bounds(deployment: &Value) -> (i64, i64) {
    let replicas = count(deployment, "/spec/replicas");
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return (0, 0);
    }
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    let pods = |value: &Value, up: bool| -> i64 {
        if let Some(number) = value.as_i64() {
            return number;
        }
        let percent: i64 = value.as_str().and_then(|t| t.trim_end_matches('%').parse().ok()).unwrap_or(0);
        (percent * replicas + if up { 99 } else { 0 }) / 100
    };
    let (surge, unavailable) = (pods(&rolling["maxSurge"], true), pods(&rolling["maxUnavailable"], false));
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

/// Maximum number of unavailable pods.
pub(super) fn may_miss(deployment: &Value) -> i64 {
    let replicas = count(deployment, "/spec/replicas");
    if text(deployment, "/spec/strategy/type") == "RollingUpdate" && replicas > 0 {
        bounds(deployment).1.min(replicas)
    } else {
        0
    }
}

/// Maximum number of pods.
pub(super) fn most(deployment: &Value) -> i64 {
    let replicas = count(deployment, "/spec/replicas");
    if replicas == 0 { 0 } else { replicas + bounds(deployment).0 }
}

/// Initial size of a new ReplicaSet.
pub(super) fn first_replicas(deployment: &Value, sets: &Sets) -> i64 {
    let replicas = count(deployment, "/spec/replicas");
    if text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        return replicas;
    }
    (most(deployment) - sets.sum("/spec/replicas")).clamp(0, replicas)
}

/// Emits ScalingReplicaSet.
pub(super) fn emit_scaled(client: &Client, deployment: &Value, set: &Value, from: i64, to: i64) {
    let direction = if to > from { "up" } else { "down" };
    let message = format!("Scaled {direction} replica set {} from {from} to {to}", text(set, "/metadata/name"));
    client.report(deployment, SOURCE, "Normal", "ScalingReplicaSet", &message);
}

/// Takes the next step of a rollout: first the current ReplicaSet, then the old ones.
pub(super) fn step(client: &Client, deployment: &Value, sets: &Sets) {
    let replicas = count(deployment, "/spec/replicas");
    let Some(current) = &sets.current else {
        // The Deployment is paused and has no current ReplicaSet: the newest old ReplicaSet gets all replicas.
        if let Some(newest) = sets.old.last() {
            resize(client, deployment, newest, replicas);
        }
        return;
    };
    let size = count(current, "/spec/replicas");
    let active_old = sets.old.iter().any(|set| count(set, "/spec/replicas") > 0);
    if deployment["spec"]["paused"] == true && active_old {
        return;
    }
    let wanted = if size > replicas || !active_old || text(deployment, "/spec/strategy/type") != "RollingUpdate" {
        replicas
    } else {
        let headroom = most(deployment) - sets.sum("/spec/replicas");
        size + headroom.clamp(0, (replicas - size).max(0))
    };
    let grew = wanted != size;
    resize(client, deployment, current, wanted);
    if grew || !active_old {
        return;
    }
    if text(deployment, "/spec/strategy/type") == "RollingUpdate" {
        shrink_old(client, deployment, sets, current);
    } else {
        empty_old(client, deployment, sets);
    }
}

/// Shrinks old ReplicaSets: first their unavailable pods, then as many as `maxUnavailable` allows.
fn shrink_old(client: &Client, deployment: &Value, sets: &Sets, current: &Value) {
    let replicas = count(deployment, "/spec/replicas");
    let least = replicas - may_miss(deployment);
    let coming = (count(current, "/spec/replicas") - count(current, "/status/availableReplicas")).max(0);
    let mut spare = sets.sum("/spec/replicas") - least - coming;
    let mut available = sets.sum("/status/availableReplicas") - least;
    for set in &sets.old {
        let size = count(set, "/spec/replicas");
        let unhealthy = (size - count(set, "/status/availableReplicas")).clamp(0, spare.max(0));
        spare -= unhealthy;
        let healthy = (size - unhealthy).min(available.max(0)).min(spare.max(0));
        available -= healthy;
        spare -= healthy;
        if unhealthy + healthy > 0 {
            resize(client, deployment, set, size - unhealthy - healthy);
        }
    }
}

/// Scales all old ReplicaSets to zero.
pub(super) fn empty_old(client: &Client, deployment: &Value, sets: &Sets) {
    for set in sets.old.iter().filter(|set| count(set, "/spec/replicas") > 0) {
        resize(client, deployment, set, 0);
    }
}

/// Deletes the oldest empty ReplicaSets above `revisionHistoryLimit`.
pub(super) fn forget_old(client: &Client, deployment: &Value, sets: &Sets) {
    let Some(limit) = deployment["spec"]["revisionHistoryLimit"].as_i64() else { return };
    let spare = i64::try_from(sets.old.len()).unwrap_or(0) - limit;
    let is_empty = |set: &&std::sync::Arc<Value>| {
        count(set, "/spec/replicas") == 0 && count(set, "/status/replicas") == 0 && !is_terminating(set)
    };
    let complete = sets
        .current
        .as_ref()
        .is_some_and(|set| count(set, "/status/availableReplicas") >= count(deployment, "/spec/replicas"));
    if !complete {
        return;
    }
    for set in sets.old.iter().take(usize::try_from(spare).unwrap_or(0)).filter(is_empty) {
        client.delete(&subject(SETS, set), set, None, None);
    }
}
