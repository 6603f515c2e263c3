//! The time line of a Function: its newest build and its newest serving pod, from their objects and Events.
//!
//! Invariant: the time line uses only data in the cluster. Times in objects have a precision of one second.
//!
//! Not here: earlier builds, because their pods are gone.

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use serde_json::{Value, json};

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
    let mut parts = Parts { function: live.cloned().unwrap_or_default(), ..Parts::default() };
    let mut notes = Vec::new();
    for (version, kind, found) in [
        ("batch/v1", "Job", &mut parts.jobs),
        ("v1", "Pod", &mut parts.pods),
        ("apps/v1", "Deployment", &mut parts.deployments),
    ] {
        *found = list(cluster, (version, kind), selection(), &mut notes).await?;
    }
    let uids: Vec<String> = [parts.build_pod(), parts.serving_pod()]
        .into_iter()
        .flatten()
        .map(|pod| text(pod, "/metadata/uid").to_owned())
        .collect();
    for uid in uids {
        let of_pod = Selection::by_fields(FieldSelector::equals("involvedObject.uid", &uid)).within(namespace);
        parts.events.extend(list(cluster, ("v1", "Event"), of_pod, &mut notes).await?);
    }
    trace.notes.extend(notes);
    Ok(parts.moments())
}

async fn list(
    cluster: &Cluster,
    (version, kind): (&str, &str),
    selection: Selection,
    notes: &mut Vec<String>,
) -> Result<Vec<Value>, Error> {
    let kind = cluster.kind(version, kind).await?.ok_or_else(|| Error::UnknownKind(kind.to_owned()))?;
    match cluster.list(&kind, selection).take(MOST).try_collect().await {
        Err(error) if error.is_forbidden() => {
            notes.push(format!("you may not list {}, so the timeline does not show them", kind.resource));
            Ok(Vec::new())
        }
        listed => Ok(listed?),
    }
}

impl Parts {
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

/// Returns kind and UID of an object's controller.
fn controller(object: &Value) -> Option<(&str, &str)> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    Some((owner["kind"].as_str()?, owner["uid"].as_str()?))
}

fn statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    lists.into_iter().filter_map(|path| pod.pointer(path)?.as_array()).flatten()
}

/// Returns when a condition became True.
fn condition(object: &Value, kind: &str) -> Option<Timestamp> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")?;
    time(found, "/lastTransitionTime")
}

/// Returns when the agent last wrote its fields of the object.
fn applied(object: &Value) -> Option<Timestamp> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    entries.iter().filter(|entry| entry["manager"] == names::MANAGER).filter_map(|entry| time(entry, "/time")).max()
}

fn time(object: &Value, path: &str) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
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
}
