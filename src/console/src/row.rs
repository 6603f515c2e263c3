//! Converts an object of Mainstay into a row of the fleet: its state, and the reason for the state.
//!
//! Objects are read as JSON, so that an unexpected field of one object hides no other object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::edits::{self, Edit};
use crate::field::{message_at, text_at, time_at};
use crate::lookup::Lookup;
use crate::objects_cluster::ObjectsCluster;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_api::function_failure::is_lasting;
use mainstay_api::{conditions, events, function_conditions};
use mainstay_object::{Health, Key, health};

/// The kinds of Mainstay's objects. Those of the fleet are first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FleetKind {
    GitSync,
    GitRepository,
    Function,
    Receiver,
    OciRepository,
    HelmChart,
    ImageRepository,
    ImagePolicy,
    ImageUpdateAutomation,
    Provider,
    Alert,
    ApiRule,
    Trigger,
    Subscription,
}

impl FleetKind {
    /// The kinds of the fleet, which each session watches, in the order of the page.
    pub(crate) const ALL: [Self; 4] = [Self::GitSync, Self::GitRepository, Self::Function, Self::Receiver];

    /// The kinds of sources, images and messages, which are watched while their page is open, in the order of that page.
    pub(crate) const LISTED: [Self; 7] = [
        Self::OciRepository,
        Self::HelmChart,
        Self::ImageRepository,
        Self::ImagePolicy,
        Self::ImageUpdateAutomation,
        Self::Provider,
        Self::Alert,
    ];

    /// The kinds of APIRules and of subscribers to events, which are watched while their page is open, in the order of that
    /// page.
    pub(crate) const SERVED: [Self; 3] = [Self::ApiRule, Self::Trigger, Self::Subscription];

    /// Returns all kinds.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(Self::LISTED).chain(Self::SERVED)
    }

    /// Returns the kind.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::GitSync => "GitSync",
            Self::GitRepository => "GitRepository",
            Self::Function => "Function",
            Self::Receiver => "Receiver",
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
            Self::ImageRepository => "ImageRepository",
            Self::ImagePolicy => "ImagePolicy",
            Self::ImageUpdateAutomation => "ImageUpdateAutomation",
            Self::Provider => "Provider",
            Self::Alert => "Alert",
            Self::ApiRule => "APIRule",
            Self::Trigger => "Trigger",
            Self::Subscription => "Subscription",
        }
    }

    /// Returns the group and the version.
    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::GitRepository | Self::Function => "serverless.kyma-project.io/v1alpha1",
            Self::ApiRule => "gateway.kyma-project.io/v1beta1",
            Self::Trigger => "eventing.knative.dev/v1",
            Self::Subscription => "eventing.kyma-project.io/v1alpha2",
            _ => "mainstay.dev/v1alpha1",
        }
    }

    /// Returns the group.
    pub(crate) fn group(self) -> &'static str {
        mainstay_object::split_api_version(self.api_version()).0
    }

    /// Returns the key of an object of this kind.
    pub(crate) fn key(self, namespace: &str, name: &str) -> Key {
        Key::new(self.group(), self.name(), Some(namespace), name)
    }

    /// Returns the kind of an object; `None` if it is of another program.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        Self::all().find(|kind| kind.is_of(key))
    }

    /// Returns whether an object has this kind.
    pub(crate) fn is_of(self, key: &Key) -> bool {
        key.is(self.group(), self.name())
    }
}

/// The state of an object. The worst state is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum State {
    Failed,
    Attention,
    Progressing,
    Suspended,
    Ready,
}

impl State {
    /// All states, in the order of the page.
    pub(crate) const ALL: [Self; 5] = [Self::Failed, Self::Attention, Self::Progressing, Self::Suspended, Self::Ready];

    /// Returns the word for the state on the page and in the filter.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Failed => "Failed",
            Self::Attention => "Attention",
            Self::Progressing => "Progressing",
            Self::Suspended => "Suspended",
            Self::Ready => "Ready",
        }
    }
}

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionRow {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
}

