//! Cells of pods and workloads.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::text::{or_none, selector, str_at};
use crate::kubelet::SIMULATED;
use crate::object::conditions;

/// Returns a count; zero if missing.
fn count(object: &Value, path: &str) -> i64 {
    object.pointer(path).and_then(Value::as_i64).unwrap_or(0)
}

fn created(object: &Value, now: Timestamp) -> String {
    age::since(&object["metadata"]["creationTimestamp"], now)
}

/// Returns names and images of a pod template's containers.
fn containers(template: &Value) -> (String, String) {
    let list = template.pointer("/spec/containers").and_then(Value::as_array);
    let join = |field: &str| {
        let texts: Vec<&str> = list.into_iter().flatten().filter_map(|c| c[field].as_str()).collect();
        texts.join(",")
    };
    (join("name"), join("image"))
}

pub(super) fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]);
    vec![
        format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")).into(),
        count(object, "/status/updatedReplicas").into(),
        count(object, "/status/availableReplicas").into(),
        created(object, now).into(),
        names.into(),
        images.into(),
        selector(&object["spec"]["selector"]).into(),
    ]
}

/// ReplicaSets and ReplicationControllers.
pub(super) fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]);
    let picks = if object["spec"]["selector"]["matchLabels"].is_null() {
        json!({"matchLabels": object["spec"]["selector"]})
    } else {
        object["spec"]["selector"].clone()
    };
    vec![
        count(object, "/spec/replicas").into(),
        count(object, "/status/replicas").into(),
        count(object, "/status/readyReplicas").into(),
        created(object, now).into(),
        names.into(),
        images.into(),
        selector(&picks).into(),
    ]
}

pub(super) fn stateful_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]);
    vec![
        format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas")).into(),
        created(object, now).into(),
        names.into(),
        images.into(),
    ]
}

pub(super) fn daemon_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]);
    vec![
        count(object, "/status/desiredNumberScheduled").into(),
        count(object, "/status/currentNumberScheduled").into(),
        count(object, "/status/numberReady").into(),
        count(object, "/status/updatedNumberScheduled").into(),
        count(object, "/status/numberAvailable").into(),
        selector(&json!({"matchLabels": object["spec"]["template"]["spec"]["nodeSelector"]})).into(),
        created(object, now).into(),
        names.into(),
        images.into(),
        selector(&object["spec"]["selector"]).into(),
    ]
}

pub(super) fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]);
    let succeeded = count(object, "/status/succeeded");
    let completions = match object["spec"]["completions"].as_i64() {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None if count(object, "/spec/parallelism") > 1 => {
            format!("{succeeded}/1 of {}", count(object, "/spec/parallelism"))
        }
        None => format!("{succeeded}/1"),
    };
    let (start, end) = (age::time(&object["status"]["startTime"]), age::time(&object["status"]["completionTime"]));
    let duration = start.map(|s| age::duration(end.unwrap_or(now).as_second() - s.as_second())).unwrap_or_default();
    vec![
        job_status(object).into(),
        completions.into(),
        duration.into(),
        created(object, now).into(),
        names.into(),
        images.into(),
        selector(&object["spec"]["selector"]).into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let has = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == kind && c["status"] == "True")
    };
    match () {
        () if has("Complete") => "Complete",
        () if has("Failed") => "Failed",
        () if !object["metadata"]["deletionTimestamp"].is_null() => "Terminating",
        () if has("Suspended") => "Suspended",
        () if has("FailureTarget") => "FailureTarget",
        () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    }
}

pub(super) fn cron_job(object: &Value, now: Timestamp) -> Vec<Value> {
    let template = &object["spec"]["jobTemplate"]["spec"];
    let (names, images) = containers(&template["template"]);
    let last = &object["status"]["lastScheduleTime"];
    let last = if last.is_null() { "<none>".to_owned() } else { age::since(last, now) };
    vec![
        str_at(object, "/spec/schedule").into(),
        or_none(str_at(object, "/spec/timeZone")).into(),
        if object["spec"]["suspend"] == true { "True" } else { "False" }.into(),
        object["status"]["active"].as_array().map_or(0, Vec::len).into(),
        last.into(),
        created(object, now).into(),
        names.into(),
        images.into(),
        selector(&template["selector"]).into(),
    ]
}

