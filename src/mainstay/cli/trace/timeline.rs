//! The time line of a Function: its newest build and its newest serving pod, from their objects and Events.
//!
//! Invariant: the time line uses only data in the cluster. Times in objects have a precision of one second. Invariant:
//! each object is reduced to the fields of its moments as soon as it was read, because others may make it large.
//!
//! Not here: earlier builds, because their pods are gone.

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::moment_fields::{applied, condition, controller, reduced, reduced_event, statuses, text, time};
use super::origin::Trace;
use crate::cli::Error;
use mainstay_api::names;
use mainstay_cluster::{Cluster, FieldSelector, Selection};
use mainstay_object::printable;

/// The API group and the kind of objects with a time line.
const FUNCTION: (&str, &str) = ("serverless.kyma-project.io", "Function");
/// Maximum number of objects to read per kind.
const MOST: usize = 200;
/// Events of a pod for the time line.
const PULLS: [&str; 3] = ["Pulling", "Pulled", "Failed"];

/// A moment of a time line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) what: String,
}

/// The objects that a time line is made of.
#[derive(Debug, Default)]
struct Parts {
    function: Value,
    jobs: Vec<Value>,
    pods: Vec<Value>,
    deployments: Vec<Value>,
    /// The Events of the newest pods.
    events: Vec<Value>,
}

/// Reads the time line of a trace's object. The time line is empty if the object is not a Function.
pub(super) async fn of(cluster: &Cluster, trace: &mut Trace) -> Result<Vec<Moment>, Error> {
    let (asked, live) = (&trace.asked, trace.live.as_ref());
    let uid = live.and_then(|live| live.pointer("/metadata/uid")?.as_str());
    let (Some(uid), Some(namespace)) = (uid, asked.namespace.as_deref().filter(|_| asked.is(FUNCTION.0, FUNCTION.1)))
    else {
        return Ok(Vec::new());
    };
    let selection = || Selection::labelled(names::FUNCTION_UID, uid).within(namespace);
    let mut parts = Parts { function: live.map(reduced).unwrap_or_default(), ..Parts::default() };
    let mut notes = Vec::new();
    // The newest Job is known before its pod is sought.
    for (version, kind) in [("batch/v1", "Job"), ("v1", "Pod"), ("apps/v1", "Deployment")] {
        each(cluster, (version, kind), selection(), &mut notes, |object| parts.add(kind, &object)).await?;
    }
    let uids: Vec<String> = [parts.build_pod(), parts.serving_pod()]
        .into_iter()
        .flatten()
        .map(|pod| text(pod, "/metadata/uid").to_owned())
        .collect();
    for uid in uids {
        let of_pod = Selection::by_fields(FieldSelector::equals("involvedObject.uid", &uid)).within(namespace);
        each(cluster, ("v1", "Event"), of_pod, &mut notes, |event| parts.add_event(&event)).await?;
    }
    trace.notes.extend(notes);
    Ok(parts.moments())
}

