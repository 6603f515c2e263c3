//! The rules of all kinds except workloads, and the rule of kinds that have none of their own.

use serde_json::Value;

use mainstay_api::function_failure::is_lasting;

use super::live::{Condition, Live};
use super::state::Health::{self, Failed, Healthy, Progressing};

pub(super) fn claim(object: &Live<'_>) -> Health {
    match object.text("/status/phase") {
        "Bound" => Healthy,
        "Lost" => Failed("the volume of the claim is lost".into()),
        _ => Progressing("the claim is not bound".into()),
    }
}

pub(super) fn service(object: &Live<'_>) -> Health {
    // Whether a load balancer gets an address depends on the environment.
    if object.text("/spec/type") == "LoadBalancer" && object.text("/spec/clusterIP").is_empty() {
        return Progressing("the service has no address".into());
    }
    Healthy
}

/// Returns whether a live CustomResourceDefinition is served.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

pub(super) fn definition(object: &Live<'_>) -> Health {
    for condition in object.conditions() {
        match (condition.kind(), condition.status()) {
            ("NamesAccepted", "False") => return Failed(object.words(&condition)),
            ("Established", "False") if condition.reason() != "Installing" => return Failed(object.words(&condition)),
            ("Established", "True") => return Healthy,
            _ => {}
        }
    }
    Progressing("it is not established".into())
}

pub(super) fn api_service(object: &Live<'_>) -> Health {
    match object.condition("Available") {
        Some(condition) if condition.value["status"] == "True" => Healthy,
        Some(condition) => Progressing(object.words(&condition)),
        None => Progressing("it is not available".into()),
    }
}

pub(super) fn autoscaler(object: &Live<'_>) -> Health {
    // Whether metrics are available depends on other installed software, but whether the target can be scaled does not.
    object.is("AbleToScale", "False").map_or(Healthy, |condition| Progressing(object.words(&condition)))
}

/// While an earlier version is running, `Running` stays True, and its reason says that the newest version is not ready.
/// It then belongs to the generation that serves, so only the other conditions show whether the failure is a current
/// one.
pub(super) fn function(object: &Live<'_>) -> Health {
    let mut is_current = true;
    for kind in ["ConfigurationReady", "BuildReady", "Running"] {
        let Some(condition) = object.condition(kind) else { return Progressing(format!("{kind} is not known yet")) };
        is_current &= kind == "Running" || object.unseen_generation(&condition).is_none();
        if condition.status() == "True" && (kind != "Running" || !is_waiting(&condition)) {
            continue;
        }
        let message = condition.value["message"].as_str().unwrap_or_default();
        let has_failed = is_current && is_lasting(condition.reason(), message);
        let words = object.words(&condition);
        return if has_failed { Failed(words) } else { Progressing(words) };
    }
    Healthy
}

/// Returns whether a condition `Running` that is True describes the previous version: the new one is awaited, or an object
/// of it was just written, and the next reconcile follows.
fn is_waiting(condition: &Condition<'_>) -> bool {
    let reason = condition.value["reason"].as_str().unwrap_or_default();
    ["Created", "Updated", "Waiting"].iter().any(|end| reason.ends_with(end))
}

/// An APIRule is always retried, too. Its status codes are those of Kyma's controllers; later versions have a state.
pub(super) fn api_rule(object: &Live<'_>) -> Health {
    let said = |what: &str, word: &str| {
        let exposed = object.condition("Exposed").filter(|exposed| exposed.status() != "True");
        exposed.map_or_else(|| format!("{what} is {word}"), |exposed| object.words(&exposed))
    };
    for (what, pointer) in [
        ("its state", "/status/state"),
        ("APIRuleStatus", "/status/APIRuleStatus/code"),
        ("virtualServiceStatus", "/status/virtualServiceStatus/code"),
        ("accessRuleStatus", "/status/accessRuleStatus/code"),
    ] {
        match object.text(pointer) {
            "" | "OK" | "Ready" | "Warning" => {}
            // If there is no condition, the message is the short word.
            word @ ("ERROR" | "SKIPPED" | "Error" | "Processing") => return Progressing(said(what, word)),
            _ => return Progressing(said(what, "not known")),
        }
    }
    if object.text("/status/state").is_empty() && object.text("/status/APIRuleStatus/code").is_empty() {
        return Progressing("no controller has served it yet".into());
    }
    // An APIRule may route to Services that do not exist yet.
    match object.is("Exposed", "False") {
        Some(exposed) => Progressing(object.words(&exposed)),
        None => Healthy,
    }
}

