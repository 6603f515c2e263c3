//! The status that the kubelet of a simulated pod writes.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::super::simulated_outcome::Fate;
use super::faults::Fault;
use super::outcome::Outcome;
use devcluster_apiserver::client::Client;
use devcluster_apiserver::kubelet::{SIMULATED, condition, container_id, image_id, pod_parts};
use devcluster_apiserver::object::text;

/// Address of the node, and of pods on the host network.
pub(super) const ADDRESS: &str = "127.0.0.1";
/// Message for pods that only seem to run.
pub(super) const PRETENDED: &str = "No image is pulled and no process runs in this pod: its status is simulated";

/// Computes the kubelet's status of a placed pod.
pub(super) fn status(client: &Client, pod: &Value, outcome: &Outcome) -> Value {
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
        Outcome::Faulty(faults) => !faults.hold_up_init(pod),
        _ => true,
    };
    let phase = match outcome {
        Outcome::NoImage | Outcome::Pending | Outcome::Busy { init: true } => "Pending",
        Outcome::Faulty(faults) if faults.lack_images() => "Pending",
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
    if client.server().options().mark_simulated && outcome.is_pretended() {
        let mut mark = condition(pod, &client.stamp(), SIMULATED, Ok(()));
        mark["reason"] = "ImagesNotPulled".into();
        mark["message"] = PRETENDED.into();
        list.push(mark);
    }
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
    pod_parts::keep_conditions(pod, &mut status);
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
        Outcome::Faulty(faults) if faults.hold_up(pod, name) => json!({"waiting": {"reason": "PodInitializing"}}),
        Outcome::Faulty(faults) if faults.at(name).is_some_and(Fault::lacks_image) => match faults.at(name) {
            Some(Fault::InvalidName(why)) => waiting("InvalidImageName", why.clone()),
            fault => {
                let why = fault.map(Fault::why).unwrap_or_default();
                waiting("ImagePullBackOff", format!("Back-off pulling image \"{image}\": ErrImagePull: {why}"))
            }
        },
        _ if init => ended(0),
        Outcome::Faulty(faults) if matches!(faults.at(name), Some(Fault::Killed(_))) => {
            last = ended(137);
            waiting("CrashLoopBackOff", format!("back-off 10s restarting failed container={name}"))
        }
        Outcome::Simulated(simulated) => {
            if let Fate::Ends(code, message) = simulated.fate(name, init) {
                last = ended_saying(code, message);
            }
            waiting("CrashLoopBackOff", format!("back-off 10s restarting failed container={name}"))
        }
        Outcome::NoImage | Outcome::Pending => {
            waiting("ImagePullBackOff", format!("Back-off pulling image \"{image}\""))
        }
        Outcome::Fine | Outcome::Faulty(_) if !restarts => ended(0),
        Outcome::Exit(code) if !restarts => ended(*code),
        Outcome::Exit(_) | Outcome::CrashLoop => {
            last = ended(if let Outcome::Exit(code) = outcome { *code } else { 1 });
            waiting("CrashLoopBackOff", format!("back-off 10s restarting failed container={name}"))
        }
        Outcome::Fine | Outcome::NeverReady | Outcome::Busy { .. } | Outcome::Faulty(_) => {
            json!({"running": {"startedAt": start}})
        }
    };
    let running = !state["running"].is_null();
    let can_be_ready = match outcome {
        Outcome::Fine | Outcome::Busy { init: false } => true,
        Outcome::Faulty(faults) => faults.at(name).is_none(),
        _ => false,
    };
    let has_image = match outcome {
        Outcome::NoImage => false,
        Outcome::Faulty(faults) => !faults.hold_up(pod, name) && !faults.at(name).is_some_and(Fault::lacks_image),
        _ => true,
    };
    let succeeded = state["terminated"]["exitCode"] == 0;
    let mut status = json!({
        "name": name, "image": image, "imageID": "", "state": state, "lastState": last,
        "ready": init && succeeded || running && can_be_ready,
        "restartCount": i64::from(!status_is_empty(&last)), "started": running,
    });
    if has_image {
        status["imageID"] = image_id(image).into();
        status["containerID"] = id.into();
    }
    status
}

fn status_is_empty(state: &Value) -> bool {
    state.as_object().is_none_or(Map::is_empty)
}

/// An address in the pod network, derived from the pod's UID.
fn address(pod: &Value) -> String {
    let digest = Sha256::digest(text(pod, "/metadata/uid"));
    format!("10.244.{}.{}", digest[0], digest[1].clamp(2, 254))
}
