//! StatefulSets: numbered pods with their own volumes, created in order.

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use super::replica_sets::{Availability, is_active, pod_from};
use super::revisions;
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{count, is_terminating, is_true, text};
use devcluster_apiserver::store::Stored;

const SETS: &str = "statefulsets.apps";
const SOURCE: &str = "statefulset-controller";
const HASH: &str = "controller-revision-hash";

/// The controller of StatefulSets.
pub(super) struct StatefulSets;

impl Controller for StatefulSets {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            SETS if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            "pods" => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "StatefulSet") {
                    queue.add(Subject::new(SETS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(set) = client.get(subject) else { return };
        let mut pods: Vec<Value> =
            client.controlled("pods", subject.key.namespace(), &set).iter().map(|pod| (**pod).clone()).collect();
        pods.sort_by_key(ordinal);
        let revision = revisions::of(client, &set);
        if !is_terminating(&set) {
            step(client, &set, &pods, &revision);
        }
        let live: Vec<&Value> = pods.iter().filter(|pod| is_active(pod)).collect();
        let available = Availability::of(&set, &live, client.now());
        if let Some(wait) = available.next {
            queue.add_after(subject.clone(), wait);
        }
        let status = status(&set, &live, &revision, available.count);
        client.set_status(CONTROLLER, subject, &set, status);
    }
}

fn ordinal(pod: &Value) -> i64 {
    text(pod, "/metadata/name").rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(i64::MAX)
}

/// Takes one step: creates a missing pod, deletes a spare one, or replaces an outdated one. Ordered pods wait for each
/// other.
fn step(client: &Client, set: &Value, pods: &[Value], revision: &str) {
    let first = count(set, "/spec/ordinals/start");
    let end = first + count(set, "/spec/replicas");
    let ordered = text(set, "/spec/podManagementPolicy") != "Parallel";
    for number in first..end {
        match pods.iter().find(|pod| ordinal(pod) == number) {
            None => {
                create(client, set, number, revision);
                if ordered {
                    return;
                }
            }
            Some(pod) if ordered && (is_terminating(pod) || !is_true(pod, "Ready")) => return,
            Some(_) => {}
        }
    }
    for pod in pods.iter().rev().filter(|pod| !(first..end).contains(&ordinal(pod))) {
        if !is_terminating(pod) {
            remove(client, set, pod);
        }
        if ordered {
            return;
        }
    }
    update(client, set, pods, revision);
}

/// Replaces the last outdated pod if all pods are ready (strategy RollingUpdate).
fn update(client: &Client, set: &Value, pods: &[Value], revision: &str) {
    if text(set, "/spec/updateStrategy/type") != "RollingUpdate" || pods.iter().any(|pod| !is_true(pod, "Ready")) {
        return;
    }
    let partition = count(set, "/spec/updateStrategy/rollingUpdate/partition");
    let old = |pod: &&Value| pod["metadata"]["labels"][HASH] != revision && ordinal(pod) >= partition;
    if let Some(pod) = pods.iter().rev().find(old).filter(|pod| !is_terminating(pod)) {
        remove(client, set, pod);
    }
}

fn remove(client: &Client, set: &Value, pod: &Value) {
    client.delete(&subject("pods", pod), pod, None, None);
    let name = text(pod, "/metadata/name");
    let message = format!("Delete Pod {name} in StatefulSet {} successful", text(set, "/metadata/name"));
    client.report(set, SOURCE, "Normal", "SuccessfulDelete", &message);
}

fn create(client: &Client, set: &Value, number: i64, revision: &str) {
    let (namespace, owner) = (text(set, "/metadata/namespace"), text(set, "/metadata/name"));
    let name = format!("{owner}-{number}");
    let mut pod = pod_from(&set["spec"]["template"], set);
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for template in set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten() {
        let volume = text(template, "/metadata/name");
        let claim = format!("{volume}-{name}");
        if client.get(&Subject::new("persistentvolumeclaims", namespace, &claim)).is_none() {
            let labels = &set["spec"]["selector"]["matchLabels"];
            let object = json!({"metadata": {"name": claim, "labels": labels}, "spec": template["spec"]});
            let made = client.create(CONTROLLER, "persistentvolumeclaims", namespace, object);
            let (kind, reason, message) = match made {
                Ok(_) => (
                    "Normal",
                    "SuccessfulCreate",
                    format!("Create Claim {claim} Pod {name} in StatefulSet {owner} success"),
                ),
                Err(refusal) => (
                    "Warning",
                    "FailedCreate",
                    format!(
                        "Create Claim {claim} for Pod {name} in StatefulSet {owner} failed error: {}",
                        refusal.message
                    ),
                ),
            };
            client.report(set, SOURCE, kind, reason, &message);
        }
        volumes.retain(|known| known["name"] != volume);
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("generateName");
        metadata.insert("name".into(), name.clone().into());
    }
    let labels = &mut pod["metadata"]["labels"];
    labels["statefulset.kubernetes.io/pod-name"] = name.clone().into();
    labels["apps.kubernetes.io/pod-index"] = number.to_string().into();
    labels[HASH] = revision.into();
    pod["spec"]["hostname"] = name.clone().into();
    if !text(set, "/spec/serviceName").is_empty() {
        pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    }
    let (kind, reason, message) = match client.create(CONTROLLER, "pods", namespace, pod) {
        Ok(_) => ("Normal", "SuccessfulCreate", format!("Create Pod {name} in StatefulSet {owner} successful")),
        Err(refusal) => (
            "Warning",
            "FailedCreate",
            format!("Create Pod {name} in StatefulSet {owner} failed error: {}", refusal.message),
        ),
    };
    client.report(set, SOURCE, kind, reason, &message);
}

fn status(set: &Value, live: &[&Value], revision: &str, available: usize) -> Value {
    let updated = live.iter().filter(|pod| pod["metadata"]["labels"][HASH] == revision).count();
    let before = match text(set, "/status/currentRevision") {
        "" => revision,
        known => known,
    };
    let wanted = usize::try_from(count(set, "/spec/replicas")).unwrap_or(0);
    let ready = live.iter().filter(|pod| is_true(pod, "Ready")).count();
    // The new revision becomes current when every pod is updated and ready.
    let current = if updated == wanted && ready == wanted { revision } else { before };
    let of_current = live.iter().filter(|pod| pod["metadata"]["labels"][HASH] == current).count();
    let mut status = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": live.len(), "availableReplicas": available,
        "currentRevision": current, "updateRevision": revision, "collisionCount": 0,
    });
    for (field, number) in [("readyReplicas", ready), ("currentReplicas", of_current), ("updatedReplicas", updated)] {
        if number > 0 {
            status[field] = number.into();
        }
    }
    status
}
