//! PodDisruptionBudgets: counts healthy, required and disruptable pods.
//!
//! Not here: consuming the budget. An eviction does that (`verbs::eviction`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kinds::disruption::{allowing, set_condition};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{controller, count, is_terminating, is_true, text};
use devcluster_apiserver::store::Key;
use devcluster_apiserver::verbs::scale;

const BUDGETS: &str = "poddisruptionbudgets.policy";
const SOURCE: &str = "controllermanager";
/// Time for which an evicted pod that still exists counts as disrupted.
const EVICTION: SignedDuration = SignedDuration::from_mins(2);

/// The controller of PodDisruptionBudgets.
#[derive(Default)]
pub(super) struct DisruptionBudgets {
    /// The budgets of each namespace.
    budgets: HashMap<String, BTreeSet<Key>>,
}

impl Controller for DisruptionBudgets {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        let namespace = event.key.namespace();
        if &*event.storage == BUDGETS {
            let known = self.budgets.entry(namespace.to_owned()).or_default();
            if event.change() == Change::Deleted {
                known.remove(&event.key);
            } else {
                known.insert(event.key.clone());
                queue.add(Subject::of(event));
            }
        } else if &*event.storage == "pods" {
            for key in self.budgets.get(namespace).into_iter().flatten() {
                queue.add(Subject { storage: BUDGETS.into(), key: key.clone() });
            }
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(budget) = client.get(subject) else { return };
        let mut pods = client.list("pods", subject.key.namespace());
        pods.retain(|pod| hooks::selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]));
        let disrupted = disrupted(&budget, &pods, client.now());
        let status = match expected(client, &budget, &pods) {
            Ok(expected) => status(&budget, &pods, &expected, &disrupted, &client.stamp()),
            Err(why) => failed(&budget, &why, &client.stamp()),
        };
        if status == budget["status"] {
            return;
        }
        if pods.is_empty() {
            client.report(&budget, SOURCE, "Normal", "NoPods", "No matching pods found");
        }
        if matches!(expected(client, &budget, &pods), Ok(Expected { unmanaged: true, .. })) {
            client.report(&budget, SOURCE, "Warning", "UnmanagedPods", &unmanaged(&budget["spec"]["selector"]));
        }
        client.set_status(CONTROLLER, subject, &budget, status);
        if !disrupted.is_empty() {
            queue.add_after(subject.clone(), Duration::from_secs(EVICTION.as_secs().unsigned_abs() + 1));
        }
    }
}

/// The pods that a budget covers.
struct Expected {
    pods: i64,
    healthy: i64,
    /// Whether some pods have no controller. A percentage cannot count such pods.
    unmanaged: bool,
}

fn expected(client: &Client, budget: &Value, pods: &[Arc<Value>]) -> Result<Expected, String> {
    let (least, most) = (&budget["spec"]["minAvailable"], &budget["spec"]["maxUnavailable"]);
    if most.is_null()
        && let Some(healthy) = least.as_i64()
    {
        return Ok(Expected { pods: i64::try_from(pods.len()).unwrap_or(i64::MAX), healthy, unmanaged: false });
    }
    let (all, unmanaged) = scale_of(client, pods)?;
    let healthy = match (most.is_null(), least.is_null()) {
        (false, _) => (all - part(most, all)).max(0),
        (true, false) => part(least, all),
        (true, true) => return Ok(Expected { pods: 0, healthy: 0, unmanaged: false }),
    };
    Ok(Expected { pods: all, healthy, unmanaged })
}

/// Resolves a number, or a percentage of `whole`, rounded up.
fn part(value: &Value, whole: i64) -> i64 {
    match value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok()) {
        Some(percent) => (percent * whole + 99).div_euclid(100),
        None => value.as_i64().unwrap_or(0),
    }
}

