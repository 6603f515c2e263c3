//! The status of an autoscaler and its Events.

use devcluster_apiserver::client::{CONTROLLER, Client, Subject};
use devcluster_apiserver::object::{conditions, count};
use devcluster_apiserver::store::Key;
use serde_json::{Value, json};

use super::limits::Limited;
use super::metrics::Missing;

pub(super) const SOURCE: &str = "horizontal-pod-autoscaler";

/// The new status of an autoscaler and the Events to emit.
pub(super) struct Outcome {
    status: Value,
    now: Value,
    events: Vec<(&'static str, String)>,
}

impl Outcome {
    pub(super) fn of(autoscaler: &Value, now: &Value) -> Self {
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

    pub(super) fn lost(&mut self, why: &str) {
        let message = format!("the HPA controller was unable to get the target's current scale: {why}");
        self.condition("AbleToScale", "False", "FailedGetScale", &message);
        self.events.push(("FailedGetScale", why.to_owned()));
    }

    pub(super) fn found(&mut self) {
        let message = "the HPA controller was able to get the target's current scale";
        self.condition("AbleToScale", "True", "SucceededGetScale", message);
    }

    pub(super) fn disabled(&mut self) {
        let message = "scaling is disabled since the replica count of the target is zero";
        self.condition("ScalingActive", "False", "ScalingDisabled", message);
        self.status["currentMetrics"] = Value::Null;
        self.replicas(0, 0);
    }

    pub(super) fn rescaled(&mut self, from: i64, to: i64) {
        let message = format!("the HPA controller was able to update the target scale to {to}");
        self.condition("AbleToScale", "True", "SucceededRescale", &message);
        self.status["lastScaleTime"] = self.now.clone();
        self.replicas(from, to);
    }

    /// Records that metrics were not evaluated: the target is outside its bounds.
    pub(super) fn unmetered(&mut self) {
        self.status["currentMetrics"] = Value::Null;
    }

    /// Records that the target's Scale has no selector.
    pub(super) fn unselected(&mut self, current: i64) {
        self.keep(current);
        let message = "the HPA target's scale is missing a selector";
        self.condition("ScalingActive", "False", "InvalidSelector", message);
        self.status["currentMetrics"] = Value::Null;
        self.events.push(("SelectorRequired", "selector is required".to_owned()));
        self.events.push(("FailedComputeMetricsReplicas", "selector is required".to_owned()));
    }

    /// Records that several autoscalers select the same pods.
    pub(super) fn ambiguous<'k>(&mut self, current: i64, selector: &str, all: impl Iterator<Item = &'k Key>) {
        self.keep(current);
        let mut names: Vec<_> = all.map(|key| format!("{}/{}", key.namespace(), key.name())).collect();
        names.sort_unstable();
        let names = names.join(" ");
        let message = format!("pods by selector {selector} are controlled by multiple HPAs: [{names}]");
        self.condition("ScalingActive", "False", "AmbiguousSelector", &message);
        self.status["currentMetrics"] = Value::Null;
        self.events.push(("AmbiguousSelector", message.clone()));
        self.events.push(("FailedComputeMetricsReplicas", message));
    }

    /// Records an unavailable metric. `all` is the number of metrics, `lost` the number of unavailable metrics.
    pub(super) fn unmeasured(&mut self, current: i64, missing: &Missing, statuses: Value, [all, lost]: [usize; 2]) {
        self.keep(current);
        self.status["currentMetrics"] = statuses;
        let message = format!("the HPA was unable to compute the replica count: {}", missing.why);
        self.condition("ScalingActive", "False", missing.reason, &message);
        self.events.push((missing.reason, missing.why.clone()));
        let message =
            format!("invalid metrics ({lost} invalid out of {all}), first error is: {}: {}", missing.what, missing.why);
        self.events.push(("FailedComputeMetricsReplicas", message));
    }

    /// Records a recommendation and its limits.
    pub(super) fn measured(&mut self, current: i64, metric: &str, statuses: Value, limited: &Limited) {
        let message = format!("the HPA was able to successfully calculate a replica count from {metric}");
        self.condition("ScalingActive", "True", "ValidMetricFound", &message);
        self.condition("AbleToScale", "True", limited.able.0, limited.able.1);
        let is_limited = if limited.is_cut { "True" } else { "False" };
        self.condition("ScalingLimited", is_limited, limited.bound.0, limited.bound.1);
        self.replicas(current, limited.replicas);
        self.status["currentMetrics"] = statuses;
    }

    fn keep(&mut self, current: i64) {
        let desired = count(&self.status, "/desiredReplicas");
        self.replicas(current, desired);
    }

    /// Writes the status and its Events if the status changed.
    pub(super) fn emit(self, client: &Client, subject: &Subject, autoscaler: &Value) {
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
