//! A pod or pod template as checks see it, and what they have against it.

use serde_json::Value;

use crate::object::text;

/// The parts of a pod that checks read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'a> {
    pub(super) annotations: &'a Value,
    pub(super) spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// A pod, or the template at a path of a workload.
    pub(super) fn of(object: &'a Value) -> Self {
        Self { annotations: &object["metadata"]["annotations"], spec: &object["spec"] }
    }

    /// All containers, in the order in which a real server names them.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| items(&spec[list]))
    }

    /// Those of its containers for which something holds.
    pub(super) fn containers_that(&self, holds: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| holds(container)).map(|container| text(container, "/name")).collect()
    }

    /// Whether it runs in a user namespace of its own.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec["hostUsers"] == false
    }

    /// Whether it runs on Windows.
    pub(super) fn is_for_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

/// What a check has against a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// In a few words.
    pub(super) reason: String,
    /// With the names that are concerned; may be empty.
    pub(super) detail: String,
}

impl Finding {
    pub(super) fn new(reason: &str, detail: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), detail: detail.into() }
    }
}

/// The findings as the refusal of a pod lists them.
pub(super) fn details(findings: &[Finding]) -> String {
    let shown = findings.iter().map(|finding| match finding.detail.as_str() {
        "" => finding.reason.clone(),
        detail => format!("{} ({detail})", finding.reason),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The findings as the list of a namespace's pods shows them.
pub(super) fn reasons(findings: &[Finding]) -> String {
    findings.iter().map(|finding| finding.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// The items of a list; none of anything else.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> impl Iterator<Item = &str> {
    items(list).filter_map(Value::as_str)
}

/// `"a", "b"`.
pub(super) fn quoted<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| format!("\"{}\"", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// One word for one, another one for more.
pub(super) fn plural<'a>(number: usize, one: &'a str, more: &'a str) -> &'a str {
    if number == 1 { one } else { more }
}

/// `container "a"`, or `containers "a", "b"`.
pub(super) fn named(containers: &[&str]) -> String {
    format!("{} {}", plural(containers.len(), "container", "containers"), quoted(containers))
}

/// `pod`, `container "a"`, or `pod and container "a"`; `None` when it is neither.
pub(super) fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    match (pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, containers) => Some(named(containers)),
        (true, containers) => Some(format!("pod and {}", named(containers))),
    }
}
