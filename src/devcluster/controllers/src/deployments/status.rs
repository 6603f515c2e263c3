//! The status of a Deployment: counts, and the conditions Available and Progressing.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::rollout;
use super::sets::Sets;
use devcluster_apiserver::client::Client;
use devcluster_apiserver::object::{conditions, count, text};

/// Sets a condition. A changed condition moves to the end; an equal one keeps its times.
pub(super) fn with(client: &Client, object: &Value, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    put(conditions(object), kind, status, reason, message, &client.stamp(), Refresh::OnChange).into()
}

/// When a condition's `lastUpdateTime` changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refresh {
    /// When the status or reason of the condition changes.
    OnChange,
    /// At every call, because the Deployment made progress.
    Always,
}

fn put(
    list: &[Value],
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &Value,
    refresh: Refresh,
) -> Vec<Value> {
    let old = list.iter().find(|c| c["type"] == kind);
    if refresh == Refresh::OnChange && old.is_some_and(|c| c["status"] == status && c["reason"] == reason) {
        return list.to_vec();
    }
    let since = old.filter(|c| c["status"] == status).map_or(now, |c| &c["lastTransitionTime"]);
    let mut list: Vec<Value> = list.iter().filter(|c| c["type"] != kind).cloned().collect();
    list.push(json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": since,
    }));
    list
}

/// Computes the status from the ReplicaSets.
pub(super) fn of(client: &Client, deployment: &Value, sets: &Sets) -> Value {
    let replicas = count(deployment, "/spec/replicas");
    let available = sets.sum("/status/availableReplicas");
    let updated = sets.current.as_ref().map_or(0, |set| count(set, "/status/replicas"));
    let mut status = json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "terminatingReplicas": sets.sum("/status/terminatingReplicas"),
    });
    for (field, number) in [
        ("replicas", sets.sum("/status/replicas")),
        ("updatedReplicas", updated),
        ("readyReplicas", sets.sum("/status/readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (sets.sum("/spec/replicas") - available).max(0)),
        ("collisionCount", count(deployment, "/status/collisionCount")),
    ] {
        if number > 0 {
            status[field] = number.into();
        }
    }
    let now = client.stamp();
    let (is_available, reason, message) = if available >= replicas - rollout::may_miss(deployment) {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    let list = put(conditions(deployment), "Available", is_available, reason, message, &now, Refresh::OnChange);
    let mut list = progress(client, deployment, sets, &status, list);
    list.retain(|c| c["type"] != "ReplicaFailure");
    list.extend(sets.failure());
    status["conditions"] = list.into();
    status
}

fn progress(client: &Client, deployment: &Value, sets: &Sets, status: &Value, list: Vec<Value>) -> Vec<Value> {
    let deadline = &deployment["spec"]["progressDeadlineSeconds"];
    let now = client.stamp();
    let progressing = list.iter().find(|c| c["type"] == "Progressing").cloned().unwrap_or_default();
    if deadline.is_null() {
        return list.into_iter().filter(|c| c["type"] != "Progressing").collect();
    }
    if deployment["spec"]["paused"] == true {
        let message = "Deployment is paused";
        return put(&list, "Progressing", "Unknown", "DeploymentPaused", message, &now, Refresh::OnChange);
    }
    if progressing["reason"] == "DeploymentPaused" {
        let message = "Deployment is resumed";
        return put(&list, "Progressing", "Unknown", "DeploymentResumed", message, &now, Refresh::OnChange);
    }
    let rolled_out =
        status["replicas"] == status["updatedReplicas"] && progressing["reason"] == "NewReplicaSetAvailable";
    let Some(current) = sets.current.as_ref().filter(|_| !rolled_out) else { return list };
    let name = text(current, "/metadata/name");
    let replicas = count(deployment, "/spec/replicas");
    let is = |field: &str| count(status, &format!("/{field}"));
    let was = |field: &str| count(deployment, &format!("/status/{field}"));
    if ["updatedReplicas", "replicas", "availableReplicas"].iter().all(|field| is(field) == replicas) {
        let message = format!("ReplicaSet \"{name}\" has successfully progressed.");
        return put(&list, "Progressing", "True", "NewReplicaSetAvailable", &message, &now, Refresh::OnChange);
    }
    let more = ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().any(|field| is(field) > was(field));
    let fewer_old = is("replicas") - is("updatedReplicas") < was("replicas") - was("updatedReplicas");
    if more || fewer_old {
        let message = format!("ReplicaSet \"{name}\" is progressing.");
        return put(&list, "Progressing", "True", "ReplicaSetUpdated", &message, &now, Refresh::Always);
    }
    if left(client, &progressing, deadline).is_some_and(|left| left <= 0) {
        let message = format!("ReplicaSet \"{name}\" has timed out progressing.");
        return put(&list, "Progressing", "False", "ProgressDeadlineExceeded", &message, &now, Refresh::OnChange);
    }
    list
}

/// Seconds until the progress deadline; `None` for a complete, failed or paused Deployment.
fn left(client: &Client, progressing: &Value, deadline: &Value) -> Option<i64> {
    if progressing.is_null()
        || matches!(
            text(progressing, "/reason"),
            "NewReplicaSetAvailable" | "ProgressDeadlineExceeded" | "DeploymentPaused"
        )
    {
        return None;
    }
    let since: Timestamp = text(progressing, "/lastUpdateTime").parse().ok()?;
    Some(deadline.as_i64()? + since.as_second() - client.now().as_second())
}

/// Returns the delay until the progress deadline is checked.
pub(super) fn deadline(client: &Client, status: &Value, deployment: &Value) -> Option<Duration> {
    let list = status["conditions"].as_array()?;
    let progressing = list.iter().find(|c| c["type"] == "Progressing")?;
    let left = left(client, progressing, &deployment["spec"]["progressDeadlineSeconds"])?;
    Some(Duration::from_secs(u64::try_from(left.max(0)).unwrap_or(0)) + Duration::from_millis(200))
}
