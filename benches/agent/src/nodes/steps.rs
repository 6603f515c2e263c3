//! Derives the steps of a Function from the observed objects.

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ContainerStatus, Event, Pod},
};

use crate::{
    api::{DEPLOYMENT, FUNCTION_NAME, Function, RESOURCE},
    observer::Seen,
};

/// The last step: the Function reports Running.
pub(super) const RUNNING: &str = "Running";

/// All steps in their usual order.
pub(super) const ALL: &[&str] = &[
    "Job created",
    "build scheduled",
    "fetch started",
    "fetch ended",
    "base image pulled",
    "install started",
    "install ended",
    "push started",
    "push ended",
    "Job complete",
    "Deployment created",
    "pod scheduled",
    "image pulled",
    "container started",
    "pod ready",
    RUNNING,
];

fn seen(name: Option<&String>, steps: &[&str]) -> Option<Seen> {
    Some(Seen { name: name?.clone(), state: steps.join(",") })
}

/// Returns the last step of a Function.
pub(super) fn function(function: Function) -> Option<Seen> {
    let conditions = function.status?.conditions;
    let runs = conditions.iter().any(|condition| condition.kind == RUNNING && condition.status == "True");
    runs.then(|| seen(function.metadata.name.as_ref(), &[RUNNING])).flatten()
}

/// Returns the steps of a build Job.
pub(super) fn job(job: Job) -> Option<Seen> {
    let mut steps = vec!["Job created"];
    let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
    if conditions.iter().any(|condition| condition.type_ == "Complete" && condition.status == "True") {
        steps.push("Job complete");
    }
    seen(job.metadata.labels?.get(FUNCTION_NAME), &steps)
}

/// Returns the steps of a build pod or a serving pod.
pub(super) fn pod(pod: Pod) -> Option<Seen> {
    let labels = pod.metadata.labels?;
    let status = pod.status?;
    let serves = labels.get(RESOURCE).is_some_and(|resource| resource == DEPLOYMENT);
    let mut steps = Vec::new();
    if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
        steps.push(if serves { "pod scheduled" } else { "build scheduled" });
    }
    let containers = [status.init_container_statuses, status.container_statuses].into_iter().flatten().flatten();
    for container in containers {
        let (started, ended) = moments(&container);
        let known = if serves { Some(["container started", ""]) } else { of_build(&container.name) };
        let Some([start, end]) = known else { continue };
        steps.extend(started.then_some(start));
        steps.extend((ended && !end.is_empty()).then_some(end));
    }
    let is_ready = status.conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True");
    if serves && is_ready {
        steps.push("pod ready");
    }
    seen(labels.get(FUNCTION_NAME), &steps)
}

/// Whether a container has started, and whether it has ended.
fn moments(container: &ContainerStatus) -> (bool, bool) {
    let state = container.state.as_ref();
    let ended = state.is_some_and(|state| state.terminated.is_some());
    (ended || state.is_some_and(|state| state.running.is_some()), ended)
}

fn of_build(container: &str) -> Option<[&'static str; 2]> {
    match container {
        "fetch" => Some(["fetch started", "fetch ended"]),
        "install" => Some(["install started", "install ended"]),
        "push" => Some(["push started", "push ended"]),
        _ => None,
    }
}

/// Returns the step of a serving Deployment.
pub(super) fn deployment(deployment: Deployment) -> Option<Seen> {
    seen(deployment.metadata.labels?.get(FUNCTION_NAME), &["Deployment created"])
}

/// Returns the step of a kubelet's Event, by pod name.
pub(super) fn event(event: Event) -> Option<Seen> {
    let pod = event.involved_object;
    let place = pod.field_path.unwrap_or_default();
    let step = match (event.reason.as_deref(), &*place) {
        (Some("Pulled"), "spec.initContainers{install}" | "spec.containers{install}") => "base image pulled",
        (Some("Pulled"), "spec.containers{push}" | "spec.containers{fetch}") => return None,
        (Some("Pulled"), place) if place.starts_with("spec.containers{") => "image pulled",
        _ => return None,
    };
    seen(pod.name.as_ref(), &[step])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(resource: &str, status: Value, expected: &str) {
        let labels = json!({FUNCTION_NAME: "f", RESOURCE: resource});
        let object =
            json!({"metadata": {"labels": labels}, "spec": {"nodeName": "a", "containers": []}, "status": status});
        let seen = pod(serde_json::from_value(object).unwrap()).unwrap();
        assert_eq!((seen.name.as_str(), seen.state.as_str()), ("f", expected));
    }

    #[test]
    fn tells_the_steps_of_a_build_from_its_containers() {
        let container = |name: &str, state: Value| json!({"name": name, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0});
        let ended = json!({"terminated": {"exitCode": 0}});
        let inits = json!([container("fetch", ended), container("install", json!({"running": {}}))]);
        let status =
            json!({"initContainerStatuses": inits, "containerStatuses": [container("push", json!({"waiting": {}}))]});
        check("job", status, "build scheduled,fetch started,fetch ended,install started");
        let serves = json!({
            "containerStatuses": [container("function", json!({"running": {}}))],
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        check(DEPLOYMENT, serves, "pod scheduled,container started,pod ready");
    }

    #[test]
    fn tells_the_pull_of_a_base_image_from_that_of_the_built_one() {
        let check = |place: &str, expected: Option<&str>| {
            let object =
                json!({"metadata": {}, "reason": "Pulled", "involvedObject": {"name": "f-x", "fieldPath": place}});
            let found = event(serde_json::from_value(object).unwrap());
            assert_eq!(found.map(|seen| seen.state).as_deref(), expected, "{place}");
        };
        check("spec.initContainers{install}", Some("base image pulled"));
        check("spec.containers{push}", None);
        check("spec.initContainers{fetch}", None);
        check("spec.containers{function}", Some("image pulled"));
    }
}
