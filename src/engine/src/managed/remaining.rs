//! Remaining drift: the differences of an object that is not reverted immediately, for status and metrics.
//!
//! Drift that is only reported comes from the response to a dry run, which is exact. A waiting or paused object is
//! compared with its document without a request (`lost_fields`).
//!
//! Invariant: values of Secrets and of confidential objects are omitted. Others are limited to [`LONGEST_CHANGES`].

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::autoscaler::Autoscaler;
use super::desired::{Desired, without_replicas};
use super::lost_fields::lost_fields;
use super::projection::Difference;
use mainstay_api::git_sync::{Change, DriftReason, Drifted, UNKNOWN, WHOLE_OBJECT};
use mainstay_object::{Digest, hide_logins, without_item_names};

/// Maximum number of reported fields of an object.
const NAMED: usize = 10;
/// Maximum size of the stored fields and values of an object, in bytes.
const LONGEST_CHANGES: usize = 2 << 10;

/// The remaining drift of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemainingDrift {
    /// The drift in the form of a status.
    pub(crate) shown: Drifted,
    /// The whole paths of the shown changes, because two shown paths may differ only in a hidden login.
    pub(super) paths: Vec<String>,
    /// Digest of Mainstay's fields in the live object.
    pub(super) digest: Option<Digest>,
    /// The resource version of the live object; empty if unknown.
    pub(super) version: Box<str>,
    /// The fields that the agent's own comparison found when the server reported the differences. A change in them
    /// shows a new drift.
    pub(super) known_by: Option<Vec<String>>,
    /// Whether the values come from a response to a request with the owner's permissions, not only from the agent's
    /// watch.
    pub(super) is_answered: bool,
}

/// The differences of an object.
///
/// Invariant: paths of fields are whole. Logins and names of items are hidden when the paths are shown.
#[derive(Clone, Debug)]
pub(crate) struct Differing {
    pub(crate) fields: Vec<String>,
    pub(crate) changes: Vec<Change>,
    pub(crate) who: String,
}

impl Differing {
    /// Returns the difference of a missing object.
    pub(crate) fn absent() -> Self {
        Self { fields: vec![WHOLE_OBJECT.to_owned()], changes: Vec::new(), who: UNKNOWN.to_owned() }
    }

    /// Returns an unknown difference.
    pub(super) fn somehow() -> Self {
        Self { fields: Vec::new(), changes: Vec::new(), who: UNKNOWN.to_owned() }
    }

    /// Compares a live object with its document.
    pub(super) fn of(desired: &Desired, live: &Value, autoscaled: Option<Autoscaler>) -> Self {
        let mut body = desired.body_over(live);
        if autoscaled.is_some() {
            without_replicas(&mut body);
        }
        let differences = lost_fields(&body, live);
        let who = differences.iter().find_map(|difference| difference.who.clone());
        let is_confidential = desired.object.is_confidential();
        let fields = differences.iter().map(|difference| difference.path.clone()).collect();
        let changes = differences.into_iter().filter(|_| !is_confidential);
        let change = |d: Difference| Change { field: d.path, found: d.found, restored: d.restored };
        Self { fields, changes: changes.map(change).collect(), who: who.unwrap_or_else(|| UNKNOWN.to_owned()) }
    }

    /// Returns the drift of an object in the form of a status, with the whole paths of its changes.
    pub(super) fn shown(self, desired: &Desired, reason: DriftReason, since: Time) -> (Drifted, Vec<String>) {
        let is_confidential = desired.object.is_confidential();
        let paths = self.changes.iter().map(|change| change.field.clone()).collect();
        let change = |change: Change| Change { field: shown_field(is_confidential, &change.field), ..change };
        let shown = Drifted {
            object: desired.key.to_string(),
            fields: self.fields.iter().map(|field| shown_field(is_confidential, field)).collect(),
            changes: self.changes.into_iter().map(change).collect(),
            who: self.who,
            since,
            reason,
            next_attempt: None,
        };
        (shown, paths)
    }

    /// Truncates the differences to the stored size.
    pub(super) fn bounded(mut self) -> Self {
        let mut size = 0;
        let mut fits = |text: &str| {
            size += text.len();
            size <= LONGEST_CHANGES
        };
        self.fields.truncate(NAMED);
        let named = self.fields.iter().take_while(|field| fits(field)).count();
        self.fields.truncate(named.max(1));
        let shown = self.changes.iter().take(named).take_while(|change| fits(&change.found) && fits(&change.restored));
        let shown = shown.count();
        self.changes.truncate(shown);
        self
    }
}

/// Returns the path of a field without the logins of URLs, which keys of items may have. The path in a confidential object
/// has no keys.
pub(crate) fn shown_field(is_confidential: bool, path: &str) -> String {
    let path = if is_confidential { without_item_names(path) } else { path.to_owned() };
    hide_logins(&path).into_owned()
}

