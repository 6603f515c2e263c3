//! The additional checks of the level `restricted`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{SECCOMP, added, profiles};
use super::pod::{Finding, Pod, items, named, plural, quoted, setters, texts};
use crate::object::text;

/// Volume types that pods may have.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Volume types that pods must not have.
const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn allow_privilege_escalation(pod: &Pod<'_>) -> Option<Finding> {
    let containers = pod.containers_that(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    let detail = || format!("{} must set securityContext.allowPrivilegeEscalation=false", named(&containers));
    (!containers.is_empty()).then(|| Finding::new("allowPrivilegeEscalation != false", detail()))
}

pub(super) fn allow_privilege_escalation_on_linux(pod: &Pod<'_>) -> Option<Finding> {
    if pod.is_for_windows() { None } else { allow_privilege_escalation(pod) }
}

pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Finding> {
    let drops_all = |container: &Value| {
        texts(&container["securityContext"]["capabilities"]["drop"]).any(|dropped| dropped == "ALL")
    };
    let keeping = pod.containers_that(|container| !drops_all(container));
    let (adding, others) = added(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", named(&keeping)));
    }
    if !adding.is_empty() {
        let (adding, others) = (named(&adding), quoted(&others));
        details.push(format!("{adding} must not include {others} in securityContext.capabilities.add"));
    }
    (!details.is_empty()).then(|| Finding::new("unrestricted capabilities", details.join("; ")))
}

pub(super) fn capabilities_on_linux(pod: &Pod<'_>) -> Option<Finding> {
    if pod.is_for_windows() { None } else { capabilities(pod) }
}

pub(super) fn volumes(pod: &Pod<'_>) -> Option<Finding> {
    let has = |volume: &Value, kinds: &[&'static str]| kinds.iter().find(|kind| !volume[**kind].is_null()).copied();
    let wrong = || items(&pod.spec["volumes"]).filter(|volume| has(volume, &VOLUMES).is_none());
    let names: Vec<&str> = wrong().map(|volume| text(volume, "/name")).collect();
    let kinds: BTreeSet<&str> = wrong().map(|volume| has(volume, &OTHER_VOLUMES).unwrap_or("unknown")).collect();
    let detail = || {
        let (volumes, uses) = (plural(names.len(), "volume", "volumes"), plural(names.len(), "uses", "use"));
        let what = plural(kinds.len(), "restricted volume type", "restricted volume types");
        format!("{volumes} {} {uses} {what} {}", quoted(&names), quoted(&kinds))
    };
    (!names.is_empty()).then(|| Finding::new("restricted volume types", detail()))
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Finding> {
    let of = |of: &Value| of["securityContext"]["runAsNonRoot"].as_bool();
    let finding = |detail: String| Some(Finding::new("runAsNonRoot != true", detail));
    let explicit = pod.containers_that(|container| of(container) == Some(false));
    if let Some(setters) = setters(of(pod.spec) == Some(false), &explicit) {
        return finding(format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let implicit = pod.containers_that(|container| of(container).is_none() && of(pod.spec) != Some(true));
    if implicit.is_empty() {
        return None;
    }
    finding(format!("pod or {} must set securityContext.runAsNonRoot=true", named(&implicit)))
}

pub(super) fn run_as_non_root_of_host_users(pod: &Pod<'_>) -> Option<Finding> {
    if pod.has_own_users() { None } else { run_as_non_root(pod) }
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Finding> {
    let is_root = |of: &Value| of["securityContext"]["runAsUser"] == 0;
    let setters = setters(is_root(pod.spec), &pod.containers_that(is_root))?;
    Some(Finding::new("runAsUser=0", format!("{setters} must not set runAsUser=0")))
}

pub(super) fn run_as_user_of_host_users(pod: &Pod<'_>) -> Option<Finding> {
    if pod.has_own_users() { None } else { run_as_user(pod) }
}

pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Finding> {
    let (of_pod, explicit, wrong) = profiles(pod, "seccompProfile", &SECCOMP);
    let finding = |detail: String| Some(Finding::new("seccompProfile", detail));
    if let Some(setters) = setters(of_pod, &explicit) {
        return finding(format!("{setters} must not set securityContext.seccompProfile.type to {}", quoted(wrong)));
    }
    let has = |of: &Value| !of["securityContext"]["seccompProfile"].is_null();
    let implicit = pod.containers_that(|container| !has(container) && !has(pod.spec));
    if implicit.is_empty() {
        return None;
    }
    let allowed = SECCOMP.map(|profile| format!("\"{profile}\"")).join(" or ");
    finding(format!("pod or {} must set securityContext.seccompProfile.type to {allowed}", named(&implicit)))
}

pub(super) fn seccomp_profile_on_linux(pod: &Pod<'_>) -> Option<Finding> {
    if pod.is_for_windows() { None } else { seccomp_profile(pod) }
}
