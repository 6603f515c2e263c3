//! Jobs: runs pods to completion and counts each pod once.
//!
//! A finished pod is listed in `uncountedTerminatedPods`, loses its finalizer, and is then counted. A Job finishes in
//! two steps: first the criterion (`SuccessCriteriaMet` or `FailureTarget`), then Complete or Failed when no pod is
//! left.
//!
//! Not here: indexed completion, pod failure policies and backoff between retries.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use super::replica_sets::{is_active, pod_from};
use devcluster_apiserver::client::{CONTROLLER, subject};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{
    conditions, count, finalizers_without, has_finalizer, is_terminating, is_true, text,
};
use devcluster_apiserver::status::Status;
use devcluster_apiserver::verbs::delete::Propagation;

const JOBS: &str = "jobs.batch";
const SOURCE: &str = "job-controller";
/// Delay before a retry after a pod was refused.
const AGAIN: Duration = Duration::from_secs(1);
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The controller of Jobs.
pub(super) struct Jobs;

impl Controller for Jobs {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            JOBS => queue.add(Subject::of(event)),
            "pods" => {
                let Some(pod) = event.latest() else { return };
                if let Some(owner) = pod.controller().filter(|owner| owner.kind == "Job") {
                    queue.add(Subject::new(JOBS, event.key.namespace(), &owner.name));
                } else if let Some(name) = pod.label(JOB_NAME)
                    && has_finalizer(&pod.value(), TRACKING)
                {
                    queue.add(Subject::new(JOBS, event.key.namespace(), name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let job = client.get(subject);
        release_foreign_pods(client, subject, job.as_deref());
        let Some(job) = job else { return };
        if is_terminating(&job) {
            return;
        }
        if hooks::job_finished(&job) {
            expire(client, subject, &job, queue);
            return;
        }
        let pods = client.controlled("pods", subject.key.namespace(), &job);
        let pods: Vec<&Value> = pods.iter().map(|pod| &**pod).collect();
        if let Some(left) = deadline(client, &job) {
            queue.add_after(subject.clone(), Duration::from_secs(u64::try_from(left).unwrap_or(0)));
        }
        let round = Round::of(&job, &pods);
        let next = round.status(client, &job);
        if !client.set_status(CONTROLLER, subject, &job, next) {
            return;
        }
        if let Some(job) = client.get(subject)
            && round.perform(client, subject, &job).is_err()
        {
            queue.add_after(subject.clone(), AGAIN);
        }
    }
}

/// Removes the tracking finalizer from pods of Jobs that are deleted or terminating.
fn release_foreign_pods(client: &Client, subject: &Subject, job: Option<&Value>) {
    if job.is_some_and(|job| !is_terminating(job)) {
        return;
    }
    let pods = client.pods_labelled(subject.key.namespace(), JOB_NAME, subject.key.name());
    for pod in pods.iter().filter(|pod| has_finalizer(pod, TRACKING)) {
        release(client, pod);
    }
}

fn release(client: &Client, pod: &Value) {
    let kept = finalizers_without(pod, TRACKING);
    client.merge(CONTROLLER, &subject("pods", pod), json!({"metadata": {"finalizers": kept}}));
}

/// Deletes a finished Job after its `ttlSecondsAfterFinished`.
fn expire(client: &Client, subject: &Subject, job: &Value, queue: &mut Queue<'_>) {
    let Some(ttl) = job["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let ends = conditions(job).iter().filter(|c| matches!(text(c, "/type"), "Complete" | "Failed"));
    let Some(end) = ends.filter_map(|c| text(c, "/lastTransitionTime").parse::<Timestamp>().ok()).max() else { return };
    let left = ttl + end.as_second() - client.now().as_second();
    if left <= 0 {
        client.delete(subject, job, Some(Propagation::Foreground), None);
    } else {
        queue.add_after(subject.clone(), Duration::from_secs(u64::try_from(left).unwrap_or(1)));
    }
}

/// Seconds until `activeDeadlineSeconds` is exceeded.
fn deadline(client: &Client, job: &Value) -> Option<i64> {
    let limit = job["spec"]["activeDeadlineSeconds"].as_i64()?;
    let start: Timestamp = text(job, "/status/startTime").parse().ok()?;
    Some((limit + start.as_second() - client.now().as_second()).max(0))
}

/// The observed state of a Job in one reconcile.
struct Round<'a> {
    active: Vec<&'a Value>,
    terminating: usize,
    /// Finished pods with the tracking finalizer.
    succeeded: Vec<&'a Value>,
    failed: Vec<&'a Value>,
    /// Whether `uncountedTerminatedPods` lists the finished pods, so that this reconcile counts them.
    listed: bool,
    suspended: bool,
}

impl<'a> Round<'a> {
    fn of(job: &Value, pods: &'a [&'a Value]) -> Self {
        let tracked = |pod: &&&Value| has_finalizer(pod, TRACKING);
        let succeeded: Vec<&Value> =
            pods.iter().filter(tracked).filter(|p| text(p, "/status/phase") == "Succeeded").copied().collect();
        let failed: Vec<&Value> = pods
            .iter()
            .filter(tracked)
            .filter(|p| {
                text(p, "/status/phase") == "Failed" || is_terminating(p) && text(p, "/status/phase") != "Succeeded"
            })
            .copied()
            .collect();
        let list = |pods: &[&Value]| -> Vec<Value> { pods.iter().map(|p| p["metadata"]["uid"].clone()).collect() };
        let known =
            |field: &str| job["status"]["uncountedTerminatedPods"][field].as_array().cloned().unwrap_or_default();
        Self {
            active: pods.iter().filter(|pod| is_active(pod)).copied().collect(),
            terminating: pods.iter().filter(|pod| is_terminating(pod)).count(),
            listed: list(&succeeded) == known("succeeded") && list(&failed) == known("failed"),
            succeeded,
            failed,
            suspended: job["spec"]["suspend"] == true,
        }
    }

    fn succeeded_in_all(&self, job: &Value) -> i64 {
        count(job, "/status/succeeded") + i64::try_from(self.succeeded.len()).unwrap_or(0)
    }

    fn failed_in_all(&self, job: &Value) -> i64 {
        count(job, "/status/failed") + i64::try_from(self.failed.len()).unwrap_or(0)
    }

    /// Returns the criterion that the Job met: type, reason, message.
    fn verdict(&self, client: &Client, job: &Value) -> Option<(&'static str, &'static str, &'static str)> {
        let done = self.succeeded_in_all(job);
        let complete = match job["spec"]["completions"].as_i64() {
            Some(wanted) => done >= wanted,
            None => done > 0 && self.active.is_empty(),
        };
        if complete {
            return Some(("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"));
        }
        if self.failed_in_all(job) > count(job, "/spec/backoffLimit") {
            return Some(("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if deadline(client, job) == Some(0) {
            return Some(("FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        None
    }

    fn status(&self, client: &Client, job: &Value) -> Value {
        let now = client.stamp();
        let mut list = conditions(job).to_vec();
        let mut status = json!({"terminating": self.terminating, "ready": 0, "uncountedTerminatedPods": {}});
        let was_suspended = is_true(job, "Suspended");
        if self.suspended {
            set(&mut list, "Suspended", "True", "JobSuspended", "Job suspended", &now);
        } else {
            if was_suspended {
                set(&mut list, "Suspended", "False", "JobResumed", "Job resumed", &now);
            }
            let start = &job["status"]["startTime"];
            status["startTime"] = if start.is_null() || was_suspended { now.clone() } else { start.clone() };
            let target = list.iter().find(|c| matches!(text(c, "/type"), "SuccessCriteriaMet" | "FailureTarget"));
            if target.is_none()
                && let Some((kind, reason, message)) = self.verdict(client, job)
            {
                set(&mut list, kind, "True", reason, message, &now);
            }
        }
        let mut counts = vec![("active", i64::try_from(self.active.len()).unwrap_or(0))];
        if self.listed {
            counts.push(("succeeded", self.succeeded_in_all(job)));
            counts.push(("failed", self.failed_in_all(job)));
            self.end(&mut list, &mut status, &now);
        } else {
            counts.push(("succeeded", count(job, "/status/succeeded")));
            counts.push(("failed", count(job, "/status/failed")));
            for (field, pods) in [("succeeded", &self.succeeded), ("failed", &self.failed)] {
                if !pods.is_empty() {
                    status["uncountedTerminatedPods"][field] =
                        pods.iter().map(|p| p["metadata"]["uid"].clone()).collect();
                }
            }
        }
        status["ready"] = self.active.iter().filter(|pod| is_true(pod, "Ready")).count().into();
        for (field, number) in counts.into_iter().filter(|(_, number)| *number > 0) {
            status[field] = number.into();
        }
        if !list.is_empty() {
            status["conditions"] = list.into();
        }
        status
    }

    /// Sets Complete or Failed once no pod is left.
    fn end(&self, list: &mut Vec<Value>, status: &mut Value, now: &Value) {
        if !self.active.is_empty() || self.terminating > 0 {
            return;
        }
        let target = list.iter().find(|c| matches!(text(c, "/type"), "SuccessCriteriaMet" | "FailureTarget")).cloned();
        let Some(target) = target else { return };
        let kind = if target["type"] == "SuccessCriteriaMet" { "Complete" } else { "Failed" };
        set(list, kind, "True", text(&target, "/reason"), text(&target, "/message"), now);
        if kind == "Complete" {
            status["completionTime"] = now.clone();
        }
    }

    /// Acts on the status that was just written: releases counted pods, deletes spare ones, creates missing ones.
    fn perform(&self, client: &Client, subject: &Subject, job: &Value) -> Result<(), Status> {
        if self.listed {
            for pod in self.succeeded.iter().chain(&self.failed) {
                release(client, pod);
            }
        }
        if hooks::job_finished(job) {
            let end = conditions(job).iter().find(|c| matches!(text(c, "/type"), "Complete" | "Failed"));
            match end {
                Some(end) if end["type"] == "Complete" => {
                    client.report(job, SOURCE, "Normal", "Completed", "Job completed");
                }
                Some(end) => client.report(job, SOURCE, "Warning", text(end, "/reason"), text(end, "/message")),
                None => {}
            }
            return Ok(());
        }
        let ending = conditions(job).iter().any(|c| matches!(text(c, "/type"), "SuccessCriteriaMet" | "FailureTarget"));
        if self.suspended || ending {
            for pod in &self.active {
                if self.suspended {
                    // A pod that the controller stops itself does not count as failed (`deleteJobPods`).
                    release(client, pod);
                }
                client.delete(&devcluster_apiserver::client::subject("pods", pod), pod, None, None);
                let message = format!("Deleted pod: {}", text(pod, "/metadata/name"));
                client.report(job, SOURCE, "Normal", "SuccessfulDelete", &message);
            }
            return Ok(());
        }
        let mut wanted = count(job, "/spec/parallelism");
        if let Some(completions) = job["spec"]["completions"].as_i64() {
            wanted = wanted.min(completions - self.succeeded_in_all(job));
        }
        let missing = wanted - i64::try_from(self.active.len() + self.terminating).unwrap_or(0);
        for _ in 0..missing {
            let mut pod = pod_from(&job["spec"]["template"], job);
            pod["metadata"]["finalizers"] = json!([TRACKING]);
            match client.create(CONTROLLER, "pods", subject.key.namespace(), pod) {
                Ok(pod) => {
                    let message = format!("Created pod: {}", text(&pod, "/metadata/name"));
                    client.report(job, SOURCE, "Normal", "SuccessfulCreate", &message);
                }
                Err(status) => {
                    let message = format!("Error creating: {}", status.message);
                    client.report(job, SOURCE, "Warning", "FailedCreate", &message);
                    return Err(status);
                }
            }
        }
        Ok(())
    }
}

fn set(list: &mut Vec<Value>, kind: &str, status: &str, reason: &str, message: &str, now: &Value) {
    if list.iter().any(|c| c["type"] == kind && c["status"] == status) {
        return;
    }
    list.retain(|c| c["type"] != kind);
    list.push(json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    }));
}