impl RemainingDrift {
    /// Returns the drift from the status of an earlier agent. It is valid until the object is seen.
    pub(crate) fn recalled(mut shown: Drifted) -> Self {
        shown.next_attempt = None;
        let paths = Vec::new();
        Self { shown, paths, digest: None, version: Box::default(), known_by: None, is_answered: true }
    }

    /// Updates the values of the fields that are known to differ.
    pub(super) fn update_values(&mut self, seen: Differing) {
        for change in seen.changes {
            let known = self.shown.changes.iter_mut().zip(&self.paths).find(|(_, path)| **path == change.field);
            let known = known.map(|(known, _)| known);
            if let Some(known) = known.filter(|known| known.found != change.found) {
                known.found = change.found;
                self.is_answered = false;
                self.shown.who.clone_from(&seen.who);
            }
        }
    }

    /// Returns the drift in the form for the status of an owner that acts as a ServiceAccount. The agent's watch may
    /// have seen values that this account may not read.
    pub(super) fn shown_to_account(&self) -> Drifted {
        let mut shown = self.shown.clone();
        if !self.is_answered {
            shown.changes.clear();
            UNKNOWN.clone_into(&mut shown.who);
        }
        shown
    }

    /// Whether the drift is newer than the state with this version.
    pub(super) fn is_newer_than(&self, version: &str) -> bool {
        matches!((self.version.parse::<u64>(), version.parse::<u64>()), (Ok(known), Ok(seen)) if seen < known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::fixtures::desired_of;

    #[test]
    fn paths_of_fields_show_no_login_of_a_url() {
        for (path, shown) in [
            (r#"spec.mirrors[url="https://u:hunter2@h"].name"#, r#"spec.mirrors[url="https://(hidden)@h"].name"#),
            (r#"spec.urls[="https://u:pa hunter2@h"]"#, r#"spec.urls[="https://(hidden)@h"]"#),
            ("metadata.labels[a.b/c]", "metadata.labels[a.b/c]"),
        ] {
            assert_eq!(shown_field(false, path), shown);
        }
        assert_eq!(shown_field(true, "data[https://u:hunter2@h]"), "data[…]");
    }

    #[test]
    fn remaining_drift_shows_no_login_of_a_url() {
        let kind = mainstay_cluster::Kind::fixed("v1", "ConfigMap", "configmaps", mainstay_cluster::Scope::Namespaced);
        let url = "https://u:hunter2@h/x";
        let document = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {url: url}},
        });
        let desired = desired_of(kind, &document);
        let seen = Differing::of(&desired, &serde_json::json!({"metadata": {"name": "a"}}), None);
        let (shown, paths) = seen.shown(&desired, DriftReason::Report, Time(jiff::Timestamp::UNIX_EPOCH));
        let text = format!("{shown:?}");
        assert!(text.contains("metadata.annotations[https://(hidden)@h/x]") && !text.contains("hunter2"), "{text}");
        assert!(paths.contains(&format!("metadata.annotations[{url}]")), "{paths:?}");
    }

    #[test]
    fn a_new_value_updates_the_field_with_the_same_login() {
        let change = |login: &str, found: &str| Change {
            field: format!("spec.mirrors[url=\"https://{login}@h\"].name"),
            found: found.to_owned(),
            restored: "a".to_owned(),
        };
        let differing = |changes: Vec<Change>| Differing {
            fields: changes.iter().map(|change| change.field.clone()).collect(),
            changes,
            who: "kubectl".to_owned(),
        };
        let known = differing(vec![change("u:one", "b"), change("u:two", "c")]);
        let since = Time(jiff::Timestamp::UNIX_EPOCH);
        let (shown, paths) = known.shown(&crate::managed::fixtures::desired(), DriftReason::Report, since);
        let mut drift = RemainingDrift { paths, ..RemainingDrift::recalled(shown) };
        drift.update_values(differing(vec![change("u:two", "d")]));
        let shown = drift.shown.changes.iter().map(|change| (&*change.field, &*change.found)).collect::<Vec<_>>();
        let path = r#"spec.mirrors[url="https://(hidden)@h"].name"#;
        assert_eq!(shown, [(path, "b"), (path, "d")]);
        assert!(!drift.is_answered);
    }

    #[test]
    fn differences_are_truncated_to_the_limit() {
        let change = |size: usize| Change { field: "a".into(), found: "x".repeat(size), restored: String::new() };
        let many = Differing {
            fields: (0..50).map(|number| format!("data.{number}")).collect(),
            changes: (0..50).map(|_| change(400)).collect(),
            who: "kubectl-edit".into(),
        };
        let bounded = many.bounded();
        assert_eq!((bounded.fields.len(), bounded.changes.len()), (NAMED, 4));
    }
}