/// Sum of the desired replicas of the pods' controllers, and whether some pods have no controller.
fn scale_of(client: &Client, pods: &[Arc<Value>]) -> Result<(i64, bool), String> {
    let mut scales: HashMap<String, i64> = HashMap::new();
    let mut unmanaged = false;
    for pod in pods {
        let Some(owner) = controller(pod) else {
            unmanaged = true;
            continue;
        };
        let namespace = text(pod, "/metadata/namespace");
        let (uid, replicas) = top(client, namespace, owner)?
            .ok_or_else(|| format!("found no controllers for pod {:?}", text(pod, "/metadata/name")))?;
        scales.insert(uid, replicas);
    }
    Ok((scales.values().sum(), unmanaged))
}

/// UID and desired replicas of an owner. A ReplicaSet resolves to its Deployment.
fn top(client: &Client, namespace: &str, owner: &Value) -> Result<Option<(String, i64)>, String> {
    let Some(kind) = client.kind_named(text(owner, "/apiVersion"), text(owner, "/kind")) else { return Ok(None) };
    let subject = Subject::new(&kind.storage, namespace, text(owner, "/name"));
    let Some(object) = client.get(&subject).filter(|object| object["metadata"]["uid"] == owner["uid"]) else {
        return Ok(None);
    };
    if kind.subresource("scale").is_none() {
        return Err(format!("{} does not implement the scale subresource", kind.group_resource()));
    }
    if let Some(above) = controller(&object).filter(|_| kind.kind == "ReplicaSet") {
        return top(client, namespace, above);
    }
    let replicas = count(&scale::of(&kind, &object), "/spec/replicas");
    Ok(Some((text(&object, "/metadata/uid").to_owned(), replicas)))
}

/// Pods with an allowed eviction that do not terminate yet.
fn disrupted(budget: &Value, pods: &[Arc<Value>], now: Timestamp) -> Map<String, Value> {
    let listed = budget["status"]["disruptedPods"].as_object();
    let going = |name: &str, since: &Value| {
        let pod = pods.iter().find(|pod| text(pod, "/metadata/name") == name);
        let since: Option<Timestamp> = since.as_str().and_then(|since| since.parse().ok());
        pod.is_some_and(|pod| !is_terminating(pod)) && since.is_some_and(|since| now.duration_since(since) <= EVICTION)
    };
    let listed = listed.into_iter().flatten().filter(|(name, since)| going(name, since));
    listed.map(|(name, since)| (name.clone(), since.clone())).collect()
}

fn status(
    budget: &Value,
    pods: &[Arc<Value>],
    expected: &Expected,
    disrupted: &Map<String, Value>,
    now: &Value,
) -> Value {
    let counts = |pod: &&Arc<Value>| {
        !is_terminating(pod) && !disrupted.contains_key(text(pod, "/metadata/name")) && is_true(pod, "Ready")
    };
    let healthy = i64::try_from(pods.iter().filter(counts).count()).unwrap_or(i64::MAX);
    let allowed = if expected.pods > 0 { (healthy - expected.healthy).max(0) } else { 0 };
    let generation = &budget["metadata"]["generation"];
    let mut status = json!({
        "observedGeneration": generation, "currentHealthy": healthy, "desiredHealthy": expected.healthy,
        "disruptionsAllowed": allowed, "expectedPods": expected.pods,
        "conditions": allowing(budget, allowed, generation, now),
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted.clone());
    }
    status
}

/// The status of a budget whose pods could not be counted. It allows no disruption.
fn failed(budget: &Value, why: &str, now: &Value) -> Value {
    let mut status = budget["status"].clone();
    status["disruptionsAllowed"] = 0.into();
    let generation = status["observedGeneration"].clone();
    status["conditions"] = set_condition(budget, "False", "SyncFailed", why, &generation, now);
    status
}

fn unmanaged(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(name, value)| format!("{name}: {},", value.as_str().unwrap_or_default())).collect();
    let labels = labels.concat();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_whole_is_rounded_up() {
        for (value, whole, expected) in
            [(json!("30%"), 2, 1), (json!("60%"), 2, 2), (json!("0%"), 5, 0), (json!("100%"), 5, 5), (json!(3), 1, 3)]
        {
            assert_eq!(part(&value, whole), expected, "{value} of {whole}");
        }
    }
}
