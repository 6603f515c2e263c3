//! Deployments: the ReplicaSet of the current template, and the way there.
//!
//! Invariant: the status of a write is the old one; the controller's answer with the new `observedGeneration` is always
//! an event of its own.

mod rollout;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::hands::{CONTROLLER, conditions, controller_reference, count, is_terminating, owners, subject, text};
use super::{Actor, Hands, Subject, Wishes, revisions};
use crate::history::{Change, Event};
use crate::kinds::hooks;
use crate::store::Stored;

const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const SOURCE: &str = "deployment-controller";
const HASH: &str = "pod-template-hash";
const REVISION: &str = "deployment.kubernetes.io/revision";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// The controller of Deployments.
pub(super) struct Deployments;

impl Actor for Deployments {
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>) {
        match &*event.storage {
            DEPLOYMENTS if event.change() != Change::Deleted => wishes.now(Subject::of(event)),
            SETS => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                    wishes.now(Subject::new(DEPLOYMENTS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, hands: &Hands, subject: &Subject, wishes: &mut Wishes<'_>) {
        let Some(deployment) = hands.get(subject) else { return };
        if !is_terminating(&deployment) {
            adopt(hands, subject, &deployment);
        }
        let sets = Sets::of(hands, subject, &deployment);
        if is_terminating(&deployment) {
            report(hands, subject, &deployment, &sets, wishes);
            return;
        }
        let paused = deployment["spec"]["paused"] == true;
        if !paused && sets.current.is_none() {
            if old_pods_block(&deployment, &sets, hands) {
                rollout::empty_old(hands, &deployment, &sets);
                report(hands, subject, &deployment, &sets, wishes);
            } else {
                create_set(hands, subject, &deployment, &sets, wishes);
            }
            return;
        }
        if !revised(hands, subject, &deployment, &sets) {
            return;
        }
        rollout::step(hands, &deployment, &sets);
        rollout::forget_old(hands, &deployment, &sets);
        let sets = Sets::of(hands, subject, &deployment);
        report(hands, subject, &deployment, &sets, wishes);
    }
}

/// The ReplicaSets of a Deployment.
struct Sets {
    /// That of the current template.
    current: Option<Arc<Value>>,
    /// Those of earlier templates, oldest first.
    old: Vec<Arc<Value>>,
}

impl Sets {
    fn of(hands: &Hands, subject: &Subject, deployment: &Value) -> Self {
        let mut all = hands.controlled(SETS, subject.key.namespace(), deployment);
        all.sort_by_key(|set| (revision(set), text(set, "/metadata/creationTimestamp").to_owned()));
        let wanted = &deployment["spec"]["template"];
        let place = all.iter().position(|set| without_hash(&set["spec"]["template"]) == *wanted);
        let current = place.map(|place| all.remove(place));
        Self { current, old: all }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.current.iter().chain(&self.old)
    }

    /// That pods are refused, as a condition of the Deployment.
    fn failure(&self) -> Option<Value> {
        let failed = |set: &Arc<Value>| conditions(set).iter().find(|c| c["type"] == "ReplicaFailure").cloned();
        let mut failure = self.all().find_map(failed)?;
        failure["lastUpdateTime"] = failure["lastTransitionTime"].clone();
        Some(failure)
    }

    fn sum(&self, pointer: &str) -> i64 {
        self.all().map(|set| count(set, pointer)).sum()
    }
}

fn revision(object: &Value) -> i64 {
    object["metadata"]["annotations"][REVISION].as_str().and_then(|r| r.parse().ok()).unwrap_or(0)
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

/// Takes over ReplicaSets that fit the selector and have no controller.
fn adopt(hands: &Hands, subject: &Subject, deployment: &Value) {
    for set in hands.orphans(SETS, subject.key.namespace()) {
        if !is_terminating(&set) && hooks::selects(&deployment["spec"]["selector"], &set["metadata"]["labels"]) {
            let mut references = owners(&set).to_vec();
            references.push(controller_reference(deployment));
            let patch = json!({"metadata": {"ownerReferences": references, "uid": set["metadata"]["uid"]}});
            hands.merge(CONTROLLER, &super::hands::subject(SETS, &set), patch);
        }
    }
}

/// Whether the old pods must be gone before new ones may come.
fn old_pods_block(deployment: &Value, sets: &Sets, hands: &Hands) -> bool {
    if text(deployment, "/spec/strategy/type") != "Recreate" {
        return false;
    }
    let namespace = text(deployment, "/metadata/namespace");
    sets.old.iter().any(|set| count(set, "/spec/replicas") > 0 || !hands.controlled("pods", namespace, set).is_empty())
}

fn create_set(hands: &Hands, subject: &Subject, deployment: &Value, sets: &Sets, wishes: &mut Wishes<'_>) {
    let mut template = deployment["spec"]["template"].clone();
    let hash = revisions::hash(&template, count(deployment, "/status/collisionCount"));
    template["metadata"]["labels"][HASH] = hash.clone().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH] = hash.clone().into();
    let replicas = rollout::first_replicas(deployment, sets);
    let revision = sets.old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let name = format!("{}-{hash}", subject.key.name());
    let mut annotations: BTreeMap<String, Value> = copied_annotations(deployment);
    annotations.insert(REVISION.to_owned(), revision.to_string().into());
    annotations.insert(DESIRED.to_owned(), count(deployment, "/spec/replicas").to_string().into());
    annotations.insert(MAXIMUM.to_owned(), rollout::most(deployment).to_string().into());
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "labels": template["metadata"]["labels"], "annotations": annotations,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    });
    if count(deployment, "/spec/minReadySeconds") > 0 {
        set["spec"]["minReadySeconds"] = deployment["spec"]["minReadySeconds"].clone();
    }
    match hands.create(CONTROLLER, SETS, subject.key.namespace(), set) {
        Ok(set) => {
            if replicas > 0 {
                rollout::tell_scaled(hands, deployment, &set, 0, replicas);
            }
            let message = format!("Created new replica set \"{name}\"");
            announce(hands, subject, deployment, revision, ("NewReplicaSetCreated", message));
        }
        Err(refusal) if refusal.reason == "AlreadyExists" => {
            // Another template has the same hash: count a collision and try the next.
            let mut status = deployment["status"].clone();
            status["collisionCount"] = (count(deployment, "/status/collisionCount") + 1).into();
            hands.set_status(CONTROLLER, subject, deployment, status);
        }
        Err(_) => wishes.after(subject.clone(), Duration::from_secs(1)),
    }
}