/// An object of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) kind: FleetKind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) state: State,
    /// The message of the condition that determines the state.
    pub(crate) message: String,
    pub(crate) since: Option<Timestamp>,
    /// The commit or image.
    pub(crate) version: String,
    /// Number of objects and of healthy objects of a GitSync.
    pub(crate) objects: Option<(i64, i64)>,
    /// The objects to which somebody else keeps writing, with the writer; empty without any.
    pub(crate) contended: String,
    /// Name of the GitRepository in its namespace that it follows; empty without one.
    pub(crate) follows: String,
    /// When the agent looks up the GitRepository for this GitSync.
    pub(crate) lookup: Option<Lookup>,
    /// The cluster of the objects of a GitSync.
    pub(crate) cluster: ObjectsCluster,
    /// The hand edits that its status names.
    pub(crate) edits: Vec<Edit>,
    /// The resource version, which changes with each change of the object.
    pub(crate) resource_version: String,
}

impl Row {
    /// Returns the namespace and the name of the GitRepository of a GitSync, and its next lookup.
    pub(crate) fn next_lookup(&self) -> Option<((&str, &str), Lookup)> {
        Some(((&self.namespace, &self.follows), self.lookup?))
    }

    /// Returns the approximate memory of the row in bytes, including its names in tables.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &String| 32 + text.len();
        let labels: usize = self.labels.iter().map(|(label, value)| 64 + text(label) + text(value)).sum();
        let edits: usize = self.edits.iter().map(Edit::bytes).sum();
        let names = 3 * (text(&self.namespace) + text(&self.name));
        size_of::<Self>()
            + names
            + labels
            + text(&self.message)
            + text(&self.version)
            + text(&self.contended)
            + text(&self.follows)
            + edits
            + 256
    }
}

/// Returns the conditions of an object.
pub(crate) fn conditions_of(live: &Value) -> Vec<ConditionRow> {
    let all = live.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten().take(50);
    let condition = |one: &Value| ConditionRow {
        kind: text_at(one, "/type", SHORT),
        status: text_at(one, "/status", SHORT),
        reason: text_at(one, "/reason", SHORT),
        message: message_at(one, "/message"),
        since: time_at(one, "/lastTransitionTime"),
    };
    all.map(condition).collect()
}

/// Returns what a user can do about a reason; empty if there is nothing to do.
pub(crate) fn remedy(reason: &str) -> &'static str {
    let all = conditions::Reason::ALL.iter().map(|one| (one.name(), one.remedy()));
    let functions = function_conditions::Reason::ALL.iter().map(|one| (one.name(), one.remedy()));
    let events = events::Reason::ALL.iter().map(|one| (one.name(), one.remedy()));
    all.chain(functions).chain(events).find(|(name, _)| *name == reason).map_or("", |(_, remedy)| remedy)
}

