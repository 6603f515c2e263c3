//! Remaining drift: how an object differs from what it must be while nobody has reverted it, for status and metrics.
//!
//! The server says exactly what differs where it is asked what an apply would do; drift that is only reported is known
//! that way. An object that waits or is paused is compared with its document without a request (`lost_fields`).
//!
//! Invariant: values of Secrets, and of what has values of Secrets in it, are left out, and of others no more is remembered than [`LONGEST_CHANGES`].

use serde_json::Value;

use super::autoscaler::Autoscaler;
use super::desired::{Desired, without_replicas};
use super::lost_fields::lost_fields;
use super::projection::Difference;
use mainstay_api::git_sync::{Change, Drifted, UNKNOWN, WHOLE_OBJECT};
use mainstay_object::{Digest, without_item_names};

/// Fields that are named of one object.
const NAMED: usize = 10;
/// Bytes of fields and values that are remembered of one object.
const LONGEST_CHANGES: usize = 2 << 10;

/// Remaining drift of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RemainingDrift {
    /// As a status shows it.
    pub(crate) shown: Drifted,
    /// Digest of what is ours in the object as it was seen.
    pub(super) digest: Option<Digest>,
    /// The resource version at which it was seen; empty when not known.
    pub(super) version: Box<str>,
    /// Where the server said what differs: the fields that its document said did, by which a change is seen.
    pub(super) known_by: Option<Vec<String>>,
    /// What differs was answered to a request with the owner's rights, not only seen by the agent's watch.
    pub(super) is_answered: bool,
}

/// What differs.
#[derive(Clone, Debug)]
pub(crate) struct Differing {
    pub(crate) fields: Vec<String>,
    pub(crate) changes: Vec<Change>,
    pub(crate) who: String,
}

impl Differing {
    /// The object is not there.
    pub(crate) fn absent() -> Self {
        Self { fields: vec![WHOLE_OBJECT.to_owned()], changes: Vec::new(), who: UNKNOWN.to_owned() }
    }

    /// Something, nobody knows what.
    pub(super) fn somehow() -> Self {
        Self { fields: Vec::new(), changes: Vec::new(), who: UNKNOWN.to_owned() }
    }

    /// Of an object as it was seen, by its document.
    pub(super) fn of(desired: &Desired, live: &Value, autoscaled: Option<Autoscaler>) -> Self {
        let mut body = desired.body_over(live);
        if autoscaled.is_some() {
            without_replicas(&mut body);
        }
        let differences = lost_fields(&body, live);
        let who = differences.iter().find_map(|difference| difference.who.clone());
        let is_confidential = desired.object.is_confidential();
        let field = |path: &str| if is_confidential { without_item_names(path) } else { path.to_owned() };
        let fields = differences.iter().map(|difference| field(&difference.path)).collect();
        let changes = differences.into_iter().filter(|_| !is_confidential);
        let change = |d: Difference| Change { field: d.path, found: d.found, restored: d.restored };
        Self { fields, changes: changes.map(change).collect(), who: who.unwrap_or_else(|| UNKNOWN.to_owned()) }
    }

    /// As much of it as is remembered.
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

impl RemainingDrift {
    /// What the status of an earlier agent said: so it is until the object is seen.
    pub(crate) fn recalled(mut shown: Drifted) -> Self {
        shown.next_attempt = None;
        Self { shown, digest: None, version: Box::default(), known_by: None, is_answered: true }
    }

    /// What is found now in the fields that are known to differ.
    pub(super) fn update_values(&mut self, seen: Differing) {
        for change in seen.changes {
            let known = self.shown.changes.iter_mut().find(|known| known.field == change.field);
            if let Some(known) = known.filter(|known| known.found != change.found) {
                known.found = change.found;
                self.is_answered = false;
                self.shown.who.clone_from(&seen.who);
            }
        }
    }

    /// As an owner's status shows it that acts as a ServiceAccount: the agent's watch may see more than that account may.
    pub(super) fn shown_to_account(&self) -> Drifted {
        let mut shown = self.shown.clone();
        if !self.is_answered {
            shown.changes.clear();
            UNKNOWN.clone_into(&mut shown.who);
        }
        shown
    }

    /// Whether it was seen after the state with this version.
    pub(super) fn is_newer_than(&self, version: &str) -> bool {
        matches!((self.version.parse::<u64>(), version.parse::<u64>()), (Ok(known), Ok(seen)) if seen < known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_remembered_than_fits() {
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
