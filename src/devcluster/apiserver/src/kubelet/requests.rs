//! Resource requests of pods.

use serde_json::Value;

use crate::kinds::hooks::quantity;

/// Returns the request of a pod: the sum of its containers and sidecars, or the largest init container if that is more.
pub fn asked(pod: &Value, name: &str) -> i128 {
    let of = |list: &str, stays: bool| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        let chosen = containers.filter(move |container| (container["restartPolicy"] == "Always") == stays);
        chosen.filter_map(|container| quantity(&container["resources"]["requests"][name])).collect::<Vec<_>>()
    };
    let together = [of("containers", false), of("initContainers", true)].concat();
    let together = together.into_iter().fold(0, i128::saturating_add);
    of("initContainers", false).into_iter().fold(together, i128::max)
}