/// Annotations that a ReplicaSet takes from its Deployment.
fn copied_annotations(deployment: &Value) -> BTreeMap<String, Value> {
    let skipped = ["kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MAXIMUM];
    let all = deployment["metadata"]["annotations"].as_object().into_iter().flatten();
    all.filter(|(key, _)| !skipped.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Writes the revision on the Deployment, with the condition that tells of the ReplicaSet.
fn announce(hands: &Hands, subject: &Subject, deployment: &Value, revision: i64, (reason, message): (&str, String)) {
    let mut object = deployment.clone();
    object["metadata"]["annotations"][REVISION] = revision.to_string().into();
    if !deployment["spec"]["progressDeadlineSeconds"].is_null() {
        let conditions = status::with(hands, deployment, "Progressing", "True", reason, &message);
        object["status"]["conditions"] = conditions;
    }
    hands.update_on(CONTROLLER, subject, "status", object);
}

/// Brings the revisions of ReplicaSet and Deployment up to date; false when that was a write of its own.
fn revised(hands: &Hands, subject: &Subject, deployment: &Value, sets: &Sets) -> bool {
    let Some(current) = &sets.current else { return true };
    let latest = sets.old.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let mut own = revision(current);
    let mut annotations = serde_json::Map::new();
    if own < latest {
        own = latest;
        annotations.insert(REVISION.to_owned(), own.to_string().into());
    }
    for (key, value) in copied_annotations(deployment) {
        if current["metadata"]["annotations"][&key] != value {
            annotations.insert(key, value);
        }
    }
    let mut patch = json!({});
    if !annotations.is_empty() {
        patch["metadata"] = json!({"annotations": annotations});
    }
    if count(current, "/spec/minReadySeconds") != count(deployment, "/spec/minReadySeconds") {
        patch["spec"] = json!({"minReadySeconds": count(deployment, "/spec/minReadySeconds")});
    }
    if patch != json!({}) {
        hands.merge(CONTROLLER, &super::hands::subject(SETS, current), patch);
        return false;
    }
    let untold = !deployment["spec"]["progressDeadlineSeconds"].is_null()
        && !super::hands::conditions(deployment).iter().any(|c| c["type"] == "Progressing");
    if revision(deployment) != own || untold {
        let message = format!("Found new replica set \"{}\"", text(current, "/metadata/name"));
        announce(hands, subject, deployment, own, ("FoundNewReplicaSet", message));
        return false;
    }
    true
}

/// Writes the status that follows from the ReplicaSets.
fn report(hands: &Hands, subject: &Subject, deployment: &Value, sets: &Sets, wishes: &mut Wishes<'_>) {
    let next = status::of(hands, deployment, sets);
    if let Some(wait) = status::deadline(hands, &next, deployment) {
        wishes.after(subject.clone(), wait);
    }
    hands.set_status(CONTROLLER, subject, deployment, next);
}

/// Sets the size of a ReplicaSet and tells of it.
fn resize(hands: &Hands, deployment: &Value, set: &Value, replicas: i64) {
    let old = count(set, "/spec/replicas");
    let mut next = set.clone();
    next["spec"]["replicas"] = replicas.into();
    next["metadata"]["annotations"][DESIRED] = count(deployment, "/spec/replicas").to_string().into();
    next["metadata"]["annotations"][MAXIMUM] = rollout::most(deployment).to_string().into();
    if next == *set || !hands.update(CONTROLLER, &subject(SETS, set), next) {
        return;
    }
    if old != replicas {
        rollout::tell_scaled(hands, deployment, set, old, replicas);
    }
}
