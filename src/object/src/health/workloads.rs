//! The rules of Kubernetes' kinds that run pods.

use serde_json::Value;

use super::live::{Live, first};
use super::state::Health::{self, Failed, Healthy, Progressing};

pub(super) fn deployment(object: &Live<'_>) -> Health {
    let progressing = || object.conditions().filter(|condition| condition.kind() == "Progressing");
    if let Some(condition) = progressing().find(|condition| condition.reason() == "ProgressDeadlineExceeded") {
        return Failed(object.words(&condition));
    }
    // Without a deadline, the controller does not report progress.
    let has_deadline = object.number("/spec/progressDeadlineSeconds").is_some_and(|most| most != i64::from(i32::MAX));
    let is_complete = |condition: super::live::Condition<'_>| {
        condition.status() == "True" && condition.reason() == "NewReplicaSetAvailable"
    };
    let desired = object.replicas();
    let updated = object.count("updatedReplicas");
    let counts = first([
        object.at_least(desired, "replicas", "created"),
        object.at_least(desired, "updatedReplicas", "updated"),
        object.at_most(desired),
        object.at_least(updated, "availableReplicas", "available"),
        object.at_least(desired, "readyReplicas", "ready"),
    ]);
    match (counts, object.is("ReplicaFailure", "True")) {
        (Healthy, _) if has_deadline && !progressing().any(is_complete) => {
            Progressing("its new replicas are not all available".into())
        }
        (Healthy, _) if object.is("Available", "True").is_none() => Progressing("it is not available".into()),
        (Progressing(what), Some(condition)) => Progressing(format!("{what}; {}", object.words(&condition))),
        (health, _) => health,
    }
}

pub(super) fn stateful_set(object: &Live<'_>) -> Health {
    if object.text("/spec/updateStrategy/type") == "OnDelete" {
        return Healthy;
    }
    let desired = object.replicas();
    let counts = first([
        object.at_least(desired, "replicas", "created"),
        object.at_least(desired, "readyReplicas", "ready"),
        object.at_most(desired),
    ]);
    if counts != Healthy {
        return counts;
    }
    if let Some(partition) = object.number("/spec/updateStrategy/rollingUpdate/partition") {
        return object.at_least(desired - partition, "updatedReplicas", "updated");
    }
    let current = object.at_least(desired, "currentReplicas", "of the current revision");
    if current == Healthy && object.text("/status/currentRevision") != object.text("/status/updateRevision") {
        return Progressing("it is rolling out".into());
    }
    current
}

pub(super) fn daemon_set(object: &Live<'_>) -> Health {
    let is_seen =
        ["/metadata/generation", "/status/observedGeneration"].map(|pointer| object.number(pointer).is_some());
    if is_seen != [true, true] {
        return Progressing("its controller has not seen it".into());
    }
    let Some(desired) = object.number("/status/desiredNumberScheduled") else {
        return Progressing("its controller has not counted the nodes".into());
    };
    let updated = if object.text("/spec/updateStrategy/type") == "OnDelete" {
        Healthy
    } else {
        object.at_least(desired, "updatedNumberScheduled", "updated")
    };
    first([
        object.at_least(desired, "currentNumberScheduled", "created"),
        updated,
        object.at_least(desired, "numberAvailable", "available"),
        object.at_least(desired, "numberReady", "ready"),
    ])
}

pub(super) fn replica_set(object: &Live<'_>) -> Health {
    if let Some(condition) = object.is("ReplicaFailure", "True") {
        return Progressing(object.words(&condition));
    }
    let desired = object.replicas();
    first([
        object.at_least(desired, "fullyLabeledReplicas", "labelled"),
        object.at_least(desired, "availableReplicas", "available"),
        object.at_least(desired, "readyReplicas", "ready"),
        object.at_most(desired),
    ])
}

pub(super) fn pod(object: &Live<'_>) -> Health {
    let reason = || match object.text("/status/reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    match object.text("/status/phase") {
        "Succeeded" => Healthy,
        "Failed" => Failed(format!("the pod failed{}", reason())),
        "Running" if object.is("Ready", "True").is_some() => Healthy,
        "Running" => match crash_looping(object) {
            Some(name) => Failed(format!("container {name} is in a crash loop")),
            None => Progressing("the pod is not ready".into()),
        },
        _ => match object.is("PodScheduled", "False") {
            Some(condition) => Progressing(object.words(&condition)),
            None => Progressing("the pod is not running".into()),
        },
    }
}

fn crash_looping<'v>(object: &Live<'v>) -> Option<&'v str> {
    let statuses = object.at("/status/containerStatuses").and_then(Value::as_array);
    statuses
        .into_iter()
        .flatten()
        .find(|status| status["state"]["waiting"]["reason"] == "CrashLoopBackOff")
        .map(|status| status["name"].as_str().unwrap_or_default())
}

pub(super) fn job(object: &Live<'_>) -> Health {
    if let Some(condition) = object.is("Failed", "True") {
        return Failed(object.words(&condition));
    }
    let suspended = object.at("/spec/suspend") == Some(&Value::Bool(true));
    if suspended || object.is("Complete", "True").is_some() {
        return Healthy;
    }
    Progressing(format!(
        "{} of {} pods succeeded",
        object.count("succeeded"),
        object.number("/spec/completions").or(object.number("/spec/parallelism")).unwrap_or(1)
    ))
}