/// Returns the row of an object.
pub(crate) fn row(kind: FleetKind, live: &Value) -> Row {
    let conditions = conditions_of(live);
    let count = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
    let (state, decisive, message) = if FleetKind::SERVED.contains(&kind) {
        served(kind, live, &conditions)
    } else {
        let (state, decisive) = state(kind, live, &conditions);
        (state, decisive, decisive.map(reason_and_message).unwrap_or_default())
    };
    let contended = conditions.iter().find(|one| one.kind == "Contended" && one.status == "True");
    let labels = live.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten().take(100);
    let version = match kind {
        FleetKind::GitSync => text_at(live, "/status/appliedCommit", SHORT),
        FleetKind::GitRepository => text_at(live, "/status/revision", SHORT),
        FleetKind::Function => text_at(live, "/status/commit", SHORT),
        FleetKind::OciRepository | FleetKind::HelmChart => text_at(live, "/status/artifact/revision", SHORT),
        FleetKind::ImageRepository => text_at(live, "/status/lastScanResult/latestTags/0", SHORT),
        FleetKind::ImagePolicy => text_at(live, "/status/latestRef/tag", SHORT),
        FleetKind::ImageUpdateAutomation => text_at(live, "/status/lastPushCommit", SHORT),
        FleetKind::Receiver
        | FleetKind::Provider
        | FleetKind::Alert
        | FleetKind::ApiRule
        | FleetKind::Trigger
        | FleetKind::Subscription => String::new(),
    };
    Row {
        kind,
        namespace: text_at(live, "/metadata/namespace", SHORT),
        name: text_at(live, "/metadata/name", SHORT),
        labels: labels
            .map(|(label, value)| (plain(label, SHORT), plain(value.as_str().unwrap_or_default(), SHORT)))
            .collect(),
        state,
        message,
        since: decisive.and_then(|one| one.since).or_else(|| time_at(live, "/metadata/creationTimestamp")),
        version,
        objects: (kind == FleetKind::GitSync)
            .then(|| (count("/status/objects").unwrap_or(0), count("/status/healthy").unwrap_or(0))),
        contended: contended.map(|one| one.message.clone()).unwrap_or_default(),
        follows: match kind {
            FleetKind::GitSync => text_at(live, "/spec/gitRepository", SHORT),
            FleetKind::Function if text_at(live, "/spec/type", SHORT) == "git" => text_at(live, "/spec/source", SHORT),
            _ => String::new(),
        },
        lookup: if kind == FleetKind::GitSync { Lookup::of(live, state == State::Suspended) } else { None },
        cluster: ObjectsCluster::of(live),
        edits: if kind == FleetKind::GitSync { edits::of_status(live) } else { Vec::new() },
        resource_version: text_at(live, "/metadata/resourceVersion", SHORT),
    }
}

fn reason_and_message(condition: &ConditionRow) -> String {
    let ConditionRow { reason, message, .. } = condition;
    if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") }
}

/// Returns the state of an APIRule or of a subscriber to events, the condition that determines the state, and why.
fn served<'c>(kind: FleetKind, live: &Value, all: &'c [ConditionRow]) -> (State, Option<&'c ConditionRow>, String) {
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let key = kind.key(&text("/metadata/namespace"), &text("/metadata/name"));
    // Controllers of these kinds retry all problems, so the health of a failed one is that of a progressing one.
    let false_one = all.iter().find(|one| one.status == "False" && one.kind != "Fields supported");
    let codes = ["/status/state", "/status/APIRuleStatus/code", "/status/virtualServiceStatus/code"];
    let has_failed = false_one.is_some() || codes.iter().any(|code| text(code).eq_ignore_ascii_case("error"));
    let descriptions = ["/status/APIRuleStatus/desc", "/status/virtualServiceStatus/desc", "/status/description"];
    let description = descriptions.iter().map(|pointer| message_at(live, pointer)).find(|text| !text.is_empty());
    let with_description = |why: String| match &description {
        Some(description) if has_failed && !why.contains(description.as_str()) => format!("{why}: {description}"),
        _ => why,
    };
    let decisive = false_one.or_else(|| all.iter().find(|one| ["Ready", "Exposed"].contains(&one.kind.as_str())));
    match health(&key, live) {
        Health::Healthy => (State::Ready, decisive, String::new()),
        Health::Progressing(why) if !has_failed => (State::Progressing, decisive, plain(&why, MESSAGE)),
        Health::Progressing(why) | Health::Failed(why) => {
            (State::Failed, decisive, plain(&with_description(why), MESSAGE))
        }
    }
}

