//! ReplicaSets: creates and deletes pods to match the desired replicas, and counts them.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{conditions, controller_reference, count, is_terminating, is_true, text};
use devcluster_apiserver::status::Status;
use devcluster_apiserver::store::Stored;

const SETS: &str = "replicasets.apps";
const SOURCE: &str = "replicaset-controller";
/// Maximum number of pods created by one reconcile. Their events trigger the next reconcile.
const BURST: usize = 500;
/// Delay before a retry after a pod was refused.
const RETRY: Duration = Duration::from_secs(1);

/// The controller of ReplicaSets.
pub(super) struct ReplicaSets;

impl Controller for ReplicaSets {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            SETS if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            "pods" => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "ReplicaSet") {
                    queue.add(Subject::new(SETS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(set) = client.get(subject) else { return };
        let pods = client.controlled("pods", subject.key.namespace(), &set);
        let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
        let live: Vec<&Value> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
        let scaled = if is_terminating(&set) { Ok(()) } else { scale(client, &set, &live) };
        if scaled.is_err() {
            queue.add_after(subject.clone(), RETRY);
        }
        let available = Availability::of(&set, &live, client.now());
        if let Some(wait) = available.next {
            queue.add_after(subject.clone(), wait);
        }
        let mut status = status(&set, &pods, &live, available.count);
        let refusal = scaled.err().map(|refusal| refusal.message);
        let conditions = conditions_after(&set, refusal.as_deref(), &client.stamp());
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        client.set_status(CONTROLLER, subject, &set, status);
    }
}

/// Whether a pod counts: neither finished nor terminating.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// The number of available pods, and the next time when it changes.
pub(super) struct Availability {
    /// Pods that have been ready for `minReadySeconds`.
    pub(super) count: usize,
    /// Delay until the next count.
    pub(super) next: Option<Duration>,
}

impl Availability {
    /// Counts the available pods of a workload.
    pub(super) fn of(workload: &Value, pods: &[&Value], now: Timestamp) -> Self {
        let least = count(workload, "/spec/minReadySeconds");
        let mut found = Self { count: 0, next: None };
        for pod in pods.iter().filter(|pod| is_true(pod, "Ready")) {
            let ready = conditions(pod).iter().find(|c| c["type"] == "Ready");
            let since = ready.and_then(|c| text(c, "/lastTransitionTime").parse::<Timestamp>().ok());
            let age = since.map_or(0, |since| now.as_second() - since.as_second());
            if age >= least {
                found.count += 1;
            } else {
                let wait = Duration::from_secs(u64::try_from(least - age).unwrap_or(1));
                found.next = Some(found.next.map_or(wait, |known| known.min(wait)));
            }
        }
        found
    }
}

/// Builds a pod from a template, owned by `owner`.
pub(super) fn pod_from(template: &Value, owner: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": template["spec"]});
    for field in ["labels", "annotations", "finalizers"] {
        if !template["metadata"][field].is_null() {
            pod["metadata"][field] = template["metadata"][field].clone();
        }
    }
    pod["metadata"]["generateName"] = format!("{}-", text(owner, "/metadata/name")).into();
    pod["metadata"]["ownerReferences"] = json!([controller_reference(owner)]);
    pod
}

fn scale(client: &Client, set: &Value, live: &[&Value]) -> Result<(), Status> {
    let wanted = usize::try_from(count(set, "/spec/replicas")).unwrap_or(0);
    let namespace = text(set, "/metadata/namespace");
    for _ in (live.len()..wanted).take(BURST) {
        match client.create(CONTROLLER, "pods", namespace, pod_from(&set["spec"]["template"], set)) {
            Ok(pod) => {
                let message = format!("Created pod: {}", text(&pod, "/metadata/name"));
                client.report(set, SOURCE, "Normal", "SuccessfulCreate", &message);
            }
            Err(status) => {
                let message = format!("Error creating: {}", status.message);
                client.report(set, SOURCE, "Warning", "FailedCreate", &message);
                return Err(status);
            }
        }
    }
    if live.len() > wanted {
        for pod in spare(live, live.len() - wanted) {
            client.delete(&subject("pods", pod), pod, None, None);
            let message = format!("Deleted pod: {}", text(pod, "/metadata/name"));
            client.report(set, SOURCE, "Normal", "SuccessfulDelete", &message);
        }
    }
    Ok(())
}

/// Selects pods to delete: unscheduled pods first, then unready ones, then the youngest.
fn spare<'a>(live: &[&'a Value], number: usize) -> Vec<&'a Value> {
    let mut pods = live.to_vec();
    pods.sort_by_key(|pod| {
        let placed = !text(pod, "/spec/nodeName").is_empty();
        (placed, is_true(pod, "Ready"), std::cmp::Reverse(text(pod, "/metadata/creationTimestamp").to_owned()))
    });
    pods.truncate(number);
    pods
}

fn status(set: &Value, pods: &[&Value], live: &[&Value], available: usize) -> Value {
    let wanted = &set["spec"]["template"]["metadata"]["labels"];
    let labelled = |pod: &&&Value| hooks::selects(&json!({"matchLabels": wanted}), &pod["metadata"]["labels"]);
    let mut status = json!({
        "replicas": live.len(), "terminatingReplicas": pods.iter().filter(|pod| is_terminating(pod)).count(),
        "observedGeneration": set["metadata"]["generation"],
    });
    for (field, number) in [
        ("fullyLabeledReplicas", live.iter().filter(labelled).count()),
        ("readyReplicas", live.iter().filter(|pod| is_true(pod, "Ready")).count()),
        ("availableReplicas", available),
    ] {
        if number > 0 {
            status[field] = number.into();
        }
    }
    status
}

/// The conditions of a ReplicaSet. ReplicaFailure keeps the first refusal until no pod is refused.
fn conditions_after(set: &Value, refusal: Option<&str>, now: &Value) -> Vec<Value> {
    let failed = |c: &Value| c["type"] == "ReplicaFailure";
    let known = conditions(set);
    match refusal {
        Some(_) if known.iter().any(failed) => known.to_vec(),
        Some(message) => {
            let condition = json!({
                "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
                "lastTransitionTime": now,
            });
            [known, &[condition]].concat()
        }
        None => known.iter().filter(|c| !failed(c)).cloned().collect(),
    }
}
