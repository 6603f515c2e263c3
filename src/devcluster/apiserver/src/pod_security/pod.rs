//! The checked parts of a pod or pod template, and the findings of checks.

use serde_json::Value;

use crate::object::text;

/// The parts of a pod that checks read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Returns the parts of a pod or of a workload's template.
    pub(super) fn of(object: &'a Value) -> Self {
        Self { annotations: &object["metadata"]["annotations"], spec: &object["spec"] }
    }

    /// Returns all containers, in the order of a real server's messages.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| items(&spec[list]))
    }

    /// Returns the names of the containers that match.
    pub(super) fn containers_that(&self, holds: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| holds(container)).map(|container| text(container, "/name")).collect()
    }

    /// Returns whether the pod has its own user namespace.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// Returns whether the pod runs on Windows.
    pub(super) fn is_for_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

/// A violation of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// A short description.
    pub(super) reason: String,
    /// The names of the offending parts; may be empty.
    pub(super) detail: String,
}

impl Finding {
    pub(super) fn new(reason: &str, detail: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), detail: detail.into() }
    }
}

/// Formats the findings for the refusal of a pod.
pub(super) fn details(findings: &[Finding]) -> String {
    let shown = findings.iter().map(|finding| match finding.detail.as_str() {
        "" => finding.reason.clone(),
        detail => format!("{} ({detail})", finding.reason),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Formats the findings for warnings about a namespace's pods.
pub(super) fn reasons(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// Returns the items of a list; none for another type.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns the strings of a list.
pub(super) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    items(list).filter_map(Value::as_str)
}

/// Formats names as `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// Returns the singular or the plural.
pub(super) fn plural<'a>(number: usize, one: &'a str, more: &'a str) -> &'a str {
    if number == 1 { one } else { more }
}

/// Formats containers as `container "a"` or `containers "a", "b"`.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// Formats the offenders as `pod`, `container "a"` or `pod and container "a"`; `None` if there are none.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    match (pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, containers) => Some(named(containers)),
        (true, containers) => Some(format!("pod and {}", named(containers))),
    }
}
