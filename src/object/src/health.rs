//! Whether a live object is healthy, as kstatus defines it.
//!
//! Where kstatus and Flux differ, Flux is followed: a Job is healthy when it is complete or suspended, not when it has
//! started. Where kstatus and use differ, it is as listed here; a fixture that kstatus itself has made holds all the rest:
//!
//! - a Pod that failed, a claim that lost its volume, and an object whose `Ready` is of an older generation are not healthy
//! - a Pod that cannot be scheduled is progressing, however long: waiting has its own timeout, and health has no time
//! - a DaemonSet with the strategy `OnDelete` need not be updated: only people go on with it, as with a StatefulSet
//! - an APIService has to be available, an autoscaler has to find what it scales, a Function has to run, and an APIRule
//!   has to be served
//!
//! Deliberately absent: health by expressions, which a GitSync has (`managed::health_rules`).

mod live;
mod others;
mod state;
mod workloads;

#[cfg(test)]
mod kstatus;
#[cfg(test)]
mod tests;

use serde_json::Value;

pub use others::is_established;
pub use state::Health;

use live::Live;
use state::Health::{Failed, Healthy, Progressing};

use super::{Key, Object};

/// The health of a live object.
pub fn health(key: &Key, live: &Value) -> Health {
    of(&Live { key, value: live, is_confidential: false })
}

/// The health of the live object that a desired one, which is called `key` in the cluster, has become.
pub fn health_of(key: &Key, desired: &Object, live: &Value) -> Health {
    of(&Live { key, value: live, is_confidential: desired.is_confidential() })
}

fn of(object: &Live<'_>) -> Health {
    // Rules for every kind come first; the first rule that does not say "healthy" decides.
    let rules: [fn(&Live<'_>) -> Health; 2] = [general, rule_of(object.key)];
    rules.iter().map(|rule| rule(object)).find(|health| *health != Healthy).unwrap_or(Healthy)
}

/// The rules of a kind.
fn rule_of(key: &Key) -> fn(&Live<'_>) -> Health {
    match (&*key.group, &*key.kind) {
        ("apps" | "extensions", "Deployment") => workloads::deployment,
        ("apps", "StatefulSet") => workloads::stateful_set,
        ("apps" | "extensions", "DaemonSet") => workloads::daemon_set,
        ("apps" | "extensions", "ReplicaSet") => workloads::replica_set,
        ("", "Pod") => workloads::pod,
        ("batch", "Job") => workloads::job,
        ("", "PersistentVolumeClaim") => others::claim,
        ("", "Service") => others::service,
        ("", "ConfigMap" | "Secret") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => |_| Healthy,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => others::definition,
        ("apiregistration.k8s.io", "APIService") => others::api_service,
        ("autoscaling", "HorizontalPodAutoscaler") => others::autoscaler,
        ("serverless.kyma-project.io", "Function") => others::function,
        ("gateway.kyma-project.io", "APIRule") => others::api_rule,
        _ => others::ready,
    }
}

/// What is the same for every kind.
fn general(object: &Live<'_>) -> Health {
    if let Some(waits) = unsettled(object.value) {
        return Progressing(waits);
    }
    // They exclude each other; the first one decides.
    for condition in object.conditions() {
        match (condition.kind(), condition.status()) {
            ("Reconciling", "True") => return Progressing(object.words(&condition)),
            ("Stalled", "True") => return Failed(object.words(&condition)),
            _ => {}
        }
    }
    Healthy
}

/// Why nothing that an object says counts yet: it is being deleted, or its controller has not seen what it is now.
pub fn unsettled(live: &Value) -> Option<String> {
    if live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Some("it is being deleted".into());
    }
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
    let generation = number("/metadata/generation")?;
    let is_seen = number("/status/observedGeneration").is_none_or(|observed| observed == generation);
    (!is_seen).then(|| format!("its controller has not seen generation {generation}"))
}
