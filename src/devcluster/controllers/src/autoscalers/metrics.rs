//! Evaluates the metrics of an autoscaler: resource usage of its pods, and the replicas that the usage requires.
//!
//! Not here: metrics of type `Pods`, `Object` and `External`. No API serves them here.

use std::sync::Arc;
use std::time::Duration;

use devcluster_apiserver::client::Client;
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::kubelet::ContainerUsage;
use devcluster_apiserver::object::text;
use devcluster_apiserver::selector::Selector;
use devcluster_apiserver::store::{Key, Stored};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::calculator::{self, Counted, Proposal, Target, Tolerance};

/// Default tolerance.
const TOLERANCE: f64 = 0.1;
/// Cause of a failed measurement without a node.
const NOT_SERVED: &str = "unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";
const NOTHING: &str = "no metrics returned from resource metrics API";

/// A metric that is unavailable.
pub(super) struct Missing {
    pub(super) reason: &'static str,
    /// The failed operation.
    pub(super) what: String,
    pub(super) why: String,
}

/// The result of all metrics together.
pub(super) struct Measured {
    /// The largest number of replicas and its metric's name; otherwise the first unavailable metric.
    pub(super) found: Result<(i64, String), Missing>,
    /// Number of metrics, and of unavailable ones.
    pub(super) counts: [usize; 2],
    /// `status.currentMetrics`.
    pub(super) statuses: Value,
}

/// Parses a selector of pods.
pub(super) fn parse(client: &Client, selector: &str) -> Option<Selector> {
    client.kind_of("pods").and_then(|kind| Selector::parse(&kind, selector, "").ok())
}

/// Returns the pods that match a selector.
pub(super) fn selected(client: &Client, namespace: &str, selector: &Selector) -> Vec<(Key, Arc<Stored>)> {
    let is_selected = |key: &Key, pod: &Stored| key.namespace() == namespace && selector.matches(key, pod);
    client.stored("pods").into_iter().filter(|(key, pod)| is_selected(key, pod)).collect()
}

/// The pods of a target, with their usage.
pub(super) struct Pods {
    all: Vec<Arc<Value>>,
    usage: Vec<Option<Vec<ContainerUsage>>>,
    is_served: bool,
    now: Timestamp,
    window: Duration,
}

impl Pods {
    /// Measures pods over a window.
    pub(super) fn measured(client: &Client, pods: &[(Key, Arc<Stored>)], window: Duration) -> Self {
        let server = client.server();
        let is_served = server.measures_pods();
        let measured = pods.iter().filter(|_| is_served);
        let pods: Vec<_> = measured.map(|(_, stored)| stored.value()).collect();
        let usage = pods.iter().map(|pod| server.usage(text(pod, "/metadata/uid"), window)).collect();
        Self { all: pods, usage, is_served, now: client.now(), window }
    }

    /// Usage and request of each pod, in thousandths. `container` restricts both to one container.
    fn counted(&self, resource: &str, container: Option<&str>) -> Result<Vec<Counted>, String> {
        if !self.is_served || self.usage.iter().all(Option::is_none) {
            let why = if self.is_served { NOTHING } else { NOT_SERVED };
            return Err(format!("unable to get metrics for resource {resource}: {why}"));
        }
        let is_meant = |name: &str| container.is_none_or(|container| container == name);
        let mut counted = Vec::new();
        for (pod, usage) in self.all.iter().zip(&self.usage) {
            let of = |one: &ContainerUsage| if resource == "cpu" { one.cpu_millis } else { one.memory * 1000 };
            let used = usage.as_ref().map(|all| all.iter().filter(|one| is_meant(&one.name)).map(of).sum::<u64>());
            let used = used.map(|used| i64::try_from(used).unwrap_or(i64::MAX));
            let used = calculator::pod_use(pod, used, resource == "cpu", self.now, self.window);
            counted.push((used, request(pod, resource, is_meant)?));
        }
        Ok(counted)
    }
}

/// Sum of the requests of a pod's containers, in thousandths.
fn request(pod: &Value, resource: &str, is_meant: impl Fn(&str) -> bool) -> Result<i64, String> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut sum = 0_i64;
    for container in containers.filter(|container| is_meant(text(container, "/name"))) {
        let Some(nanos) = hooks::quantity(&container["resources"]["requests"][resource]) else {
            let (name, pod) = (text(container, "/name"), text(pod, "/metadata/name"));
            return Err(format!("missing request for {resource} in container {name} of Pod {pod}"));
        };
        sum = sum.saturating_add(millis(nanos));
    }
    Ok(sum)
}

fn millis(nanos: i128) -> i64 {
    i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX)
}

