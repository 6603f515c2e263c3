//! The quota usage of objects, under the resource names of quotas.
//!
//! Not here: the check against quotas (`admission`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::amounts::Amounts;
use super::{pods, scopes};
use crate::kinds::hooks::Quantity;

/// Kinds that a quota can name without `count/`.
const COUNTED: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";

/// Returns the usage of an object. `now` decides whether a terminating pod still counts.
pub(super) fn usage(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let one = || Quantity::whole(1);
    let mut usage = Amounts::from([(count_name(group, plural), one())]);
    match (group, plural) {
        ("", "pods") => usage.extend(pods::usage(object, now)),
        ("", "services") => usage.extend(of_service(object)),
        ("", "persistentvolumeclaims") => usage.extend(of_claim(object)),
        ("", counted) if COUNTED.contains(&counted) => {
            usage.insert(counted.to_owned(), one());
        }
        _ => {}
    }
    usage
}

fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

fn of_service(service: &Value) -> Amounts {
    let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |n: usize| Quantity::whole(i64::try_from(n).unwrap_or(i64::MAX));
    let balances = service["spec"]["type"] == "LoadBalancer";
    let node_ports = match service["spec"]["type"].as_str() {
        Some("LoadBalancer") if service["spec"]["allocateLoadBalancerNodePorts"] == false => {
            ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count()
        }
        Some("NodePort" | "LoadBalancer") => ports.len(),
        _ => 0,
    };
    Amounts::from([
        ("services".to_owned(), number(1)),
        ("services.nodeports".to_owned(), number(node_ports)),
        ("services.loadbalancers".to_owned(), number(usize::from(balances))),
    ])
}

fn of_claim(claim: &Value) -> Amounts {
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
    let storage = Quantity::read(&claim["spec"]["resources"]["requests"]["storage"]);
    let mut usage = Amounts::new();
    for (name, amount) in [("persistentvolumeclaims", Some(Quantity::whole(1))), ("requests.storage", storage)] {
        let Some(amount) = amount else { continue };
        usage.insert(name.to_owned(), amount);
        if !class.is_empty() {
            usage.insert(format!("{class}{OF_CLASS}{name}"), amount);
        }
    }
    usage
}

/// Returns group and plural of the kind whose objects use a resource.
fn kind_of(resource: &str) -> (&str, &str) {
    if let Some(counted) = resource.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return (group, plural);
    }
    match resource {
        "services" | "services.nodeports" | "services.loadbalancers" => ("", "services"),
        "persistentvolumeclaims" | "requests.storage" => ("", "persistentvolumeclaims"),
        name if name.contains(OF_CLASS) => ("", "persistentvolumeclaims"),
        name if COUNTED.contains(&name) => ("", name),
        _ => ("", "pods"),
    }
}

/// Returns the resources of a quota that objects of a kind use.
pub(super) fn named<'a>(hard: &'a Value, group: &str, plural: &str) -> Vec<&'a str> {
    let names = hard.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    names.filter(|name| kind_of(name) == (group, plural) && (plural != "pods" || pods::takes(name))).collect()
}

/// Returns the total usage of a quota. `objects` returns a kind's objects in the namespace; `None` if the kind is not
/// served.
pub fn used(
    spec: &Value,
    now: Timestamp,
    objects: impl Fn(&str, &str) -> Option<Vec<Arc<Value>>>,
) -> Map<String, Value> {
    let hard = &spec["hard"];
    let mut kinds: Vec<(&str, &str)> =
        hard.as_object().into_iter().flatten().map(|(resource, _)| kind_of(resource)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut used = Map::new();
    for (group, plural) in kinds {
        let Some(objects) = objects(group, plural) else { continue };
        let names = named(hard, group, plural);
        let mut sums: BTreeMap<&str, Quantity> = names.iter().map(|name| (*name, Quantity::whole(0))).collect();
        for object in objects.iter().filter(|object| scopes::fit(spec, plural, object)) {
            for (name, amount) in usage(group, plural, object, now) {
                if let Some(sum) = sums.get_mut(name.as_str()) {
                    *sum = sum.plus(amount);
                }
            }
        }
        used.extend(sums.into_iter().map(|(name, sum)| (name.to_owned(), sum.text().into())));
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn knows_whose_a_resource_is() {
        for (resource, kind) in [
            ("count/deployments.apps", ("apps", "deployments")),
            ("count/widgets.x.example.com", ("x.example.com", "widgets")),
            ("count/pods", ("", "pods")),
            ("requests.cpu", ("", "pods")),
            ("secrets", ("", "secrets")),
            ("fast.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
            ("services.nodeports", ("", "services")),
        ] {
            assert_eq!(kind_of(resource), kind, "{resource}");
        }
    }

    #[test]
    fn sums_what_objects_take() {
        let pod = |phase: &str, memory: &str| {
            let container = json!({"name": "c", "resources": {"requests": {"memory": memory}}});
            Arc::new(json!({"spec": {"containers": [container]}, "status": {"phase": phase}}))
        };
        let pods = vec![pod("Running", "512Mi"), pod("Pending", "1536Mi"), pod("Succeeded", "9Gi")];
        let hard = json!({"pods": "9", "count/pods": "9", "requests.memory": "9Gi", "count/x.y": "1"});
        let used =
            used(&json!({"hard": hard}), Timestamp::UNIX_EPOCH, |_, plural| (plural == "pods").then(|| pods.clone()));
        assert_eq!(Value::Object(used), json!({"pods": "2", "count/pods": "3", "requests.memory": "2Gi"}));
    }
}
