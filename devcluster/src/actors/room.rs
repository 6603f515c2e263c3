//! Whether the node has what a pod asks for.
//!
//! Deliberately absent: what other pods have taken of it. The node has room for any number of pods that each fit.

use serde_json::Value;

use super::pods::NODE;
use super::{Hands, Subject};
use crate::kinds::hooks::quantity;

const COMPARED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Why a pod fits on no node, in a scheduler's words.
pub(super) fn misfit(hands: &Hands, pod: &Value) -> Option<String> {
    let node = hands.get(&Subject::new("nodes", "", NODE))?;
    let lacks = |name: &&str| quantity(&node["status"]["allocatable"][name]).is_some_and(|all| asked(pod, name) > all);
    let lacking = COMPARED.into_iter().filter(lacks).map(|name| format!("1 Insufficient {name}")).collect::<Vec<_>>();
    if lacking.is_empty() {
        return None;
    }
    let preemption = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    Some(format!("0/1 nodes are available: {}. {preemption}", lacking.join(", ")))
}

/// What the containers of a pod ask for together, or the largest of those that run one after the other before them.
fn asked(pod: &Value, name: &str) -> i128 {
    let of = |list: &str, stays: bool| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        let chosen = containers.filter(move |container| (container["restartPolicy"] == "Always") == stays);
        chosen.filter_map(|container| quantity(&container["resources"]["requests"][name])).collect::<Vec<_>>()
    };
    let together = [of("containers", false), of("initContainers", true)].concat();
    let together = together.into_iter().fold(0, i128::saturating_add);
    of("initContainers", false).into_iter().fold(together, i128::max)
}
