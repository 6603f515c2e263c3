//! Enforces the Pod Security policy of a namespace on writes.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::checks::evaluate;
use super::labels::{Level, Policy, Standard, policy};
use super::pod::{Pod, details, items, reasons};
use crate::{
    admission::hooks::Write,
    object::{controller, text},
    server::Server,
    status::Status,
    store::Key,
    verbs::Settings,
};

/// Subresources of pods that change no checked field.
const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Maximum number of pods that a policy change is checked against.
const MOST_PODS: usize = 3_000;

/// Returns the path of the pod template in a workload.
fn template(group: &str, plural: &str) -> Option<&'static str> {
    match (group, plural) {
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

/// Refuses a write that violates the enforced level, and adds warnings to the settings.
pub(crate) fn judge(
    server: &Server,
    settings: &Settings,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<(), Status> {
    let kind = &write.target.kind;
    let Some(object) = object.filter(|_| matches!(write.operation, "CREATE" | "UPDATE")) else { return Ok(()) };
    match (kind.group.as_str(), kind.plural.as_str(), write.target.subresource.as_str()) {
        ("", "namespaces", "") => judge_namespace(server, settings, write, object),
        ("", "pods", subresource) if !IGNORED.contains(&subresource) => judge_pod(server, settings, write, object),
        (group, plural, "") => {
            let template = template(group, plural).and_then(|path| object.pointer(path));
            if let Some(template) = template.filter(|template| template.is_object()) {
                warn(settings, policy_at(server, write).warn, &Pod::of(template));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the policy of the namespace of a write.
fn policy_at(server: &Server, write: &Write<'_>) -> Policy {
    let namespace = server.store().get("namespaces", &Key::new("", &write.target.namespace));
    let labels = namespace.map(|namespace| namespace.value()["metadata"]["labels"].clone());
    policy(&labels.unwrap_or_default()).0
}

fn warn(settings: &Settings, standard: Standard, pod: &Pod<'_>) {
    let findings = evaluate(standard, pod);
    if !findings.is_empty() {
        settings.warn(format!("would violate PodSecurity \"{standard}\": {}", details(&findings)));
    }
}

fn judge_pod(server: &Server, settings: &Settings, write: &Write<'_>, object: &Value) -> Result<(), Status> {
    if write.old.is_some_and(|old| !is_significant(old, object)) {
        return Ok(());
    }
    let policy = policy_at(server, write);
    let pod = Pod::of(object);
    let findings = evaluate(policy.enforce, &pod);
    if findings.is_empty() {
        warn(settings, policy.warn, &pod);
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{}\": {}", policy.enforce, details(&findings));
    Err(Status::forbidden(&write.target.kind.group_resource(), &write.target.name, &why))
}

/// Returns whether a change of a pod affects checks: its containers or their images.
fn is_significant(old: &Value, new: &Value) -> bool {
    let list = |pod: &'_ Value, field: &str| -> Vec<(String, String)> {
        let containers = items(&pod["spec"][field]);
        containers.map(|c| (text(c, "/name").to_owned(), text(c, "/image").to_owned())).collect()
    };
    let images = |pod, field| list(pod, field).into_iter().map(|(_, image)| image).collect::<Vec<_>>();
    let debugging = list(old, "ephemeralContainers");
    ["containers", "initContainers"].into_iter().any(|field| images(old, field) != images(new, field))
        || list(new, "ephemeralContainers").iter().any(|container| !debugging.contains(container))
}

fn judge_namespace(server: &Server, settings: &Settings, write: &Write<'_>, object: &Value) -> Result<(), Status> {
    let (new, causes) = policy(&object["metadata"]["labels"]);
    let before = write.old.map(|old| policy(&old["metadata"]["labels"]));
    if !causes.is_empty() && before.as_ref().is_none_or(|(_, known)| *known != causes) {
        let kind = &write.target.kind;
        return Err(Status::invalid(&kind.group, &kind.kind, &write.target.name, causes));
    }
    let Some((old, _)) = before else { return Ok(()) };
    let is_relaxed = new.enforce.version == old.enforce.version && new.enforce.level <= old.enforce.level;
    if new.enforce.level != Level::Privileged && !is_relaxed {
        for warning in violations(server, &write.target.name, new.enforce) {
            settings.warn(warning);
        }
    }
    Ok(())
}

/// Returns warnings about the pods of a namespace that violate a new standard.
fn violations(server: &Server, namespace: &str, standard: Standard) -> Vec<String> {
    let snapshot = server.store().snapshot("pods");
    let pods: Vec<_> = snapshot.from(Some(namespace), None).map(|(_, stored)| stored.value()).collect();
    let mut owners = HashSet::new();
    // One pod of each workload comes before the others.
    let (mut first, others): (Vec<_>, Vec<_>) =
        pods.iter().partition(|pod| controller(pod).is_none_or(|owner| owners.insert(text(owner, "/uid").to_owned())));
    first.extend(others);
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in first.iter().take(MOST_PODS) {
        let findings = evaluate(standard, &Pod::of(pod));
        if !findings.is_empty() {
            found.entry(reasons(&findings)).or_default().push(text(pod, "/metadata/name"));
        }
    }
    let mut warnings = Vec::new();
    if first.len() > MOST_PODS {
        let number = first.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MOST_PODS} of {number} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.push(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut of_pods: Vec<String> = found.iter().map(|(reasons, pods)| of_pods(pods, reasons)).collect();
    of_pods.sort();
    warnings.extend(of_pods);
    warnings
}

fn of_pods(pods: &[&str], reasons: &str) -> String {
    let first = pods.iter().min().copied().unwrap_or_default();
    match pods.len() {
        1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        number => format!("{first} (and {} other pods): {reasons}", number - 1),
    }
}
