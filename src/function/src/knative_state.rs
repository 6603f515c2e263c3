//! The observed state of a Knative Service, and its meaning for the status.
//!
//! Invariant: conditions of an older generation are ignored. After an update, the status reports the old Ready=True for
//! a moment.

use jiff::Timestamp;
use serde_json::Value;

use super::child_state::{self, ChildIdentity, Condition};
use super::secret_digests;

/// A Knative Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnativeService {
    /// Name, UID and resource version.
    pub identity: ChildIdentity,
    /// Image of the first container.
    pub image: String,
    /// Whether the status describes this generation.
    pub is_current: bool,
    /// The newest Revision.
    pub latest_created: String,
    /// The newest Revision that became ready.
    pub latest_ready: String,
    /// `status.url`.
    pub url: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// The Revisions that receive requests, separated by commas.
    pub routed: String,
    /// When the condition Ready last changed.
    pub since: Option<Timestamp>,
    /// The record of the digests of its Secrets.
    pub secrets: String,
    /// The Knative Service's conditions: Ready, ConfigurationsReady, RoutesReady.
    pub conditions: Vec<Condition>,
}

/// The state of a Knative Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The Knative Service serves requests.
    Ready,
    /// The Knative Service does not serve requests yet. The cause may be known.
    Waiting(Option<String>),
    /// The Knative Service does not serve requests, or not as specified.
    Failed(String),
}

/// Reasons and messages that occur during every start and update.
const NORMAL: [&str; 5] = ["", "OutOfDate", "TrafficNotMigrated", "IngressNotConfigured", "Uninitialized"];
/// Reason of a condition if no Revision can serve requests.
const REVISION_MISSING: &str = "RevisionMissing";
/// Reason of a condition if another owner's object has the name that Knative needs.
const NOT_OWNED: &str = "NotOwned";

impl KnativeService {
    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    fn is(&self, kind: &str, status: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == status)
    }

    /// Whether the Knative Service serves requests with its current generation.
    pub fn is_ready(&self) -> bool {
        self.is_current && self.is("Ready", "True")
    }

    /// Whether the newest Revision can serve requests.
    pub(crate) fn has_ready_revision(&self) -> bool {
        self.is_current && self.is("ConfigurationsReady", "True")
    }

    /// Whether a Revision serves requests, of any generation.
    pub fn serves(&self) -> bool {
        !self.identity.terminating && !self.latest_ready.is_empty() && self.is("RoutesReady", "True")
    }

    /// Returns the routed state, once only the newest Revision is needed; `None` before. A change of this state means
    /// that Revisions may have become unused.
    pub fn settled(&self) -> Option<String> {
        let is_settled = self.is_ready() && self.latest_created == self.latest_ready;
        is_settled.then(|| format!("{} {} {} {}", self.identity.uid, self.generation, self.latest_ready, self.routed))
    }

    /// Whether the Knative Service has had only one Revision.
    pub(crate) fn is_at_first(&self) -> bool {
        self.latest_created.ends_with("-00001")
    }

    /// Returns the state of the Knative Service.
    pub fn word(&self) -> Word {
        let Some(ready) = self.condition("Ready").filter(|_| self.is_current) else { return Word::Waiting(None) };
        match &*ready.status {
            "True" => Word::Ready,
            "False" => Word::Failed(self.cause(ready)),
            _ => Word::Waiting(awaited(ready)),
        }
    }

    /// Returns why the Knative Service failed. Ready often repeats only a consequence, so the other conditions come
    /// first.
    fn cause(&self, ready: &Condition) -> String {
        let failed = |kind: &str| self.condition(kind).filter(|condition| condition.status == "False");
        if let Some(configuration) = failed("ConfigurationsReady") {
            let serves = if self.serves() { format!("; {} serves", self.latest_ready) } else { String::new() };
            return format!("{}{serves}", text(configuration));
        }
        match failed("RoutesReady") {
            Some(route) if route.reason == REVISION_MISSING => {
                format!("{}; restore it, or remove it from spec.traffic of the Knative Service", text(route))
            }
            Some(route) if route.reason == NOT_OWNED => {
                format!("{}; it continues when that object is renamed or deleted", text(route))
            }
            Some(route) => text(route),
            None => text(ready),
        }
    }
}

/// Returns why the Knative Service is not ready yet; `None` for reasons that occur during every start.
fn awaited(ready: &Condition) -> Option<String> {
    if ready.reason == REVISION_MISSING {
        return Some(ready.message.clone());
    }
    (!NORMAL.contains(&&*ready.reason)).then(|| text(ready))
}