/// The reason why no controller has written a status.
const NO_EVENTING: &str =
    "no controller delivers its events: install Mainstay's component eventing, or the eventing of Knative or Kyma";

/// Its controller retries all problems, such as a missing Broker, so none counts as failed.
pub(super) fn trigger(object: &Live<'_>) -> Health {
    match object.condition("Ready") {
        Some(_) => ready(object),
        None => Progressing(NO_EVENTING.into()),
    }
}

/// Kyma's Subscriptions have no condition `Ready` but a field. Their conditions have the reason.
pub(super) fn subscription(object: &Live<'_>) -> Health {
    match object.at("/status/ready") {
        Some(Value::Bool(true)) => Healthy,
        Some(_) => {
            let failing = object.conditions().find(|one| one.status() == "False" && one.kind() != "Fields supported");
            Progressing(failing.map_or_else(|| "it is not ready".into(), |one| object.words(&one)))
        }
        None => Progressing(NO_EVENTING.into()),
    }
}

/// An unreachable service says nothing about the commit, so no GitSync waits for a chat.
pub(super) fn provider(object: &Live<'_>) -> Health {
    let is_away = object.condition("Ready").is_some_and(|ready| ready.reason() == "NotDelivered");
    if is_away { Healthy } else { ready(object) }
}

/// cert-manager removes `Issuing` when it has issued the certificate, and sets it to False when the request has failed.
/// It tries again after an hour or later, so a failed request counts as failed. A renewal leaves `Ready` True.
pub(super) fn certificate(object: &Live<'_>) -> Health {
    let health = match object.condition("Ready") {
        Some(_) => ready(object),
        None => Progressing("cert-manager has not issued it yet".into()),
    };
    let has_failed = |issuing: &Condition<'_>| object.unseen_generation(issuing).is_none();
    match object.is("Issuing", "False").filter(has_failed) {
        Some(issuing) if health != Healthy => Failed(object.words(&issuing)),
        _ => health,
    }
}

/// Argo Rollouts sets no condition `Ready`. Its `observedGeneration` is a string, which the rule for every kind does not
/// compare. An aborted Rollout stays aborted until a user changes or retries it.
pub(super) fn rollout(object: &Live<'_>) -> Health {
    let observed = object.text("/status/observedGeneration").parse().ok();
    let unseen = |generation: &i64| observed.is_some_and(|observed: i64| observed != *generation);
    if let Some(generation) = object.number("/metadata/generation").filter(unseen) {
        return Progressing(format!("its controller has not seen generation {generation}"));
    }
    let phase = object.text("/status/phase");
    let words = |known: &str| {
        let condition = object.is("InvalidSpec", "True").or_else(|| object.condition("Progressing"));
        condition.map_or_else(|| format!("its phase is {known}"), |condition| object.words(&condition))
    };
    match phase {
        // A canary that is paused waits for a promotion, possibly by a user.
        "Healthy" | "Paused" => Healthy,
        "Degraded" => Failed(words(phase)),
        "Progressing" => Progressing(words(phase)),
        "" => Progressing("no controller has seen it yet".into()),
        _ => Progressing("its phase is not known".into()),
    }
}

/// Judges a custom resource by its condition `Ready`. An object without this condition is healthy: many controllers set
/// none.
pub(super) fn ready(object: &Live<'_>) -> Health {
    let Some(condition) = object.condition("Ready") else { return Healthy };
    if let Some(generation) = object.unseen_generation(&condition) {
        return Progressing(format!("its controller has not seen generation {generation}"));
    }
    if condition.value["status"] == "True" { Healthy } else { Progressing(object.words(&condition)) }
}
