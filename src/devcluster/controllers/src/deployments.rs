//! Deployments: the ReplicaSet of the current template, and the rollout to it.
//!
//! Invariant: a client's write does not change the status. The controller writes `observedGeneration` in a separate
//! event.

mod rollout;
mod sets;
mod status;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use self::rollout::{DESIRED, MAXIMUM};
use self::sets::{HASH, REVISION, SETS, Sets, revision};
use super::controller::{Controller, Queue};
use super::revisions;
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{controller_reference, count, is_terminating, owners, text};
use devcluster_apiserver::store::Stored;

const DEPLOYMENTS: &str = "deployments.apps";

/// The controller of Deployments.
pub(super) struct Deployments;

impl Controller for Deployments {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            DEPLOYMENTS if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            SETS => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                    queue.add(Subject::new(DEPLOYMENTS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(deployment) = client.get(subject) else { return };
        if !is_terminating(&deployment) {
            adopt(client, subject, &deployment);
        }
        let sets = Sets::of(client, subject, &deployment);
        if is_terminating(&deployment) {
            report(client, subject, &deployment, &sets, queue);
            return;
        }
        let paused = deployment["spec"]["paused"] == true;
        if !paused && sets.current.is_none() {
            if old_pods_block(&deployment, &sets, client) {
                rollout::empty_old(client, &deployment, &sets);
                report(client, subject, &deployment, &sets, queue);
            } else {
                create_set(client, subject, &deployment, &sets, queue);
            }
            return;
        }
        if !revised(client, subject, &deployment, &sets) {
            return;
        }
        rollout::step(client, &deployment, &sets);
        rollout::forget_old(client, &deployment, &sets);
        let sets = Sets::of(client, subject, &deployment);
        report(client, subject, &deployment, &sets, queue);
    }
}

/// Adopts ReplicaSets that match the selector and have no controller.
fn adopt(client: &Client, subject: &Subject, deployment: &Value) {
    for set in client.orphans(SETS, subject.key.namespace()) {
        if !is_terminating(&set) && hooks::selects(&deployment["spec"]["selector"], &set["metadata"]["labels"]) {
            let mut references = owners(&set).to_vec();
            references.push(controller_reference(deployment));
            let patch = json!({"metadata": {"ownerReferences": references, "uid": set["metadata"]["uid"]}});
            client.merge(CONTROLLER, &devcluster_apiserver::client::subject(SETS, &set), patch);
        }
    }
}

/// Whether old pods still block new ones (strategy Recreate).
fn old_pods_block(deployment: &Value, sets: &Sets, client: &Client) -> bool {
    if text(deployment, "/spec/strategy/type") != "Recreate" {
        return false;
    }
    let namespace = text(deployment, "/metadata/namespace");
    sets.old.iter().any(|set| count(set, "/spec/replicas") > 0 || !client.controlled("pods", namespace, set).is_empty())
}

fn create_set(client: &Client, subject: &Subject, deployment: &Value, sets: &Sets, queue: &mut Queue<'_>) {
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
    match client.create(CONTROLLER, SETS, subject.key.namespace(), set) {
        Ok(set) => {
            if replicas > 0 {
                rollout::emit_scaled(client, deployment, &set, 0, replicas);
            }
            let message = format!("Created new replica set \"{name}\"");
            announce(client, subject, deployment, revision, ("NewReplicaSetCreated", message));
        }
        Err(refusal) if refusal.reason == "AlreadyExists" => {
            // Hash collision with another template: count it and try the next hash.
            let mut status = deployment["status"].clone();
            status["collisionCount"] = (count(deployment, "/status/collisionCount") + 1).into();
            client.set_status(CONTROLLER, subject, deployment, status);
        }
        Err(_) => queue.add_after(subject.clone(), Duration::from_secs(1)),
    }
}

/// Annotations that a ReplicaSet copies from its Deployment.
fn copied_annotations(deployment: &Value) -> BTreeMap<String, Value> {
    let skipped = ["kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MAXIMUM];
    let all = deployment["metadata"]["annotations"].as_object().into_iter().flatten();
    all.filter(|(key, _)| !skipped.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Writes the revision of a Deployment and its Progressing condition.
fn announce(client: &Client, subject: &Subject, deployment: &Value, revision: i64, (reason, message): (&str, String)) {
    let mut object = deployment.clone();
    object["metadata"]["annotations"][REVISION] = revision.to_string().into();
    if !deployment["spec"]["progressDeadlineSeconds"].is_null() {
        let conditions = status::with(client, deployment, "Progressing", "True", reason, &message);
        object["status"]["conditions"] = conditions;
    }
    client.update_on(CONTROLLER, subject, "status", object);
}

/// Updates the revisions of ReplicaSet and Deployment. Returns false if it wrote, so the rollout waits for the next
/// reconcile.
fn revised(client: &Client, subject: &Subject, deployment: &Value, sets: &Sets) -> bool {
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
        client.merge(CONTROLLER, &devcluster_apiserver::client::subject(SETS, current), patch);
        return false;
    }
    let untold = !deployment["spec"]["progressDeadlineSeconds"].is_null()
        && !devcluster_apiserver::object::conditions(deployment).iter().any(|c| c["type"] == "Progressing");
    if revision(deployment) != own || untold {
        let message = format!("Found new replica set \"{}\"", text(current, "/metadata/name"));
        announce(client, subject, deployment, own, ("FoundNewReplicaSet", message));
        return false;
    }
    true
}

/// Writes the status and requeues the Deployment for its progress deadline.
fn report(client: &Client, subject: &Subject, deployment: &Value, sets: &Sets, queue: &mut Queue<'_>) {
    let next = status::of(client, deployment, sets);
    if let Some(wait) = status::deadline(client, &next, deployment) {
        queue.add_after(subject.clone(), wait);
    }
    client.set_status(CONTROLLER, subject, deployment, next);
}
