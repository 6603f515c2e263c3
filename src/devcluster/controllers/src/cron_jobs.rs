//! CronJobs: creates a Job at each scheduled time and limits the history.
//!
//! Invariant: a scheduled time creates one Job, because the Job's name contains the scheduled minute.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use super::cron_schedule::Schedule;
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{conditions, controller_reference, is_terminating, is_true, text};
use devcluster_apiserver::server::stamp;
use devcluster_apiserver::store::Stored;
use devcluster_apiserver::verbs::delete::Propagation;

const CRON_JOBS: &str = "cronjobs.batch";
const JOBS: &str = "jobs.batch";
const SOURCE: &str = "cronjob-controller";
/// Delay after the scheduled time; tolerates clock skew.
const DELTA: Duration = Duration::from_millis(100);

/// The controller of CronJobs.
pub(super) struct CronJobs;

impl Controller for CronJobs {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        match &*event.storage {
            CRON_JOBS if event.change() != Change::Deleted => queue.add(Subject::of(event)),
            JOBS => {
                let owner = event.latest().and_then(Stored::controller);
                if let Some(owner) = owner.filter(|owner| owner.kind == "CronJob") {
                    queue.add(Subject::new(CRON_JOBS, event.key.namespace(), &owner.name));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(cron) = client.get(subject) else { return };
        let jobs = client.controlled(JOBS, subject.key.namespace(), &cron);
        let mut status = follow(client, &cron, &jobs);
        if !is_terminating(&cron) {
            let fired = client.server().faults().take_fired(subject.key.namespace(), subject.key.name());
            let due = if fired { Some(client.now()) } else { due(client, &cron, &status, subject, queue) };
            if let Some(time) = due {
                start(client, &cron, &mut status, time, fired);
            }
            forget(client, &cron, &jobs);
        }
        client.set_status(CONTROLLER, subject, &cron, status);
    }
}

/// Computes the status from the CronJob's Jobs.
fn follow(client: &Client, cron: &Value, jobs: &[Arc<Value>]) -> Value {
    let mut status = cron["status"].as_object().cloned().unwrap_or_default();
    let mut active = cron["status"]["active"].as_array().cloned().unwrap_or_default();
    let mut last = text(cron, "/status/lastSuccessfulTime").to_owned();
    for job in jobs.iter().filter(|job| hooks::job_finished(job)) {
        let name = text(job, "/metadata/name");
        if active.iter().any(|listed| listed["uid"] == job["metadata"]["uid"]) {
            let how = if is_true(job, "Complete") { "Complete" } else { "Failed" };
            let message = format!("Saw completed job: {name}, condition: {how}");
            client.report(cron, SOURCE, "Normal", "SawCompletedJob", &message);
        }
        active.retain(|listed| listed["uid"] != job["metadata"]["uid"]);
        let completed = text(job, "/status/completionTime");
        if is_true(job, "Complete") && completed > last.as_str() {
            completed.clone_into(&mut last);
        }
    }
    active.retain(|listed| {
        let lives = jobs.iter().any(|job| job["metadata"]["uid"] == listed["uid"]);
        if !lives {
            let message = format!("Active job went missing: {}", text(listed, "/name"));
            client.report(cron, SOURCE, "Normal", "MissingJob", &message);
        }
        lives
    });
    status.remove("active");
    if !active.is_empty() {
        status.insert("active".to_owned(), active.into());
    }
    if !last.is_empty() {
        status.insert("lastSuccessfulTime".to_owned(), last.into());
    }
    Value::Object(status)
}

/// Returns the scheduled time of a Job to create now. Requeues the CronJob for the next time.
fn due(client: &Client, cron: &Value, status: &Value, subject: &Subject, queue: &mut Queue<'_>) -> Option<Timestamp> {
    let spec = &cron["spec"];
    if spec["suspend"] == true {
        return None;
    }
    let zone = match spec["timeZone"].as_str() {
        Some(name) => TimeZone::get(name).ok()?,
        None => TimeZone::UTC,
    };
    let schedule = Schedule::parse(text(spec, "/schedule"), zone)?;
    let now = client.now();
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let since = time(text(status, "/lastScheduleTime")).or_else(|| time(text(cron, "/metadata/creationTimestamp")))?;
    let last = schedule.last(since, now);
    if let Some(next) = schedule.next(last.unwrap_or(since)) {
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        queue.add_after(subject.clone(), wait + DELTA);
    }
    let due = last?;
    let deadline = spec["startingDeadlineSeconds"].as_i64();
    if deadline.is_some_and(|seconds| due.saturating_add(SignedDuration::from_secs(seconds)).is_ok_and(|end| end < now))
    {
        let message = format!("Missed scheduled time to start a job: {}", due.strftime("%a, %d %b %Y %H:%M:%S +0000"));
        client.report(cron, SOURCE, "Warning", "MissSchedule", &message);
        return None;
    }
    Some(due)
}

/// Creates the Job of a scheduled time unless it exists.
fn start(client: &Client, cron: &Value, status: &mut Value, time: Timestamp, fired: bool) {
    let (namespace, owner) = (text(cron, "/metadata/namespace"), text(cron, "/metadata/name"));
    let mut minute = time.as_second().div_euclid(60);
    let subject = |minute: i64| Subject::new(JOBS, namespace, &format!("{owner}-{minute}"));
    while fired && client.get(&subject(minute)).is_some() {
        minute += 1;
    }
    let mut active = status["active"].as_array().cloned().unwrap_or_default();
    let name = format!("{owner}-{minute}");
    if active.iter().any(|job| text(job, "/name") == name) {
        return;
    }
    match text(cron, "/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            client.report(cron, SOURCE, "Normal", "JobAlreadyActive", message);
            return;
        }
        "Replace" => {
            for listed in active.drain(..) {
                if let Some(job) = client.get(&Subject::new(JOBS, namespace, text(&listed, "/name"))) {
                    remove(client, cron, &job);
                }
            }
        }
        _ => {}
    }
    let mut job = json!({
        "metadata": {"name": name, "ownerReferences": [controller_reference(cron)]},
        "spec": cron["spec"]["jobTemplate"]["spec"],
    });
    for field in ["labels", "annotations"] {
        if let Some(given) = cron["spec"]["jobTemplate"]["metadata"].get(field) {
            job["metadata"][field] = given.clone();
        }
    }
    job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"] = stamp(time).into();
    match client.create(CONTROLLER, JOBS, namespace, job) {
        Ok(job) => {
            client.report(cron, SOURCE, "Normal", "SuccessfulCreate", &format!("Created job {name}"));
            active.push(json!({
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "namespace": namespace,
                "resourceVersion": job["metadata"]["resourceVersion"], "uid": job["metadata"]["uid"],
            }));
            status["lastScheduleTime"] = stamp(time).into();
        }
        Err(refusal) if refusal.reason == "AlreadyExists" => return,
        Err(refusal) => {
            let message = format!("Error creating job: {}", refusal.message);
            client.report(cron, SOURCE, "Warning", "FailedCreate", &message);
            return;
        }
    }
    status["active"] = active.into();
}

/// Deletes the oldest finished Jobs above the history limits.
fn forget(client: &Client, cron: &Value, jobs: &[Arc<Value>]) {
    for (condition, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
        let Some(limit) = cron["spec"][limit].as_u64().and_then(|limit| usize::try_from(limit).ok()) else { continue };
        let done = |job: &&Arc<Value>| {
            !is_terminating(job) && conditions(job).iter().any(|c| c["type"] == condition && c["status"] == "True")
        };
        let mut done: Vec<&Arc<Value>> = jobs.iter().filter(done).collect();
        done.sort_by_key(|job| (text(job, "/status/startTime").to_owned(), text(job, "/metadata/name").to_owned()));
        for job in done.iter().take(done.len().saturating_sub(limit)) {
            remove(client, cron, job);
        }
    }
}

fn remove(client: &Client, cron: &Value, job: &Value) {
    client.delete(&devcluster_apiserver::client::subject(JOBS, job), job, Some(Propagation::Background), None);
    let message = format!("Deleted job {}", text(job, "/metadata/name"));
    client.report(cron, SOURCE, "Normal", "SuccessfulDelete", &message);
}
