//! HorizontalPodAutoscalers: targets are kept within their bounds; there are no metrics to scale by.
//!
//! Deliberately absent: metrics, and with them every scaling inside the bounds.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{conditions, count, text};
use devcluster_apiserver::store::Key;
use devcluster_apiserver::verbs::scale;

const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
const SOURCE: &str = "horizontal-pod-autoscaler";
/// When a target is looked for again whose kind is not served.
const AGAIN: Duration = Duration::from_secs(5);

/// Namespace and name of a target; its kind is seen when it is looked at.
type Target = (String, String);

/// The controller of HorizontalPodAutoscalers.
#[derive(Default)]
pub(super) struct Autoscalers {
    /// The target of each autoscaler, and the autoscalers of each target.
    targets: HashMap<Key, Target>,
    autoscalers: HashMap<Target, BTreeSet<Key>>,
}

impl Autoscalers {
    /// Remembers what an autoscaler scales, or that it is gone.
    fn learn(&mut self, key: &Key, autoscaler: Option<&Value>) {
        if let Some(target) = self.targets.remove(key)
            && let Some(keys) = self.autoscalers.get_mut(&target)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.autoscalers.remove(&target);
            }
        }
        if let Some(autoscaler) = autoscaler {
            let target = (key.namespace().to_owned(), text(autoscaler, "/spec/scaleTargetRef/name").to_owned());
            self.autoscalers.entry(target.clone()).or_default().insert(key.clone());
            self.targets.insert(key.clone(), target);
        }
    }
}

impl Controller for Autoscalers {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if &*event.storage == AUTOSCALERS {
            self.learn(&event.key, event.new.as_ref().map(|stored| stored.value()).as_deref());
            if event.change() != Change::Deleted {
                queue.add(Subject::of(event));
            }
        } else if !self.autoscalers.is_empty() && &*event.storage != "events" {
            let target = (event.key.namespace().to_owned(), event.key.name().to_owned());
            for key in self.autoscalers.get(&target).into_iter().flatten() {
                queue.add(Subject { storage: AUTOSCALERS.into(), key: key.clone() });
            }
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(autoscaler) = client.get(subject) else { return };
        let target = match target(client, subject.key.namespace(), &autoscaler["spec"]["scaleTargetRef"]) {
            Ok(target) => target,
            Err(why) => {
                queue.add_after(subject.clone(), AGAIN);
                let mut outcome = Outcome::of(&autoscaler, &client.stamp());
                outcome.lost(&why);
                outcome.emit(client, subject, &autoscaler);
                return;
            }
        };
        let mut outcome = Outcome::of(&autoscaler, &client.stamp());
        outcome.found();
        let current = count(&target.scale, "/spec/replicas");
        match wanted(&autoscaler["spec"], current) {
            Wanted::Nothing => outcome.disabled(),
            Wanted::Scaled(replicas, why) => {
                let mut scale = target.scale.clone();
                scale["spec"]["replicas"] = replicas.into();
                if !client.update_on(CONTROLLER, &target.subject, "scale", scale) {
                    // Somebody else wrote first, which brings the next look.
                    return;
                }
                let message = format!("New size: {replicas}; reason: {why}");
                client.report(&autoscaler, SOURCE, "Normal", "SuccessfulRescale", &message);
                outcome.rescaled(current, replicas);
            }
            Wanted::Measured => {
                let metrics = &autoscaler["spec"]["metrics"];
                outcome.unmeasured(subject.key.namespace(), metrics, current, &target.scale);
            }
        }
        outcome.emit(client, subject, &autoscaler);
    }
}

/// The target of an autoscaler.
struct Found {
    subject: Subject,
    scale: Value,
}