/// Evaluates all metrics of an autoscaler.
pub(super) fn measure(namespace: &str, spec: &Value, current: i64, pods: &Pods) -> Measured {
    let metrics = spec["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut best, mut missing, mut statuses, mut lost) = (None, None, Vec::new(), 0);
    for metric in metrics {
        match propose(namespace, metric, current, pods, tolerance(spec)) {
            Ok((proposal, name)) => {
                statuses.push(status(metric, &proposal));
                if best.as_ref().is_none_or(|(replicas, _)| proposal.replicas > *replicas) {
                    best = Some((proposal.replicas, name));
                }
            }
            Err(why) => {
                statuses.push(json!({"type": ""}));
                lost += 1;
                missing.get_or_insert(why);
            }
        }
    }
    // An unavailable metric forbids scaling down: it might require more replicas.
    let found = match (best, missing) {
        (Some((replicas, _)), Some(missing)) if replicas < current => Err(missing),
        (Some(best), _) => Ok(best),
        (None, Some(missing)) => Err(missing),
        (None, None) => Ok((current, String::new())),
    };
    Measured { found, counts: [metrics.len(), lost], statuses: statuses.into() }
}

fn tolerance(spec: &Value) -> Tolerance {
    let of = |direction: &str| {
        let given = hooks::quantity(&spec["behavior"][direction]["tolerance"]);
        given.map_or(TOLERANCE, |nanos| millis(nanos) as f64 / 1000.0)
    };
    (of("scaleDown"), of("scaleUp"))
}

/// Returns the proposal of one metric and its name in messages.
fn propose(
    namespace: &str,
    metric: &Value,
    current: i64,
    pods: &Pods,
    tolerance: Tolerance,
) -> Result<(Proposal, String), Missing> {
    let (source, words) = match text(metric, "/type") {
        "Resource" => ("resource", "resource"),
        "ContainerResource" => ("containerResource", "container resource"),
        _ => return Err(Missing::of_others(namespace, metric)),
    };
    let (resource, goal) = (text(&metric[source], "/name"), &metric[source]["target"]);
    let container = metric[source]["container"].as_str();
    let target = match goal["averageUtilization"].as_i64() {
        Some(percent) => Target::Utilization(percent),
        None => Target::Average(hooks::quantity(&goal["averageValue"]).map_or(0, millis)),
    };
    let counted = pods.counted(resource, container);
    let proposal = counted.and_then(|pods| Ok(calculator::replicas(current, &pods, target, tolerance)?));
    let share = if matches!(target, Target::Utilization(_)) { " utilization (percentage of request)" } else { "" };
    match proposal {
        Ok(proposal) => Ok((proposal, format!("{resource} {words}{share}"))),
        Err(why) => Err(Missing::of_resource(resource, container, target, &why)),
    }
}

/// An entry of `status.currentMetrics`.
fn status(metric: &Value, proposal: &Proposal) -> Value {
    let mut current = json!({"averageValue": quantity(proposal.average)});
    if let Some(percent) = proposal.utilization {
        current["averageUtilization"] = percent.into();
    }
    let source = if metric["type"] == "Resource" { "resource" } else { "containerResource" };
    let mut shown = json!({"name": metric[source]["name"], "current": current});
    if let Some(container) = metric[source].get("container") {
        shown["container"] = container.clone();
    }
    json!({"type": metric["type"], source: shown})
}

/// Formats thousandths as a quantity.
fn quantity(millis: i64) -> String {
    let (mut number, mut suffixes) = (millis, ["m", "", "k", "M", "G", "T"].into_iter());
    let mut suffix = suffixes.next().unwrap_or_default();
    while number != 0 && number % 1000 == 0 {
        let Some(next) = suffixes.next() else { break };
        (number, suffix) = (number / 1000, next);
    }
    if number == 0 { "0".to_owned() } else { format!("{number}{suffix}") }
}

impl Missing {
    fn of_resource(resource: &str, container: Option<&str>, target: Target, why: &str) -> Self {
        let what = if matches!(target, Target::Utilization(_)) { "utilization" } else { "usage" };
        let why = format!("failed to get {resource} {what}: {why}");
        match container {
            Some(container) => Self {
                reason: "FailedGetContainerResourceMetric",
                what: format!("failed to get {container} container metric value"),
                why,
            },
            None => Self {
                reason: "FailedGetResourceMetric",
                what: format!("failed to get {resource} resource metric value"),
                why,
            },
        }
    }

    fn of_others(namespace: &str, metric: &Value) -> Self {
        let named = |source: &str| text(metric, &format!("/{source}/metric/name")).to_owned();
        let custom =
            "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
        match text(metric, "/type") {
            "Pods" => Self {
                reason: "FailedGetPodsMetric",
                what: "failed to get pods metric value".to_owned(),
                why: format!("unable to get metric {}: {custom}", named("pods")),
            },
            "Object" => {
                let about = &metric["object"]["describedObject"];
                let (kind, name) = (text(about, "/kind"), text(about, "/name"));
                Self {
                    reason: "FailedGetObjectMetric",
                    what: "failed to get object metric value".to_owned(),
                    why: format!("unable to get metric {}: {kind} on {namespace} {name}/{custom}", named("object")),
                }
            }
            _ => {
                let name = named("external");
                Self {
                    reason: "FailedGetExternalMetric",
                    what: format!("failed to get {name} external metric value: failed to get external metric {name}"),
                    why: format!(
                        "unable to get external metric {namespace}/{name}/nil: unable to fetch metrics from external metrics API: the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_are_as_short_as_quantities_are() {
        let all = [0, 9, 1000, 1500, 2_000_000, 52_428_800_000].map(quantity);
        assert_eq!(all, ["0", "9m", "1", "1500m", "2k", "52428800"]);
    }

    #[test]
    fn a_pod_without_a_request_is_reported() {
        let container = |name: &str, cpu: Value| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let pod = |containers: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": containers}});
        let two = pod(json!([container("a", json!("100m")), container("b", json!(1))]));
        assert_eq!(request(&two, "cpu", |_| true), Ok(1100));
        assert_eq!(request(&two, "cpu", |name| name == "a"), Ok(100));
        let none = pod(json!([container("a", Value::Null)]));
        assert_eq!(request(&none, "cpu", |_| true).unwrap_err(), "missing request for cpu in container a of Pod p");
    }
}