pub(super) fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let total = object["spec"]["containers"].as_array().map_or(0, Vec::len);
    let state = PodState::of(object);
    let mut restarts = state.restarts.to_string();
    if let Some(last) = state.last_restart.filter(|_| state.restarts > 0) {
        restarts = format!("{restarts} ({} ago)", age::duration(now.as_second() - last.as_second()));
    }
    vec![
        format!("{}/{total}", state.ready).into(),
        state.reason.into(),
        restarts.into(),
        created(object, now).into(),
        or_none(str_at(object, "/status/podIP")).into(),
        or_none(str_at(object, "/spec/nodeName")).into(),
        or_none(str_at(object, "/status/nominatedNodeName")).into(),
        readiness_gates(object).into(),
    ]
}

fn readiness_gates(object: &Value) -> String {
    let gates: Vec<&Value> = object["spec"]["readinessGates"].as_array().into_iter().flatten().collect();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions: Vec<&Value> = object["status"]["conditions"].as_array().into_iter().flatten().collect();
    let met = |gate: &&&Value| conditions.iter().any(|c| c["type"] == gate["conditionType"] && c["status"] == "True");
    format!("{}/{}", gates.iter().filter(met).count(), gates.len())
}

/// The values of the columns Ready, Status and Restarts.
struct PodState {
    ready: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
    reason: String,
}

impl PodState {
    fn of(pod: &Value) -> Self {
        let status = &pod["status"];
        let phase = status["phase"].as_str().unwrap_or_default();
        let mut state = Self {
            ready: 0,
            restarts: 0,
            last_restart: None,
            reason: status["reason"].as_str().filter(|r| !r.is_empty()).unwrap_or(phase).to_owned(),
        };
        let gated = status["conditions"].as_array().into_iter().flatten();
        if gated.clone().any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut state.reason);
        }
        if !state.initialising(pod) {
            state.running(status);
        }
        if conditions(pod).iter().any(|c| c["type"] == SIMULATED && c["status"] == "True") {
            state.reason.push_str(" (simulated)");
        }
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            if status["reason"] == "NodeLost" {
                "Unknown".clone_into(&mut state.reason);
            } else if !matches!(phase, "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut state.reason);
            }
        }
        state
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let last = age::time(&container["lastState"]["terminated"]["finishedAt"]);
        self.last_restart = self.last_restart.max(last);
    }

    /// Returns whether an init container has not finished. The pod's state then describes that container.
    fn initialising(&mut self, pod: &Value) -> bool {
        let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        for (index, container) in pod["status"]["initContainerStatuses"].as_array().into_iter().flatten().enumerate() {
            self.count_restarts(container);
            let state = &container["state"];
            let (ended, waiting) = (&state["terminated"], &state["waiting"]);
            if ended["exitCode"] == 0 {
                continue;
            }
            self.reason = if !ended.is_null() {
                format!("Init:{}", end_reason(ended))
            } else if let Some(why) = waiting["reason"].as_str().filter(|w| !w.is_empty() && *w != "PodInitializing") {
                format!("Init:{why}")
            } else {
                format!("Init:{index}/{total}")
            };
            return true;
        }
        false
    }

    fn running(&mut self, status: &Value) {
        self.restarts = 0;
        let mut has_running = false;
        for container in status["containerStatuses"].as_array().into_iter().flatten().rev() {
            self.count_restarts(container);
            let state = &container["state"];
            if let Some(why) = state["waiting"]["reason"].as_str().filter(|w| !w.is_empty()) {
                why.clone_into(&mut self.reason);
            } else if !state["terminated"].is_null() {
                self.reason = end_reason(&state["terminated"]);
            } else if container["ready"] == true && !state["running"].is_null() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && has_running {
            let ready = status["conditions"].as_array().into_iter().flatten();
            let is_ready = ready.clone().any(|c| c["type"] == "Ready" && c["status"] == "True");
            if is_ready { "Running" } else { "NotReady" }.clone_into(&mut self.reason);
        }
    }
}

fn end_reason(ended: &Value) -> String {
    match ended["reason"].as_str().filter(|r| !r.is_empty()) {
        Some(reason) => reason.to_owned(),
        None if ended["signal"].as_i64().is_some_and(|s| s != 0) => format!("Signal:{}", ended["signal"]),
        None => format!("ExitCode:{}", ended["exitCode"]),
    }
}