fn text(condition: &Condition) -> String {
    match (&*condition.reason, &*condition.message) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// Reads the state of a Knative Service.
pub(crate) fn knative_service(live: &Value) -> KnativeService {
    let text = |path: &str| child_state::short(live.pointer(path).and_then(Value::as_str).unwrap_or_default());
    let number = |path: &str| live.pointer(path).and_then(Value::as_i64);
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    let conditions: Vec<_> = conditions.into_iter().flatten().take(8).map(child_state::condition).collect();
    let ready = conditions.iter().find(|condition| condition.kind == "Ready");
    let targets = live.pointer("/status/traffic").and_then(Value::as_array).into_iter().flatten();
    let routed: Vec<_> = targets.filter_map(|target| target["revisionName"].as_str()).collect();
    KnativeService {
        since: ready.and_then(|ready| ready.moved.parse().ok()),
        generation: number("/metadata/generation").unwrap_or_default(),
        routed: child_state::short(&routed.join(",")),
        identity: child_state::identity(live),
        image: text("/spec/template/spec/containers/0/image"),
        is_current: number("/metadata/generation").is_some()
            && number("/metadata/generation") == number("/status/observedGeneration"),
        latest_created: text("/status/latestCreatedRevisionName"),
        latest_ready: text("/status/latestReadyRevisionName"),
        url: text("/status/url"),
        secrets: secret_digests::recorded(live),
        conditions,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the state, from Ready, ConfigurationsReady and RoutesReady as status, reason and message.
    fn said(observed: i64, conditions: [(&str, &str, &str); 3], latest_ready: &str) -> Word {
        let types = ["Ready", "ConfigurationsReady", "RoutesReady"].into_iter();
        let conditions: Vec<_> = types
            .zip(conditions)
            .map(|(kind, (status, reason, message))| {
                json!({"type": kind, "status": status, "reason": reason, "message": message})
            })
            .collect();
        let status =
            json!({"observedGeneration": observed, "conditions": conditions, "latestReadyRevisionName": latest_ready});
        knative_service(&json!({"metadata": {"name": "hello", "generation": 2}, "status": status})).word()
    }

    #[test]
    fn the_ready_of_an_earlier_generation_does_not_count() {
        let all = [("True", "", ""); 3];
        assert_eq!(said(2, all, "hello-00001"), Word::Ready);
        assert_eq!(said(1, all, "hello-00001"), Word::Waiting(None));
        assert_eq!(knative_service(&json!({})).word(), Word::Waiting(None));
    }

    #[test]
    fn a_revision_that_is_missing_is_explained_by_what_it_follows_from() {
        let waits = "Configuration \"hello\" is waiting for a Revision to become ready.";
        let first = [("Unknown", "RevisionMissing", waits), ("Unknown", "", ""), ("Unknown", "RevisionMissing", waits)];
        assert_eq!(said(2, first, ""), Word::Waiting(Some(waits.to_owned())));
        let none = "Configuration \"hello\" does not have any ready Revision.";
        let why = "Revision \"hello-00001\" failed with message: Container failed with: boom.";
        let failed =
            [("False", "RevisionMissing", none), ("False", "RevisionFailed", why), ("False", "RevisionMissing", none)];
        assert_eq!(said(2, failed, ""), Word::Failed(format!("RevisionFailed: {why}")));
        let gone = "Revision \"hello-00001\" referenced in traffic not found.";
        let routed = [("False", "RevisionMissing", gone), ("True", "", ""), ("False", "RevisionMissing", gone)];
        let Word::Failed(said) = said(2, routed, "hello-00002") else { unreachable!("it has failed") };
        assert!(said.contains("hello-00001") && said.contains("spec.traffic"), "{said}");
    }

    #[test]
    fn a_failed_update_says_what_serves() {
        let why = "Revision \"hello-00002\" failed with message: boom.";
        let failed = [("False", "RevisionFailed", why), ("False", "RevisionFailed", why), ("True", "", "")];
        assert_eq!(said(2, failed, "hello-00001"), Word::Failed(format!("RevisionFailed: {why}; hello-00001 serves")));
    }

    #[test]
    fn a_state_of_every_start_is_no_failure() {
        for reason in NORMAL {
            assert_eq!(said(2, [("Unknown", reason, "m"); 3], ""), Word::Waiting(None), "{reason}");
        }
        let other = [("Unknown", "Deploying", "m"); 3];
        assert_eq!(said(2, other, ""), Word::Waiting(Some("Deploying: m".to_owned())));
    }
}