/// The target of an autoscaler; why there is none.
fn target(client: &Client, namespace: &str, reference: &Value) -> Result<Found, String> {
    let (version, name) = (text(reference, "/apiVersion"), text(reference, "/name"));
    let (wanted, group) = (text(reference, "/kind"), version.split_once('/').map_or("", |(group, _)| group));
    let served = client.kinds().into_iter().find(|kind| kind.kind == wanted && kind.group == group);
    let kind = served.ok_or_else(|| format!("no matches for kind {wanted:?} in group {group:?}"))?;
    if kind.subresource("scale").is_none() {
        return Err("the server could not find the requested resource".to_owned());
    }
    let subject = Subject::new(&kind.storage, namespace, name);
    let object = client.get(&subject).ok_or_else(|| format!("{} {name:?} not found", kind.group_resource()))?;
    let scale = scale::of_counted(&kind, &object).map_err(|status| status.message)?;
    Ok(Found { subject, scale })
}

/// The decision about the replicas.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// The target was scaled to zero by hand.
    Nothing,
    /// So many, for this reason.
    Scaled(i64, &'static str),
    /// The recommendation of the metrics.
    Measured,
}

fn wanted(spec: &Value, current: i64) -> Wanted {
    let (least, most) = (spec["minReplicas"].as_i64().unwrap_or(1), count(spec, "/maxReplicas"));
    match current {
        0 => Wanted::Nothing,
        _ if current > most => Wanted::Scaled(most, "Current number of replicas above Spec.MaxReplicas"),
        _ if current < least => Wanted::Scaled(least, "Current number of replicas below Spec.MinReplicas"),
        _ => Wanted::Measured,
    }
}

/// The status that an autoscaler gets, and the events that go with it.
struct Outcome {
    status: Value,
    now: Value,
    events: Vec<(&'static str, String)>,
}

impl Outcome {
    fn of(autoscaler: &Value, now: &Value) -> Self {
        let mut status = json!({"currentMetrics": null, "conditions": conditions(autoscaler)});
        for field in ["lastScaleTime", "currentReplicas", "desiredReplicas", "currentMetrics"] {
            if let Some(value) = autoscaler["status"].get(field) {
                status[field] = value.clone();
            }
        }
        Self { status, now: now.clone(), events: Vec::new() }
    }

    fn condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let Some(list) = self.status["conditions"].as_array_mut() else { return };
        let place = list.iter().position(|c| c["type"] == kind);
        let since = place.map(|place| &list[place]).filter(|c| c["status"] == status);
        let since = since.map_or(&self.now, |c| &c["lastTransitionTime"]).clone();
        let condition = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        });
        match place {
            Some(place) => list[place] = condition,
            None => list.push(condition),
        }
    }

    fn replicas(&mut self, current: i64, desired: i64) {
        self.status["desiredReplicas"] = desired.into();
        self.status["currentReplicas"] = current.into();
        if current == 0
            && let Some(status) = self.status.as_object_mut()
        {
            status.remove("currentReplicas");
        }
    }

    fn lost(&mut self, why: &str) {
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.condition("AbleToScale", "False", "FailedGetScale", &message);
        self.events.push(("FailedGetScale", why.to_owned()));
    }

    fn found(&mut self) {
        let message = "the HPA controller was able to get the target's current scale";
        self.condition("AbleToScale", "True", "SucceededGetScale", message);
    }

    fn disabled(&mut self) {
        let message = "scaling is disabled since the replica count of the target is zero";
        self.condition("ScalingActive", "False", "ScalingDisabled", message);
        self.status["currentMetrics"] = Value::Null;
        self.replicas(0, 0);
    }

    fn rescaled(&mut self, from: i64, to: i64) {
        let message = format!("the HPA controller was able to update the target scale to {to}");
        self.condition("AbleToScale", "True", "SucceededRescale", &message);
        self.status["currentMetrics"] = Value::Null;
        self.status["lastScaleTime"] = self.now.clone();
        self.replicas(from, to);
    }

    /// No metric can be had.
    fn unmeasured(&mut self, namespace: &str, metrics: &Value, current: i64, scale: &Value) {
        let desired = count(&self.status, "/desiredReplicas");
        self.replicas(current, desired);
        if text(scale, "/status/selector").is_empty() {
            let message = "the HPA target's scale is missing a selector";
            self.condition("ScalingActive", "False", "InvalidSelector", message);
            self.status["currentMetrics"] = Value::Null;
            self.events.push(("SelectorRequired", "selector is required".to_owned()));
            self.events.push(("FailedComputeMetricsReplicas", "selector is required".to_owned()));
            return;
        }
        let metrics = metrics.as_array().map_or(&[][..], Vec::as_slice);
        self.status["currentMetrics"] = metrics.iter().map(|_| json!({"type": ""})).collect();
        let Some(missing) = metrics.first().map(|metric| Missing::of(namespace, metric)) else { return };
        let message = format!("the HPA was unable to compute the replica count: {}", missing.why);
        self.condition("ScalingActive", "False", missing.reason, &message);
        self.events.push((missing.reason, missing.why.clone()));
        let all = metrics.len();
        let message =
            format!("invalid metrics ({all} invalid out of {all}), first error is: {}: {}", missing.what, missing.why);
        self.events.push(("FailedComputeMetricsReplicas", message));
    }

    /// Writes the status and what goes with it, when it says something new.
    fn emit(self, client: &Client, subject: &Subject, autoscaler: &Value) {
        let mut known = autoscaler["status"].clone();
        if let Some(known) = known.as_object_mut() {
            known.entry("conditions").or_insert_with(|| json!([]));
        }
        if known == self.status {
            return;
        }
        for (reason, message) in &self.events {
            client.report(autoscaler, SOURCE, "Warning", reason, message);
        }
        client.set_status(CONTROLLER, subject, autoscaler, self.status);
    }
}

