//! `pods/binding`, and its older form `bindings`: assigns a pod to a node.
//!
//! Invariant: a pod is bound once. A pod that has a node, is terminating or has a scheduling gate cannot be bound.
//!
//! Not here: whether the node exists, which a real server does not check either.

use super::{
    Settings, Target, decode, metadata, text, update, value_as,
    write::{self, ATTEMPTS, Live, Tracking},
};
use crate::{
    admission::{Stop, consult, hooks::Write},
    kinds::table::Kind,
    server::Server,
    status::{Cause, GroupResource, Status},
};
use serde_json::{Value, json};

/// Returns the response to a successful binding.
pub(crate) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Binds a pod. `target` is the `binding` of a pod, or the collection of bindings. Returns warnings.
pub(crate) fn bind(
    server: &Server,
    target: &Target,
    settings: &Settings,
    mut binding: Value,
) -> Result<Vec<String>, Stop> {
    let table = server.table();
    let kinds = table.find_resource("v1", "bindings").zip(table.find_resource("v1", "pods"));
    let (kind, pods) = kinds.ok_or_else(|| target.not_found())?;
    let warnings = decode::object(kind, &mut binding, settings, decode::Origin::Body)?;
    write::same_namespace(target, &binding)?;
    let name = if target.name.is_empty() { text(&binding, "/metadata/name").to_owned() } else { target.name.clone() };
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required.").into());
    }
    let asked = Target { name: name.clone(), ..target.clone() };
    let write = Write { target: &asked, operation: "CREATE", old: None };
    consult::mutate(server, settings, &write, Some(&mut binding))?;
    if text(&binding, "/metadata/name") != name {
        return Err(Status::bad_request("name in URL does not match name in Binding object").into());
    }
    well_formed(&binding)?;
    consult::validate(server, settings, &write, Some(&binding))?;
    let pod = Target { kind: pods.clone(), subresource: "binding".to_owned(), ..asked };
    place(server, &pod, settings, &binding)?;
    Ok(warnings)
}

/// Validates the target of a binding. A real server answers 500 here, too.
fn well_formed(binding: &Value) -> Result<(), Status> {
    let (kind, name) = (text(binding, "/target/kind"), text(binding, "/target/name"));
    let mut causes = Vec::new();
    if !matches!(kind, "" | "Node") {
        causes.push(Cause::not_supported("target.kind", &kind.into(), &["Node", "<empty>"]));
    }
    if name.is_empty() {
        causes.push(Cause::required("target.name", ""));
    }
    let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [one] => Err(Status::new(500, "", one)),
        many => Err(Status::new(500, "", format!("[{}]", many.join(", ")))),
    }
}

fn place(server: &Server, target: &Target, settings: &Settings, binding: &Value) -> Result<(), Stop> {
    let kind: &Kind = &target.kind;
    // Webhooks review the binding, not the resulting change of the pod.
    let settings = Settings { admit: false, ..settings.clone() };
    for _ in 0..ATTEMPTS {
        let stored = server.store().get(&kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let old = value_as(kind, &stored);
        as_expected(target, &old, binding)?;
        let new = placed(&old, binding, &settings.now).map_err(|why| {
            let bindings = GroupResource { group: String::new(), resource: "pods/binding".to_owned() };
            Status::conflict(&bindings, &target.name, &why)
        })?;
        let live = Live { stored, old };
        if update::replace(server, target, &settings, &live, new, Tracking::Applied)?.is_some() {
            return Ok(());
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

/// Fails with 409 if the binding names another UID or resource version of the pod.
fn as_expected(target: &Target, pod: &Value, binding: &Value) -> Result<(), Status> {
    for (field, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (given, live) = (&binding["metadata"][field], &pod["metadata"][field]);
        let given = given.as_str().unwrap_or_default();
        if !given.is_empty() && given != live.as_str().unwrap_or_default() {
            let live = live.as_str().unwrap_or_default();
            let why = update::failed_precondition(target, what, given, live);
            return Err(Status::conflict(&target.kind.group_resource(), &target.name, &why));
        }
    }
    Ok(())
}

/// Returns the pod with its node and the labels and annotations of the binding, or why it cannot be bound.
fn placed(pod: &Value, binding: &Value, now: &str) -> Result<Value, String> {
    let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
    if metadata::is_terminating(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node \"{node}\""));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            pod["metadata"][field][key] = value.clone();
        }
    }
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    let mut list = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    match list.iter_mut().find(|condition| condition["type"] == "PodScheduled") {
        Some(known) => *known = scheduled,
        None => list.push(scheduled),
    }
    pod["status"]["conditions"] = list.into();
    Ok(pod)
}
