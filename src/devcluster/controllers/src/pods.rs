//! Pods without containers: a scheduler that places them and a kubelet that pretends.
//!
//! A pod is placed on the one node, runs, and is ready; one that does not restart has succeeded. What shall go wrong
//! is said by the annotation `devcluster.dev/outcome` of the pod (or its template): `pending` (never placed),
//! `never-ready`, `image-pull-backoff`, `crash-loop`, `exit:<code>`. Images of a registry `….invalid` cannot be pulled,
//! because that domain does not exist. A pod that asks for more than the node has is never placed.
//!
//! [`SimulatedOutcome`] says how containers end whose outcome is simulated.
//!
//! Deliberately absent: everything inside a pod; init containers are done at once. Pods that the node runs are only
//! placed here, and those of another `schedulerName` or with scheduling gates are not. What becomes of a resize and of
//! ephemeral containers is in [`devcluster_apiserver::kubelet::pod_parts`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::capacity;
use super::controller::{Controller, Queue};
use super::simulated_outcome::{Fate, SimulatedOutcome};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kubelet::{NODE, condition, container_id, image_id, pod_parts};
use devcluster_apiserver::object::{controller, count, is_terminating, text};

const ADDRESS: &str = "127.0.0.1";
/// How long a container takes to stop.
const STOPPING: Duration = Duration::from_millis(50);

/// Scheduler and kubelet.
#[derive(Default)]
pub(super) struct Pods {
    /// The last simulated outcomes of pods, and when they were placed.
    simulated: HashMap<Subject, (String, Instant, SimulatedOutcome)>,
    /// Pods that no node takes, until a node changes.
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
        }
    }
}

impl Pods {
    /// How a pod fares whose outcome is simulated. Its time counts from the moment it was placed, whenever the outcome was
    /// set.
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

/// How a pod fares.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Runs and is ready, or succeeds when it does not restart.
    Fine,
    /// Is never placed.
    Pending,
    /// Runs, but is not ready.
    NeverReady,
    /// Its image cannot be pulled.
    NoImage,
    /// Crashes again and again.
    CrashLoop,
    /// Ends with a code.
    Exit(i64),
    /// Runs until it ends as simulated; in its init containers or beyond them.
    Busy {
        /// Whether an init container runs.
        init: bool,
    },
    /// Has ended as simulated.
    Simulated(SimulatedOutcome),
}

impl Outcome {
    fn of(pod: &Value) -> Self {
        let outcome = text(pod, "/metadata/annotations/devcluster.dev~1outcome");
        let mut images = pod["spec"]["containers"].as_array().into_iter().flatten().map(|c| text(c, "/image"));
        let unknown = |image: &str| {
            let host = image.split('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
            image.contains('/') && host.ends_with(".invalid")
        };
        match outcome {
            "pending" => Self::Pending,
            "never-ready" => Self::NeverReady,
            "image-pull-backoff" => Self::NoImage,
            "crash-loop" => Self::CrashLoop,
            _ => match outcome.strip_prefix("exit:").and_then(|code| code.parse().ok()) {
                Some(code) => Self::Exit(code),
                None if images.any(unknown) => Self::NoImage,
                None => Self::Fine,
            },
        }
    }
}

/// Whether a pod is to be placed here: by the scheduler that everybody has, and now.
fn is_for_scheduler(pod: &Value) -> bool {
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    text(pod, "/spec/schedulerName") == "default-scheduler" && !gated
}

fn unschedulable(client: &Client, subject: &Subject, pod: &Value, why: &str) {
    let mut status = pod["status"].clone();
    status["conditions"] = json!([condition(pod, &client.stamp(), "PodScheduled", Err(("Unschedulable", why)))]);
    client.set_status("kube-scheduler", subject, pod, status);
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

/// The kubelet's status of a placed pod.
fn status(client: &Client, pod: &Value, outcome: &Outcome) -> Value {
    let restarts = text(pod, "/spec/restartPolicy") == "Always";
    let ended = match outcome {
        Outcome::Fine => !restarts,
        Outcome::Exit(_) | Outcome::Simulated(_) => true,
        _ => false,
    };
    let ready = *outcome == Outcome::Fine && restarts || *outcome == Outcome::Busy { init: false };
    let initialised = match outcome {
        Outcome::Busy { init } => !init,
        Outcome::Simulated(simulated) => !simulated.init_fails,
        _ => true,
    };
    let phase = match outcome {
        Outcome::NoImage | Outcome::Pending | Outcome::Busy { init: true } => "Pending",
        Outcome::Simulated(simulated) if simulated.code() != 0 && !restarts => "Failed",
        Outcome::Exit(code) if *code != 0 && !restarts => "Failed",
        _ if ended && !restarts => "Succeeded",
        _ => "Running",
    };
    let start = match &pod["status"]["startTime"] {
        Value::Null => client.stamp(),
        known => known.clone(),
    };
    let done = ended && !restarts;
    let unready =
        if done { ("PodCompleted", "") } else { ("ContainersNotReady", "containers with unready status: [*]") };
    let unready = if phase == "Failed" && done { ("PodFailed", "") } else { unready };
    let uninitialised = ("ContainersNotInitialized", "containers with incomplete status: [*]");
    let ready_state = || if ready { Ok(()) } else { Err(unready) };
    let mut list = vec![
        condition(
            pod,
            &client.stamp(),
            "PodReadyToStartContainers",
            if done { Err(("PodCompleted", "")) } else { Ok(()) },
        ),
        condition(pod, &client.stamp(), "Initialized", if initialised { Ok(()) } else { Err(uninitialised) }),
        condition(pod, &client.stamp(), "Ready", ready_state()),
        condition(pod, &client.stamp(), "ContainersReady", ready_state()),
        condition(pod, &client.stamp(), "PodScheduled", Ok(())),
    ];
    for condition in &mut list {
        if condition["message"] == "" {
            condition.as_object_mut().map(|c| c.remove("message"));
        }
    }
    let ip = address(pod);
    let mut status = json!({
        "phase": phase, "conditions": list, "startTime": start, "qosClass": pod["status"]["qosClass"],
        "hostIP": ADDRESS, "hostIPs": [{"ip": ADDRESS}], "podIP": ip, "podIPs": [{"ip": ip}],
        "observedGeneration": pod["metadata"]["generation"],
    });
    let statuses = |list: &str, init: bool| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|c| container(pod, c, outcome, init, &start)).collect()
    };
    status["containerStatuses"] = statuses("containers", false).into();
    if pod["spec"]["initContainers"].is_array() {
        status["initContainerStatuses"] = statuses("initContainers", true).into();
    }
    if !done && let Some(statuses) = pod_parts::ephemeral_statuses(client, pod, None) {
        status["ephemeralContainerStatuses"] = statuses;
    }
    pod_parts::reflect_resources(client, pod, &mut status);
    status
}