/// Passes the objects of a list to `keep`, one after the other.
async fn each(
    cluster: &Cluster,
    (version, kind): (&str, &str),
    selection: Selection,
    notes: &mut Vec<String>,
    mut keep: impl FnMut(Value),
) -> Result<(), Error> {
    let kind = cluster.kind(version, kind).await?.ok_or_else(|| Error::UnknownKind(kind.to_owned()))?;
    let mut found = cluster.list(&kind, selection).take(MOST);
    loop {
        match found.try_next().await {
            Ok(Some(object)) => keep(object),
            Ok(None) => return Ok(()),
            Err(error) if error.is_forbidden() => {
                notes.push(format!("you may not list {}, so the timeline does not show them", kind.resource));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Adds an object, or replaces the same one by it if it is newer.
fn keep_newest(all: &mut Vec<Value>, object: Value, is_same: impl Fn(&Value) -> bool) {
    let created = |object: &Value| time(object, "/metadata/creationTimestamp");
    match all.iter().position(is_same) {
        None => all.push(object),
        Some(at) if created(&all[at]) <= created(&object) => all[at] = object,
        Some(_) => {}
    }
}

impl Parts {
    /// Keeps an object of this kind if it is the newest one of its role.
    fn add(&mut self, kind: &str, object: &Value) {
        let object = reduced(object);
        match kind {
            "Job" => keep_newest(&mut self.jobs, object, |_| true),
            "Deployment" => keep_newest(&mut self.deployments, object, |_| true),
            _ => self.add_pod(object),
        }
    }

    /// Keeps a pod if it is the newest one of the newest Job, or of the ReplicaSets.
    fn add_pod(&mut self, pod: Value) {
        let job = self.job().map(|job| text(job, "/metadata/uid"));
        let role = match controller(&pod) {
            Some(("Job", uid)) if Some(uid) == job => "Job",
            Some(("ReplicaSet", _)) => "ReplicaSet",
            _ => return,
        };
        keep_newest(&mut self.pods, pod, |other| controller(other).is_some_and(|(kind, _)| kind == role));
    }

    fn add_event(&mut self, event: &Value) {
        if PULLS.contains(&text(event, "/reason")) {
            self.events.push(reduced_event(event));
        }
    }

    fn job(&self) -> Option<&Value> {
        newest(self.jobs.iter())
    }

    fn build_pod(&self) -> Option<&Value> {
        let job = text(self.job()?, "/metadata/uid");
        newest(self.pods.iter().filter(|pod| controller(pod) == Some(("Job", job))))
    }

    fn serving_pod(&self) -> Option<&Value> {
        newest(self.pods.iter().filter(|pod| matches!(controller(pod), Some(("ReplicaSet", _)))))
    }

    /// Returns the moments in order of time.
    fn moments(&self) -> Vec<Moment> {
        let mut all = Vec::new();
        let mut add = |at: Option<Timestamp>, what: String| all.extend(at.map(|at| Moment { at, what }));
        if let Some(job) = self.job() {
            let name = text(job, "/metadata/name");
            add(time(job, "/metadata/creationTimestamp"), format!("Job {name} created"));
            for (kind, what) in [("Suspended", "suspended"), ("Failed", "failed")] {
                add(condition(job, kind), format!("Job {name} {what}"));
            }
            add(time(job, "/status/completionTime"), format!("Job {name} complete"));
        }
        if let Some(deployment) = newest(self.deployments.iter()) {
            let name = text(deployment, "/metadata/name");
            add(time(deployment, "/metadata/creationTimestamp"), format!("Deployment {name} created"));
            add(applied(deployment), format!("Deployment {name} written"));
        }
        for (role, pod) in [("build", self.build_pod()), ("serving", self.serving_pod())] {
            let Some(pod) = pod else { continue };
            add(time(pod, "/metadata/creationTimestamp"), format!("{role} pod created"));
            add(condition(pod, "PodScheduled"), format!("{role} pod scheduled"));
            for status in statuses(pod) {
                let name = text(status, "/name");
                let started = ["/state/terminated/startedAt", "/state/running/startedAt"];
                let started = started.into_iter().find_map(|path| time(status, path));
                add(started, format!("{role} container {name} started"));
                let code = &status["state"]["terminated"]["exitCode"];
                let ended = time(status, "/state/terminated/finishedAt");
                let pushed = if name == "push" && *code == 0 { ": image pushed" } else { "" };
                add(ended, format!("{role} container {name} ended with exit code {code}{pushed}"));
            }
            let ready = condition(pod, "Ready").filter(|_| role == "serving");
            add(ready, "serving pod ready".to_owned());
            let uid = text(pod, "/metadata/uid");
            let of_pod = self.events.iter().filter(|event| text(event, "/involvedObject/uid") == uid);
            for event in of_pod.filter(|event| PULLS.contains(&text(event, "/reason"))) {
                let times = ["/eventTime", "/firstTimestamp", "/lastTimestamp"];
                let message = text(event, "/message");
                add(times.into_iter().find_map(|path| time(event, path)), format!("{role} pod: {message}"));
            }
        }
        let running = condition(&self.function, "Running");
        add(running, "Function running".to_owned());
        all.sort_by_key(|moment| moment.at);
        // Earlier moments belong to an older build.
        let began = self.job().and_then(|job| time(job, "/metadata/creationTimestamp"));
        all.retain(|moment| began.is_none_or(|began| moment.at >= began));
        all.dedup();
        all
    }
}

/// Formats the time line for people.
pub(super) fn lines(moments: &[Moment]) -> String {
    let Some(first) = moments.first() else { return String::new() };
    let mut text = format!("  timeline    seconds since {:.0}\n", first.at);
    for moment in moments {
        text.push_str(&format!("    {:>+7.1} {}\n", seconds(first, moment), printable(&moment.what)));
    }
    text
}

/// Returns the time line for programs.
pub(super) fn facts(moments: &[Moment]) -> Value {
    let fact = |moment: &Moment| {
        let seconds = moments.first().map(|first| seconds(first, moment));
        json!({ "at": moment.at, "seconds": seconds, "what": moment.what })
    };
    moments.iter().map(fact).collect()
}

fn seconds(first: &Moment, moment: &Moment) -> f64 {
    moment.at.duration_since(first.at).as_secs_f64()
}

fn newest<'a>(all: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    all.max_by_key(|object| time(object, "/metadata/creationTimestamp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u32) -> String {
        format!("2026-01-01T00:00:{second:02}Z")
    }

    fn pod(uid: &str, owner: (&str, &str), created: u32, status: Value) -> Value {
        let owner = json!({"kind": owner.0, "uid": owner.1, "controller": true});
        let metadata = json!({"uid": uid, "creationTimestamp": at(created), "ownerReferences": [owner]});
        json!({"metadata": metadata, "status": status})
    }

    fn true_since(kind: &str, second: u32) -> Value {
        json!({"type": kind, "status": "True", "lastTransitionTime": at(second)})
    }

    fn ended(name: &str, from: u32, to: u32) -> Value {
        json!({"name": name, "state": {"terminated": {"startedAt": at(from), "finishedAt": at(to), "exitCode": 0}}})
    }

    #[test]
    fn a_time_line_goes_from_the_newest_job_to_the_function_that_runs() {
        let build = json!({
            "conditions": [true_since("PodScheduled", 10)],
            "initContainerStatuses": [ended("fetch", 11, 11), ended("install", 12, 13)],
            "containerStatuses": [ended("push", 14, 15)],
        });
        let serving = json!({
            "conditions": [true_since("PodScheduled", 16), true_since("Ready", 19)],
            "containerStatuses": [{"name": "function", "state": {"running": {"startedAt": at(17)}}}],
        });
        let job = |name: &str, created: u32, status: Value| json!({"metadata": {"name": name, "uid": name, "creationTimestamp": at(created)}, "status": status});
        let pulled = json!({
            "involvedObject": {"uid": "s"}, "reason": "Pulled", "message": "Successfully pulled image in 211ms",
            "firstTimestamp": at(16),
        });
        let parts = Parts {
            function: json!({"status": {"conditions": [true_since("Running", 20)]}}),
            jobs: vec![
                job("old", 1, json!({"completionTime": at(5)})),
                job("new", 10, json!({"completionTime": at(18)})),
            ],
            pods: vec![
                pod("o", ("Job", "old"), 1, json!({"containerStatuses": [ended("push", 2, 3)]})),
                pod("b", ("Job", "new"), 10, build),
                pod("s", ("ReplicaSet", "r"), 15, serving),
            ],
            deployments: vec![json!({
                "metadata": {"name": "web", "creationTimestamp": at(4), "managedFields": [{"manager": "mainstay", "time": at(15)}]},
            })],
            events: vec![pulled],
        };
        let expected = [
            "seconds since 2026-01-01T00:00:10Z",
            "+0.0 Job new created",
            "+0.0 build pod created",
            "+0.0 build pod scheduled",
            "+1.0 build container fetch started",
            "+1.0 build container fetch ended with exit code 0",
            "+2.0 build container install started",
            "+3.0 build container install ended with exit code 0",
            "+4.0 build container push started",
            "+5.0 Deployment web written",
            "+5.0 build container push ended with exit code 0: image pushed",
            "+5.0 serving pod created",
            "+6.0 serving pod scheduled",
            "+6.0 serving pod: Successfully pulled image in 211ms",
            "+7.0 serving container function started",
            "+8.0 Job new complete",
            "+9.0 serving pod ready",
            "+10.0 Function running",
        ];
        let text = lines(&parts.moments());
        let got: Vec<&str> = text.lines().map(|line| line.trim().trim_start_matches("timeline").trim()).collect();
        assert_eq!(got, expected);
        assert_eq!(facts(&parts.moments())[16]["seconds"], 10.0);
        assert_eq!(lines(&Parts::default().moments()), "");
    }

    #[test]
    fn the_newest_objects_of_a_build_and_of_a_rollout_are_kept() {
        let named = |name: &str, created: u32| json!({"metadata": {"name": name, "uid": name, "creationTimestamp": at(created)}});
        let mut parts = Parts::default();
        for job in [named("old", 1), named("new", 10), named("older", 0)] {
            parts.add("Job", &job);
        }
        for (uid, owner, created) in [
            ("o", ("Job", "old"), 20),
            ("b", ("Job", "new"), 11),
            ("t", ("ReplicaSet", "r"), 12),
            ("s", ("ReplicaSet", "q"), 13),
            ("x", ("DaemonSet", "d"), 30),
        ] {
            parts.add("Pod", &pod(uid, owner, created, json!({"conditions": [true_since("Ready", created)]})));
        }
        for deployment in [named("web", 4), named("api", 3)] {
            parts.add("Deployment", &deployment);
        }
        for reason in ["Pulled", "Scheduled"] {
            parts.add_event(&json!({"involvedObject": {"uid": "b"}, "reason": reason, "firstTimestamp": at(14)}));
        }
        let names =
            |all: &[Value], path: &str| -> Vec<String> { all.iter().map(|one| text(one, path).to_owned()).collect() };
        assert_eq!(names(&parts.jobs, "/metadata/name"), ["new"]);
        assert_eq!(names(&parts.pods, "/metadata/uid"), ["b", "s"]);
        assert_eq!(names(&parts.deployments, "/metadata/name"), ["web"]);
        assert_eq!(names(&parts.events, "/reason"), ["Pulled"]);
        assert!(lines(&parts.moments()).contains("serving pod ready"));
    }
}
