//! Simulated pods: a scheduler that binds them, and a kubelet that writes their status without containers.
//!
//! A pod is scheduled to the only node by default, runs and is ready; a pod that does not restart succeeds. The
//! annotation `devcluster.dev/outcome` of the pod simulates a different outcome: `pending` (never scheduled),
//! `never-ready`, `image-pull-backoff`, `crash-loop` or `exit:<code>`. [`faults`] detects pods that would fail on any
//! node. A pod that requests more than the node has is never scheduled. [`SimulatedOutcome`] sets how containers end.
//!
//! Not here: containers; init containers complete immediately. Pods that the node runs are only scheduled here. Pods
//! with a different `schedulerName` or with scheduling gates are not scheduled. Resizes and ephemeral containers are in
//! [`devcluster_apiserver::kubelet::pod_parts`].

mod faults;
mod image;
mod outcome;
mod status;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::outcome::Outcome;
use self::status::{ADDRESS, PRETENDED, status};
use super::capacity;
use super::controller::{Controller, Queue};
use super::simulated_outcome::SimulatedOutcome;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kubelet::{NODE, condition, pod_parts};
use devcluster_apiserver::object::{controller, count, is_terminating, text};

/// How long a container takes to stop.
const STOPPING: Duration = Duration::from_millis(50);

/// The simulated scheduler and kubelet.
#[derive(Default)]
pub(super) struct Pods {
    /// The last simulated outcome of each pod, with the pod's UID and the start of the simulation.
    simulated: HashMap<Subject, (String, Instant, SimulatedOutcome)>,
    /// Unschedulable pods, retried when a node changes.
    waiting: HashSet<Subject>,
}

impl Controller for Pods {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if &*event.storage == "nodes" {
            for pod in self.waiting.drain() {
                queue.add(pod);
            }
            return;
        }
        if &*event.storage != "pods" {
            return;
        }
        if event.change() == Change::Deleted {
            self.simulated.remove(&Subject::of(event));
            self.waiting.remove(&Subject::of(event));
        } else {
            queue.add(Subject::of(event));
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(pod) = client.get(subject) else { return };
        let mine = !client.server().kubelet_runs(&pod);
        if is_terminating(&pod) && (mine || text(&pod, "/spec/nodeName").is_empty()) {
            stop(client, subject, &pod, queue);
            return;
        }
        let outcome = Outcome::of(&pod);
        if text(&pod, "/spec/nodeName").is_empty() {
            if !is_for_scheduler(&pod) {
                return;
            }
            if outcome == Outcome::Pending {
                unschedulable(client, subject, &pod, "0/1 nodes are available: 1 Insufficient cpu.");
            } else if let Some(why) = capacity::misfit(client, &pod) {
                unschedulable(client, subject, &pod, &why);
                self.waiting.insert(subject.clone());
            } else {
                place(client, subject, &pod);
            }
        } else if mine
            && text(&pod, "/spec/nodeName") == NODE
            && !matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed")
        {
            let outcome = self.simulated(client, subject, &pod, queue).unwrap_or(outcome);
            let status = status(client, &pod, &outcome);
            client.set_status("kubelet", subject, &pod, status);
            if pod["status"]["containerStatuses"].is_null() {
                report(client, &pod, &outcome);
            }
        }
    }
}

impl Pods {
    /// Returns the present outcome of a pod with a simulated outcome. The time of the simulation counts from the first
    /// reconcile that found a simulated outcome.
    fn simulated(&mut self, client: &Client, subject: &Subject, pod: &Value, queue: &mut Queue<'_>) -> Option<Outcome> {
        let uid = text(pod, "/metadata/uid");
        let known = self.simulated.get(subject).filter(|(known, _, _)| known == uid);
        let since = known.map_or_else(Instant::now, |(_, since, _)| *since);
        let simulated =
            SimulatedOutcome::of(client, pod).or_else(|| known.map(|(_, _, simulated)| simulated.clone()))?;
        self.simulated.insert(subject.clone(), (uid.to_owned(), since, simulated.clone()));
        let left = simulated.after.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Some(Outcome::Simulated(simulated));
        }
        queue.add_after(subject.clone(), left);
        Some(Outcome::Busy { init: simulated.init_fails })
    }
}