/// A metric that cannot be had.
struct Missing {
    reason: &'static str,
    /// The failure.
    what: String,
    why: String,
}

impl Missing {
    fn of(namespace: &str, metric: &Value) -> Self {
        let resource = |source: &str| {
            let (name, target) = (text(metric, &format!("/{source}/name")), &metric[source]["target"]);
            let what = if target["averageValue"].is_null() { "utilization" } else { "usage" };
            format!(
                "failed to get {name} {what}: unable to get metrics for resource {name}: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
            )
        };
        let named = |source: &str| text(metric, &format!("/{source}/metric/name")).to_owned();
        let custom =
            "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
        match text(metric, "/type") {
            "ContainerResource" => Self {
                reason: "FailedGetContainerResourceMetric",
                what: format!("failed to get {} container metric value", text(metric, "/containerResource/container")),
                why: resource("containerResource"),
            },
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
            "External" => {
                let name = named("external");
                Self {
                    reason: "FailedGetExternalMetric",
                    what: format!("failed to get {name} external metric value: failed to get external metric {name}"),
                    why: format!(
                        "unable to get external metric {namespace}/{name}/nil: unable to fetch metrics from external metrics API: the server could not find the requested resource (get {name}.external.metrics.k8s.io)"
                    ),
                }
            }
            _ => Self {
                reason: "FailedGetResourceMetric",
                what: format!("failed to get {} resource metric value", text(metric, "/resource/name")),
                why: resource("resource"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_targets_within_their_bounds() {
        let spec = json!({"minReplicas": 2, "maxReplicas": 4});
        assert_eq!(wanted(&spec, 0), Wanted::Nothing);
        assert!(matches!(wanted(&spec, 1), Wanted::Scaled(2, _)));
        assert_eq!(wanted(&spec, 2), Wanted::Measured);
        assert_eq!(wanted(&spec, 4), Wanted::Measured);
        assert!(matches!(wanted(&spec, 9), Wanted::Scaled(4, _)));
        assert_eq!(wanted(&json!({"maxReplicas": 4}), 1), Wanted::Measured);
    }
}