fn container(pod: &Value, container: &Value, outcome: &Outcome, init: bool, start: &Value) -> Value {
    let restarts = text(pod, "/spec/restartPolicy") == "Always";
    let (name, image) = (text(container, "/name"), text(container, "/image"));
    let id = container_id(pod, name);
    let ended_saying = |code: i64, message: Option<&str>| {
        let reason = if code == 0 { "Completed" } else { "Error" };
        let mut state = json!({"terminated": {
            "exitCode": code, "reason": reason, "startedAt": start, "finishedAt": start, "containerID": id,
        }});
        if let Some(message) = message {
            state["terminated"]["message"] = message.into();
        }
        state
    };
    let ended = |code: i64| ended_saying(code, None);
    let waiting = |reason: &str, message: String| json!({"waiting": {"reason": reason, "message": message}});
    let mut last = Value::Object(Map::new());
    let state = match outcome {
        Outcome::Simulated(simulated) if init || !restarts || simulated.init_fails => {
            match simulated.fate(name, init) {
                Fate::Ends(code, message) => ended_saying(code, message),
                Fate::Waits => json!({"waiting": {"reason": "PodInitializing"}}),
            }
        }
        Outcome::Busy { init: true } if !init => json!({"waiting": {"reason": "PodInitializing"}}),
        Outcome::Busy { init: true } => json!({"running": {"startedAt": start}}),
        _ if init => ended(0),
        Outcome::Simulated(simulated) => {
            if let Fate::Ends(code, message) = simulated.fate(name, init) {
                last = ended_saying(code, message);
            }
            waiting("CrashLoopBackOff", format!("back-off 10s restarting failed container={name}"))
        }
        Outcome::NoImage | Outcome::Pending => {
            waiting("ImagePullBackOff", format!("Back-off pulling image \"{image}\""))
        }
        Outcome::Fine if !restarts => ended(0),
        Outcome::Exit(code) if !restarts => ended(*code),
        Outcome::Exit(_) | Outcome::CrashLoop => {
            last = ended(if let Outcome::Exit(code) = outcome { *code } else { 1 });
            waiting("CrashLoopBackOff", format!("back-off 10s restarting failed container={name}"))
        }
        Outcome::Fine | Outcome::NeverReady | Outcome::Busy { .. } => json!({"running": {"startedAt": start}}),
    };
    let running = !state["running"].is_null();
    let succeeded = state["terminated"]["exitCode"] == 0;
    let mut status = json!({
        "name": name, "image": image, "imageID": "", "state": state, "lastState": last,
        "ready": init && succeeded || running && matches!(outcome, Outcome::Fine | Outcome::Busy { init: false }),
        "restartCount": i64::from(!status_is_empty(&last)), "started": running,
    });
    if *outcome != Outcome::NoImage {
        status["imageID"] = image_id(image).into();
        status["containerID"] = id.into();
    }
    status
}

fn status_is_empty(state: &Value) -> bool {
    state.as_object().is_none_or(Map::is_empty)
}

/// An address in the pods' range, the same for the life of the pod.
fn address(pod: &Value) -> String {
    let digest = Sha256::digest(text(pod, "/metadata/uid"));
    format!("10.244.{}.{}", digest[0], digest[1].clamp(2, 254))
}

/// Ends a terminating pod once its containers had time to stop.
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

/// The node that all pods run on.
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
    // The namespace is one of those that every cluster has from the start.
    let _ = client.create("kubelet", "leases.coordination.k8s.io", "kube-node-lease", lease);
}