/// Whether the scheduler should bind a pod now: the pod names the default scheduler and has no gates.
fn is_for_scheduler(pod: &Value) -> bool {
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    text(pod, "/spec/schedulerName") == "default-scheduler" && !gated
}

fn unschedulable(client: &Client, subject: &Subject, pod: &Value, why: &str) {
    let mut status = pod["status"].clone();
    status["conditions"] = json!([condition(pod, &client.stamp(), "PodScheduled", Err(("Unschedulable", why)))]);
    pod_parts::keep_conditions(pod, &mut status);
    client.set_status("kube-scheduler", subject, pod, status);
}

/// Emits Events for faults, and for a simulated pod.
fn report(client: &Client, pod: &Value, outcome: &Outcome) {
    if let Outcome::Faulty(faults) = outcome {
        for (reason, message) in faults.events(pod) {
            client.report(pod, "kubelet", "Warning", reason, &message);
        }
    }
    if client.server().options().mark_simulated && outcome.is_pretended() {
        client.report(pod, "kubelet", "Normal", "Simulated", PRETENDED);
    }
}

/// Source of the scheduler's Events.
const SCHEDULER: &str = "default-scheduler";

fn place(client: &Client, subject: &Subject, pod: &Value) {
    if client.bind("kube-scheduler", subject, pod, NODE) {
        let (namespace, name) = (subject.key.namespace(), subject.key.name());
        let message = format!("Successfully assigned {namespace}/{name} to {NODE}");
        client.report_action(pod, SCHEDULER, "Binding", "Scheduled", &message);
    }
}

/// Deletes a terminating pod after its containers had time to stop.
fn stop(client: &Client, subject: &Subject, pod: &Value, queue: &mut Queue<'_>) {
    let due: Option<jiff::Timestamp> = text(pod, "/metadata/deletionTimestamp").parse().ok();
    let grace = count(pod, "/metadata/deletionGracePeriodSeconds");
    let asked = due.and_then(|due| due.checked_sub(jiff::SignedDuration::from_secs(grace)).ok());
    let since = asked.map_or(Duration::MAX, |asked| client.now().duration_since(asked).try_into().unwrap_or_default());
    if grace > 0 && since < STOPPING {
        queue.add_after(subject.clone(), STOPPING);
        return;
    }
    if grace > 0 {
        client.delete(subject, pod, None, Some(0));
        if controller(pod).is_none() {
            client.report(pod, "kubelet", "Normal", "Killing", "Stopping container");
        }
    }
}

/// Creates the node that all pods run on.
pub(super) fn register_node(client: &Client) {
    let subject = Subject::new("nodes", "", NODE);
    if client.get(&subject).is_some() {
        return;
    }
    let labels = json!({
        "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "node-role.kubernetes.io/control-plane": "",
    });
    let annotations = json!({"node.alpha.kubernetes.io/ttl": "0"});
    let metadata = json!({"name": NODE, "labels": labels, "annotations": annotations});
    let Ok(node) = client.create("kubelet", "nodes", "", json!({"metadata": metadata})) else {
        return;
    };
    let mut node = Arc::unwrap_or_clone(node);
    if let Some(spec) = node["spec"].as_object_mut() {
        spec.remove("taints");
    }
    client.update("kubelet", &subject, node);
    let Some(node) = client.get(&subject) else { return };
    let now = client.stamp();
    let capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    let mut status = node["status"].clone();
    status["capacity"] = capacity.clone();
    status["allocatable"] = capacity;
    status["addresses"] = json!([{"type": "InternalIP", "address": ADDRESS}, {"type": "Hostname", "address": NODE}]);
    let conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    status["conditions"] = conditions
        .into_iter()
        .map(|(kind, is, reason, message)| {
            json!({
                "type": kind, "status": is, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            })
        })
        .collect();
    for (field, value) in [
        ("kubeletVersion", "v1.36.2"),
        ("operatingSystem", "linux"),
        ("architecture", "amd64"),
        ("osImage", "devcluster"),
    ] {
        status["nodeInfo"][field] = value.into();
    }
    client.set_status("kubelet", &subject, &node, status);
    let renewed = client.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "metadata": {"name": NODE},
        "spec": {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": renewed},
    });
    // The namespace is one of the initial objects.
    let _ = client.create("kubelet", "leases.coordination.k8s.io", "kube-node-lease", lease);
}
