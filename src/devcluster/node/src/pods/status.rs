//! Computes the status of a pod from its containers' states.
//!
//! Phases, conditions, reasons and messages are the kubelet's.
//!
//! Not here: writing the status (`pod`).

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde_json::{Value, json};

use devcluster_apiserver::client::Client;
use devcluster_apiserver::kubelet::{condition, pod_parts};
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::stamp;

/// The end of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: i64,
    /// `Completed`, `Error`, `OOMKilled`, `StartError`.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) begun: Timestamp,
    pub(super) over: Timestamp,
    pub(super) id: String,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not running, with reason and message.
    Waiting(&'static str, String),
    /// Running since this time, with the ID of the container.
    Running(Timestamp, String),
    /// Ended; it may restart later.
    Ended(Ended),
}

/// The status of a container.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    pub(super) image_id: String,
    pub(super) init: bool,
    /// Whether it is an init container that keeps running beside the main containers.
    pub(super) sidecar: bool,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: i64,
    pub(super) ready: bool,
    pub(super) started: bool,
}

impl Container {
    /// Creates the initial status of a container.
    pub(super) fn new(container: &Value, init: bool, waits: &'static str) -> Self {
        Self {
            name: text(container, "/name").to_owned(),
            image: text(container, "/image").to_owned(),
            image_id: String::new(),
            init,
            sidecar: init && container["restartPolicy"] == "Always",
            state: State::Waiting(waits, String::new()),
            last: None,
            restarts: 0,
            ready: false,
            started: false,
        }
    }

    fn succeeded(&self) -> bool {
        matches!(&self.state, State::Ended(ended) if ended.code == 0)
    }

    /// Whether the containers after this init container may start.
    fn is_initialised(&self) -> bool {
        if self.sidecar { self.started } else { self.succeeded() }
    }
}

/// The state of a pod.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) address: Ipv4Addr,
    pub(super) host: Ipv4Addr,
    pub(super) begun: Timestamp,
    /// Whether volumes and address are ready.
    pub(super) prepared: bool,
    pub(super) containers: Vec<Container>,
    /// Reason and message if the node ended the pod.
    pub(super) ended: Option<(&'static str, String)>,
    /// Whether no container will run again.
    pub(super) over: bool,
}

impl View {
    fn list(&self, init: bool) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(move |container| container.init == init)
    }

    /// Returns the phase.
    pub(super) fn phase(&self) -> &'static str {
        let unfinished = self.list(true).any(|container| !container.is_initialised());
        if self.over || self.ended.is_some() && self.containers.iter().all(|c| !matches!(c.state, State::Running(..))) {
            let failed = self.ended.is_some() || unfinished || self.list(false).any(|container| !container.succeeded());
            return if failed { "Failed" } else { "Succeeded" };
        }
        let begun = |c: &Container| c.last.is_some() || !matches!(c.state, State::Waiting(..));
        if unfinished || !self.list(false).any(begun) { "Pending" } else { "Running" }
    }

    /// Returns the status. Conditions with an unchanged status keep their transition times.
    pub(super) fn status(&self, client: &Client, pod: &Value) -> Value {
        let (now, phase) = (client.stamp(), self.phase());
        let done = matches!(phase, "Succeeded" | "Failed");
        let names =
            |containers: Vec<&Container>| containers.iter().map(|c| c.name.clone()).collect::<Vec<_>>().join(" ");
        let incomplete: Vec<&Container> = self.list(true).filter(|c| !c.is_initialised()).collect();
        let unready: Vec<&Container> = self.containers.iter().filter(|c| (!c.init || c.sidecar) && !c.ready).collect();
        let initialised = incomplete.is_empty();
        let incomplete = format!("containers with incomplete status: [{}]", names(incomplete));
        let all_ready = unready.is_empty() && initialised;
        let unready = format!("containers with unready status: [{}]", names(unready));
        let finished = if phase == "Succeeded" { "PodCompleted" } else { "PodFailed" };
        let ready = || match (all_ready, done) {
            (_, true) => Err((finished, "")),
            (true, false) => Ok(()),
            (false, false) => Err(("ContainersNotReady", unready.as_str())),
        };
        let sandbox = if self.prepared && !done { Ok(()) } else { Err(("", "")) };
        let initial = if initialised { Ok(()) } else { Err(("ContainersNotInitialized", incomplete.as_str())) };
        let mut list = vec![
            condition(pod, &now, "PodReadyToStartContainers", sandbox),
            condition(pod, &now, "Initialized", initial),
            condition(pod, &now, "Ready", ready()),
            condition(pod, &now, "ContainersReady", ready()),
            condition(pod, &now, "PodScheduled", Ok(())),
        ];
        if phase == "Succeeded" {
            list[1]["reason"] = finished.into();
        }
        for condition in list.iter_mut().filter_map(Value::as_object_mut) {
            condition.retain(|field, value| !matches!(field.as_str(), "reason" | "message") || value != "");
        }
        let mut status = json!({
            "phase": phase, "conditions": list, "startTime": stamp(self.begun), "qosClass": pod["status"]["qosClass"],
            "hostIP": self.host.to_string(), "hostIPs": [{"ip": self.host.to_string()}],
            "observedGeneration": pod["metadata"]["generation"],
            "containerStatuses": self.list(false).map(container_status).collect::<Vec<_>>(),
        });
        if self.prepared {
            status["podIP"] = self.address.to_string().into();
            status["podIPs"] = json!([{"ip": self.address.to_string()}]);
        }
        if self.list(true).next().is_some() {
            status["initContainerStatuses"] = self.list(true).map(container_status).collect::<Vec<_>>().into();
        }
        let why = "this node runs no ephemeral containers";
        if !done && let Some(statuses) = pod_parts::ephemeral_statuses(client, pod, Some(why)) {
            status["ephemeralContainerStatuses"] = statuses;
        }
        pod_parts::keep_conditions(pod, &mut status);
        pod_parts::reflect_resources(client, pod, &mut status);
        if let Some((reason, message)) = &self.ended {
            status["reason"] = (*reason).into();
            status["message"] = message.as_str().into();
        }
        status
    }
}

fn container_status(container: &Container) -> Value {
    let state = match &container.state {
        State::Waiting(reason, message) => {
            let mut state = json!({"waiting": {"reason": reason}});
            if !message.is_empty() {
                state["waiting"]["message"] = message.as_str().into();
            }
            state
        }
        State::Running(since, _) => json!({"running": {"startedAt": stamp(*since)}}),
        State::Ended(ended) => terminated(ended),
    };
    let mut status = json!({
        "name": container.name, "image": container.image, "imageID": container.image_id, "state": state,
        "lastState": container.last.as_ref().map_or_else(|| json!({}), terminated),
        "ready": if container.init && !container.sidecar { container.succeeded() } else { container.ready },
        "restartCount": container.restarts, "started": container.started,
    });
    let id = match &container.state {
        State::Running(_, id) => Some(id),
        State::Ended(ended) => Some(&ended.id),
        State::Waiting(..) => container.last.as_ref().map(|last| &last.id),
    };
    if let Some(id) = id {
        status["containerID"] = id.as_str().into();
    }
    status
}

fn terminated(ended: &Ended) -> Value {
    let mut state = json!({
        "exitCode": ended.code, "reason": ended.reason, "startedAt": stamp(ended.begun), "finishedAt": stamp(ended.over),
        "containerID": ended.id,
    });
    if !ended.message.is_empty() {
        state["message"] = ended.message.as_str().into();
    }
    json!({"terminated": state})
}
