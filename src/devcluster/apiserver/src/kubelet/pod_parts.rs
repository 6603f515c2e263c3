//! Applies changes of a running pod, as a kubelet does: the resources of containers, ephemeral containers, and the
//! conditions that other clients set.
//!
//! A resize takes effect immediately. A resize beyond the node's capacity stays pending as infeasible, and the
//! containers keep their resources. An ephemeral container runs as long as its pod.
//!
//! Not here: restarts by a resize policy, and deferred resizes. The node can run any number of pods, as long as each
//! fits.

use serde_json::{Value, json};

use super::requests::asked;
use super::{NODE, SIMULATED, condition, container_id, image_id};
use crate::client::{Client, Subject};
use crate::kinds::hooks::quantity;
use crate::object::{conditions, text};

/// Conditions that a kubelet computes. The kubelet keeps all other conditions.
const COMPUTED: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizePending",
    "PodResizeInProgress",
    SIMULATED,
];

/// Adds the conditions that other clients wrote, for example the reason of an eviction, to a pod's new status.
pub fn keep_conditions(pod: &Value, status: &mut Value) {
    let Some(list) = status["conditions"].as_array_mut() else { return };
    let is_computed = |condition: &&Value| COMPUTED.contains(&text(condition, "/type"));
    list.extend(conditions(pod).iter().filter(|condition| !is_computed(condition)).cloned());
}

/// Writes the actual resources of containers into a pod's status, and why they differ from the spec.
pub fn reflect_resources(client: &Client, pod: &Value, status: &mut Value) {
    let infeasible = pending(client, pod);
    for (list, statuses) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        let wanted = pod["spec"][list].as_array().into_iter().flatten();
        let Some(all) = status[statuses].as_array_mut() else { continue };
        for container in all.iter_mut().filter(|container| container["state"]["running"].is_object()) {
            let wanted = wanted.clone().find(|wanted| wanted["name"] == container["name"]);
            let kept = known(pod, statuses, &container["name"]);
            let resources = match (&infeasible, kept) {
                (Some(_), Some(kept)) => kept["resources"].clone(),
                _ => wanted.map_or_else(|| json!({}), |wanted| wanted["resources"].clone()),
            };
            if resources["requests"].is_object() {
                container["allocatedResources"] = resources["requests"].clone();
            }
            let resources = if resources.is_object() { resources } else { json!({}) };
            container["resources"] = resources;
        }
    }
    if let (Some(why), Some(list)) = (infeasible, status["conditions"].as_array_mut()) {
        let mut pending = condition(pod, &client.stamp(), "PodResizePending", Ok(()));
        pending["reason"] = "Infeasible".into();
        pending["message"] = why.into();
        pending["observedGeneration"] = pod["metadata"]["generation"].clone();
        list.push(pending);
    }
}

/// Returns why the node cannot satisfy the containers' requests. Only for a pod that the node already runs.
fn pending(client: &Client, pod: &Value) -> Option<String> {
    let running = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    running.into_iter().find(|container| container["resources"].is_object())?;
    let node = client.get(&Subject::new("nodes", "", NODE))?;
    ["cpu", "memory"].into_iter().find_map(|name| {
        let capacity = quantity(&node["status"]["allocatable"][name])?;
        let asked = asked(pod, name);
        // Quantities are in billionths. Kubelets report thousandths of a core, and bytes.
        let unit = if name == "cpu" { 1_000_000 } else { 1_000_000_000 };
        (asked > capacity).then(|| {
            let (asked, capacity) = (asked / unit, capacity / unit);
            format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {capacity}")
        })
    })
}

fn known<'a>(pod: &'a Value, statuses: &str, name: &Value) -> Option<&'a Value> {
    let mut all = pod["status"][statuses].as_array().into_iter().flatten();
    all.find(|container| container["name"] == *name && container["resources"].is_object())
}

/// Returns the statuses of a pod's ephemeral containers, which run immediately; `None` if it has none.
pub fn ephemeral_statuses(client: &Client, pod: &Value, runs: Option<&str>) -> Option<Value> {
    let containers = pod["spec"]["ephemeralContainers"].as_array().filter(|containers| !containers.is_empty())?;
    let before = pod["status"]["ephemeralContainerStatuses"].as_array();
    let status = |container: &Value| {
        let mut before = before.into_iter().flatten();
        let known = before.find(|known| known["name"] == container["name"]);
        let name = text(container, "/name");
        let state = match (runs, known) {
            (Some(why), _) => json!({"waiting": {"reason": "CreateContainerError", "message": why}}),
            (None, Some(known)) if known["state"]["running"].is_object() => known["state"].clone(),
            _ => json!({"running": {"startedAt": client.stamp()}}),
        };
        let mut status = json!({
            "name": name, "image": container["image"], "imageID": "", "lastState": {}, "ready": false, "restartCount": 0,
            "state": state,
        });
        if runs.is_none() {
            status["imageID"] = image_id(text(container, "/image")).into();
            status["containerID"] = container_id(pod, name).into();
        }
        status
    };
    Some(containers.iter().map(status).collect())
}
