//! The quota usage of a pod, and the fields that quotas require of it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::amounts::Amounts;
use crate::kinds::hooks::Quantity;

/// Resources of pods that a quota can name.
const TAKEN: [&str; 10] = [
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// Resources that every container must set if a quota names them.
const REQUIRED: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];

/// Returns whether pods use a resource.
pub(super) fn takes(resource: &str) -> bool {
    let extended = || resource.strip_prefix("requests.").is_some_and(|name| name.contains('/'));
    resource == "count/pods"
        || TAKEN.contains(&resource)
        || resource.starts_with("hugepages-")
        || resource.starts_with("requests.hugepages-")
        || extended()
}

/// Returns the usage of a pod; empty if it has terminated.
pub(super) fn usage(pod: &Value, now: Timestamp) -> Amounts {
    if has_ended(pod, now) { Amounts::new() } else { named(&total(pod, "requests"), &total(pod, "limits")) }
}

fn has_ended(pod: &Value, now: Timestamp) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return true;
    }
    let (end, grace) = (&pod["metadata"]["deletionTimestamp"], &pod["metadata"]["deletionGracePeriodSeconds"]);
    let end: Option<Timestamp> = end.as_str().and_then(|end| end.parse().ok());
    // The timestamp is the end of the grace period.
    end.is_some_and(|end| !grace.is_null() && end < now)
}

/// Returns requests and limits under the resource names of quotas.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), Quantity::whole(1))]);
    for (name, amount) in requests {
        let basic = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if basic {
            usage.insert(name.clone(), *amount);
        }
        if basic || name.contains('/') {
            usage.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}

/// Returns the requests or limits of a pod: the sum of its containers and sidecars, or the largest init container if
/// that is more. Pod-level resources replace them; overhead is added.
fn total(pod: &Value, list: &str) -> Amounts {
    let of = |containers: &str, stays: bool| -> Vec<Amounts> {
        let containers = pod["spec"][containers].as_array().into_iter().flatten();
        let chosen = containers.filter(|container| (container["restartPolicy"] == "Always") == stays);
        chosen.map(|container| amounts(container["resources"][list].as_object())).collect()
    };
    let mut sum = Amounts::new();
    for part in [of("containers", false), of("containers", true), of("initContainers", true)].concat() {
        for (name, amount) in part {
            let before = sum.get(&name).copied().unwrap_or(Quantity::whole(0));
            sum.insert(name, before.plus(amount));
        }
    }
    for part in of("initContainers", false) {
        for (name, amount) in part {
            let before = sum.entry(name).or_insert(amount);
            *before = before.max(amount);
        }
    }
    let of_pod = amounts(pod["spec"]["resources"][list].as_object());
    sum.extend(of_pod);
    let overhead = amounts(pod["spec"]["overhead"].as_object());
    for (name, amount) in overhead {
        if list == "requests" || sum.contains_key(&name) {
            let before = sum.get(&name).copied().unwrap_or(Quantity::whole(0));
            sum.insert(name, before.plus(amount));
        }
    }
    sum
}

fn amounts(list: Option<&Map<String, Value>>) -> Amounts {
    list.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), Quantity::read(value)?))).collect()
}

/// Returns the resources named by a quota that containers do not set; `None` if there are none.
pub(super) fn missing(pod: &Value, resources: &[&str]) -> Option<String> {
    if pod["spec"]["resources"].as_object().is_some_and(|resources| !resources.is_empty()) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            let of = |list: &str| amounts(container["resources"][list].as_object());
            let given = named(&of("requests"), &of("limits"));
            for resource in resources.iter().filter(|name| REQUIRED.contains(name) && !given.contains_key(**name)) {
                missing.entry(resource).or_default().insert(container["name"].as_str().unwrap_or_default());
            }
        }
    }
    let texts = missing.iter().map(|(resource, containers)| {
        format!("{resource} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
    });
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| format!("must specify {}", texts.join("; ")))
}
