//! Removals that are not complete: objects that are being deleted, replaced or handed over, and why they still exist.
//! An absent object is not among them.
//!
//! Not here: the decision about each object (`prune`), and its deletion (`perform`, `finalize`).

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;

use super::registry::Pending;
use super::shared_plan::Handovers;
use super::terminating::TerminatingObjects;
use mainstay_api::git_sync;
use mainstay_cluster::Terminating;
use mainstay_engine::managed::Listed;
use mainstay_object::Key;

/// The removals of a GitSync that are not complete.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// Removed objects that are still being deleted; `None` before the first round.
    terminating: Option<TerminatingObjects>,
    /// Objects that are being deleted in order to be recreated.
    replacing: TerminatingObjects,
    /// Objects that this GitSync gives up for GitSyncs of other agents.
    pub(super) handovers: Box<Handovers>,
    /// The GitSync for which the deletion of this GitSync waits, with shards.
    pub(super) awaited: Option<Box<Pending>>,
    /// Whether an object that another GitSync lists still carries the label of this GitSync. No event reports a change
    /// of the label.
    pub(super) is_still_labelled: bool,
    /// The invalid value of the `allow-prune` annotation.
    refused_permission: Option<RefusedPermission>,
}

/// An invalid permission to delete objects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RefusedPermission {
    /// The value of the annotation.
    pub(super) value: String,
    pub(super) problem: String,
}

impl Removal {
    /// Records the objects whose deletion a round has left pending.
    pub(super) fn set_terminating(&mut self, found: Vec<(Key, Terminating)>) {
        self.terminating.get_or_insert_default().replace(found);
    }

    /// Returns the objects whose deletion is pending.
    pub(super) fn terminating(&self) -> HashSet<Key> {
        self.terminating.as_ref().map(TerminatingObjects::keys).unwrap_or_default()
    }

    /// Returns the pending deletions for the status; `None` before the first round.
    pub(super) fn listed(&self) -> Option<Listed<git_sync::Terminating>> {
        self.terminating.as_ref().map(TerminatingObjects::listed)
    }

    /// Returns the time until the next deletion exceeds `timeout`.
    pub(super) fn next_stuck(&self, timeout: Duration, now: Timestamp) -> Option<Duration> {
        self.terminating.as_ref()?.next_stuck(timeout, now)
    }

    /// Adds or updates an object that is recreated once it is gone. Returns whether it is new.
    pub(super) fn replace(&mut self, key: Key, awaits: Terminating) -> bool {
        self.replacing.insert(key, awaits)
    }

    /// Drops the replaced objects that are recreated.
    pub(super) fn retain_replaced(&mut self, is_awaited: impl Fn(&Key) -> bool) {
        self.replacing.retain(is_awaited);
    }

    /// Returns the objects whose deletion exceeds `timeout` at `now` and was not reported yet, and marks them as reported.
    pub(super) fn take_stuck(&mut self, timeout: Duration, now: Timestamp) -> Vec<(Key, Terminating)> {
        let all = self.terminating.iter_mut().chain([&mut self.replacing]);
        all.flat_map(|objects| objects.take_stuck(timeout, now)).collect()
    }

    /// Records whether the permission to delete objects is invalid. Returns the problem of a new value.
    pub(super) fn refuse_permission(&mut self, refused: Option<RefusedPermission>) -> Option<&str> {
        let before = std::mem::replace(&mut self.refused_permission, refused);
        let refused = self.refused_permission.as_ref()?;
        let is_new = before.is_none_or(|before| before.value != refused.value);
        is_new.then_some(&*refused.problem)
    }

    /// Returns the problem of the permission to delete objects.
    pub(super) fn refused_permission(&self) -> Option<&str> {
        self.refused_permission.as_ref().map(|refused| &*refused.problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(value: &str, problem: &str) -> RefusedPermission {
        RefusedPermission { value: value.to_owned(), problem: problem.to_owned() }
    }

    #[test]
    fn an_invalid_permission_is_reported_once_for_each_value() {
        let mut removal = Removal::default();
        assert_eq!(removal.refuse_permission(Some(refused("a", "of the first commit"))), Some("of the first commit"));
        assert_eq!(removal.refuse_permission(Some(refused("a", "of the second commit"))), None);
        assert_eq!(removal.refused_permission(), Some("of the second commit"));
        assert_eq!(removal.refuse_permission(Some(refused("b", "x"))), Some("x"));
        assert_eq!(removal.refuse_permission(None), None);
        assert_eq!(removal.refused_permission(), None);
        assert_eq!(removal.refuse_permission(Some(refused("b", "x"))), Some("x"), "it was corrected in between");
    }

    #[test]
    fn deleted_and_replaced_objects_are_reported_when_they_exceed_the_timeout() {
        let (at, minute) = (|second| Timestamp::from_second(second).unwrap(), Duration::from_secs(60));
        let object = |name: &str| {
            let terminating = Terminating { finalizers: Vec::new(), since: at(0) };
            (Key::new("", "ConfigMap", Some("shop"), name), terminating)
        };
        let mut removal = Removal::default();
        assert!(removal.listed().is_none());
        removal.set_terminating(vec![object("a")]);
        let (key, awaits) = object("b");
        assert!(removal.replace(key, awaits));
        assert_eq!(removal.terminating(), HashSet::from([object("a").0]));
        assert_eq!(removal.next_stuck(minute, at(59)), Some(Duration::from_secs(1)));
        assert_eq!(removal.take_stuck(minute, at(60)), [object("a"), object("b")]);
        assert!(removal.take_stuck(minute, at(61)).is_empty());
    }
}