/// Returns the state, and the condition that determines the state.
fn state<'c>(kind: FleetKind, live: &Value, all: &'c [ConditionRow]) -> (State, Option<&'c ConditionRow>) {
    let is = |kind: &str, status: &str| all.iter().find(|one| one.kind == kind && one.status == status);
    let ready = if kind == FleetKind::Function { "Running" } else { "Ready" };
    let any = all.iter().find(|one| one.kind == ready);
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return (State::Progressing, any);
    }
    if kind == FleetKind::Function {
        let failed = ["ConfigurationReady", "BuildReady", "Running"].iter().find_map(|kind| is(kind, "False"));
        let waits = ["ConfigurationReady", "BuildReady", "Running"].iter().find_map(|kind| is(kind, "Unknown"));
        return match (failed, waits, is("Running", "True")) {
            (Some(failed), ..) => (State::Failed, Some(failed)),
            (None, Some(waits), _) if is_lasting(&waits.reason, &waits.message) => (State::Failed, Some(waits)),
            (None, Some(waits), _) => (State::Progressing, Some(waits)),
            (None, None, Some(running)) => (State::Ready, Some(running)),
            _ => (State::Progressing, any),
        };
    }
    let not_ready = is("Ready", "False");
    if let Some(suspended) = is("Suspended", "True").or(not_ready.filter(|one| one.reason == "Suspended")) {
        return (State::Suspended, Some(suspended));
    }
    if let Some(failed) = is("Stalled", "True").or(not_ready).or(is("Healthy", "False")) {
        return (State::Failed, Some(failed));
    }
    if let Some(drifted) = ["Contended", "Drifted", "Frozen"].iter().find_map(|kind| is(kind, "True")) {
        return (State::Attention, Some(drifted));
    }
    let counted = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or(0) > 0;
    if counted("/status/heldObjects") || counted("/status/pausedObjects") || counted("/status/failed") {
        return (State::Attention, any);
    }
    match is("Ready", "True") {
        Some(ready) => (State::Ready, Some(ready)),
        None => (State::Progressing, is("Reconciling", "True").or(any)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state_of(kind: FleetKind, conditions: &[(&str, &str)], status: Value) -> State {
        let mut status = status;
        let all = conditions
            .iter()
            .map(|(kind, value)| json!({"type": kind, "status": value, "reason": "R", "message": "m"}));
        status["conditions"] = all.collect();
        row(kind, &json!({"metadata": {"name": "a", "namespace": "b"}, "status": status})).state
    }

    #[test]
    fn the_worst_condition_decides_about_the_state() {
        let sync = |conditions: &[(&str, &str)]| state_of(FleetKind::GitSync, conditions, json!({}));
        assert_eq!(sync(&[]), State::Progressing);
        assert_eq!(sync(&[("Ready", "True")]), State::Ready);
        assert_eq!(sync(&[("Ready", "Unknown")]), State::Progressing);
        assert_eq!(sync(&[("Ready", "False"), ("Drifted", "True")]), State::Failed);
        assert_eq!(sync(&[("Ready", "True"), ("Healthy", "False")]), State::Failed);
        assert_eq!(sync(&[("Ready", "True"), ("Drifted", "True")]), State::Attention);
        assert_eq!(sync(&[("Ready", "False"), ("Suspended", "True")]), State::Suspended);
        assert_eq!(state_of(FleetKind::GitSync, &[("Ready", "True")], json!({"heldObjects": 2})), State::Attention);
    }

    #[test]
    fn a_function_fails_with_any_of_its_conditions() {
        let function = |conditions: &[(&str, &str)]| state_of(FleetKind::Function, conditions, json!({}));
        assert_eq!(function(&[]), State::Progressing);
        assert_eq!(function(&[("Running", "True"), ("BuildReady", "False")]), State::Failed);
        assert_eq!(function(&[("Running", "True"), ("BuildReady", "Unknown")]), State::Progressing);
        let crash = "Deployment a is not ready yet: CrashLoopBackOff: container function: handler.js:1: Error";
        let crashes =
            json!([{"type": "Running", "status": "Unknown", "reason": "DeploymentWaiting", "message": crash}]);
        let live = json!({"metadata": {"name": "a", "namespace": "b"}, "status": {"conditions": crashes}});
        assert_eq!(row(FleetKind::Function, &live).state, State::Failed, "it crashes");
        assert_eq!(
            function(&[("Running", "True"), ("BuildReady", "True"), ("ConfigurationReady", "True")]),
            State::Ready
        );
    }

    #[test]
    fn a_kind_is_found_by_its_key() {
        for kind in FleetKind::all() {
            assert_eq!(FleetKind::of(&kind.key("shop", "a")), Some(kind));
        }
        assert_eq!(FleetKind::of(&Key::new("apps", "Deployment", Some("shop"), "a")), None);
    }

    #[test]
    fn a_listed_object_is_suspended_by_its_reason_and_has_a_version() {
        let ready = |reason: &str| json!([{"type": "Ready", "status": "False", "reason": reason, "message": "m"}]);
        let seen = |kind: FleetKind, status: Value| {
            let row = row(kind, &json!({"metadata": {"name": "a", "namespace": "b"}, "status": status}));
            (row.state, row.version)
        };
        let artifact = json!({"conditions": ready("Suspended"), "artifact": {"revision": "v1@sha256:0"}});
        assert_eq!(seen(FleetKind::OciRepository, artifact.clone()), (State::Suspended, "v1@sha256:0".to_owned()));
        assert_eq!(seen(FleetKind::HelmChart, artifact).1, "v1@sha256:0");
        let policy = json!({"conditions": ready("ImageFailed"), "latestRef": {"tag": "1.2"}});
        assert_eq!(seen(FleetKind::ImagePolicy, policy), (State::Failed, "1.2".to_owned()));
        assert_eq!(seen(FleetKind::ImageRepository, json!({"lastScanResult": {"latestTags": ["9", "8"]}})).1, "9");
        assert_eq!(seen(FleetKind::ImageUpdateAutomation, json!({"lastPushCommit": "abc"})).1, "abc");
        assert_eq!(seen(FleetKind::Alert, json!({})), (State::Progressing, String::new()));
    }

    #[test]
    fn a_rule_and_a_subscriber_have_the_state_of_their_controller() {
        let seen = |kind: FleetKind, status: Value| {
            let row = row(kind, &json!({"metadata": {"name": "a", "namespace": "b"}, "status": status}));
            (row.state, row.message)
        };
        let code = |code: &str| json!({"APIRuleStatus": {"code": code}});
        assert_eq!(seen(FleetKind::ApiRule, code("OK")), (State::Ready, String::new()));
        assert_eq!(seen(FleetKind::ApiRule, code("ERROR")), (State::Failed, "APIRuleStatus is ERROR".to_owned()));
        let described = json!({"APIRuleStatus": {"code": "ERROR", "desc": "no such gateway"}});
        let expected = (State::Failed, "APIRuleStatus is ERROR: no such gateway".to_owned());
        assert_eq!(seen(FleetKind::ApiRule, described), expected);
        assert_eq!(seen(FleetKind::ApiRule, json!({})).0, State::Progressing);
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": "NoBroker", "message": "no Broker"}]});
        assert_eq!(seen(FleetKind::Trigger, ready("True")).0, State::Ready);
        let (state, message) = seen(FleetKind::Trigger, ready("False"));
        assert!(state == State::Failed && message.contains("no Broker"), "{message}");
        assert_eq!(seen(FleetKind::Trigger, ready("Unknown")).0, State::Progressing);
        assert_eq!(seen(FleetKind::Subscription, json!({"ready": true})).0, State::Ready);
        assert_eq!(seen(FleetKind::Subscription, json!({"ready": false})).0, State::Progressing);
    }

    #[test]
    fn objects_of_any_form_are_read() {
        for live in [json!(null), json!([]), json!({"metadata": 3, "status": {"conditions": [null, 1, {"type": []}]}})]
        {
            for kind in FleetKind::all() {
                row(kind, &live);
            }
        }
    }
}
