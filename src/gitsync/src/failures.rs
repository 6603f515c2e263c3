//! Objects that could not be applied or deleted: the message of each, and the time of its next retry.
//!
//! An object that another GitSync claims is one of them. Its failure has the reason `OwnershipConflict` and names the
//! other GitSync. `Ready` is False, with the reason of the first failure. The other objects of the commit are applied,
//! but its deletions wait. The object is tried again after a backoff, or when the registry changes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::contested::{Keeper, would_go};
use super::plan::{Plan, Why};
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::Failure;
use mainstay_engine::managed::Desired;
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, Class};

/// Backoff of an object after a failure.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), LONGEST);
/// Maximum time between two attempts for an object.
const LONGEST: Duration = Duration::from_secs(120);

/// A failed object with its next retry.
#[derive(Clone, Debug)]
struct Failed {
    class: Class,
    reason: Reason,
    message: String,
    attempts: u32,
    again: Instant,
    /// Whether the drift loop creates the object as soon as the live one is gone.
    awaits_deletion: bool,
    /// The object of another tool that manages this object. It is watched.
    keeper: Option<Keeper>,
}

impl Failed {
    fn waits_for_others(&self) -> bool {
        let is_owned = self.reason == Reason::OwnershipConflict && self.keeper.is_none();
        self.class == Class::NotReady || is_owned
    }
}

/// The objects whose last apply or deletion failed.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Key, Failed>);

impl Failures {
    /// Adds a failed object. The next retry waits for the backoff, and at least for `after`.
    pub(super) fn add(&mut self, key: &Key, class: Class, reason: Reason, message: String, after: Option<Duration>) {
        let attempts = self.0.get(key).map_or(1, |failed| failed.attempts + 1);
        let backoff = class.backoff().filter(|_| class == Class::Conflict).unwrap_or(RETRY);
        let wait = backoff.jittered(attempts, fastrand::f64()).max(after.unwrap_or_default());
        let again = Instant::now() + wait;
        let failed = Failed { class, reason, message, attempts, again, awaits_deletion: false, keeper: None };
        self.0.insert(key.clone(), failed);
    }

    /// Whether an object has to be read before the next attempt: the server denied the last apply, or the object exists
    /// and belongs to another owner.
    pub(super) fn needs_read(&self, key: &Key) -> bool {
        self.0
            .get(key)
            .is_some_and(|failed| failed.class == Class::Denied || failed.reason == Reason::OwnershipConflict)
    }

    /// Records that the drift loop creates the failed object as soon as the live one is gone.
    pub(super) fn await_deletion(&mut self, key: &Key) {
        if let Some(failed) = self.0.get_mut(key) {
            failed.awaits_deletion = true;
        }
    }

    /// Whether the drift loop creates the object after the deletion of the live one.
    pub(super) fn awaits_deletion(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|failed| failed.awaits_deletion)
    }

    /// Returns the objects that wait for the deletion of their live counterpart.
    pub(super) fn awaiting_deletion(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(|(_, failed)| failed.awaits_deletion).map(|(key, _)| key)
    }

    /// Adds the objects that a plan refuses to apply.
    pub(super) fn add_refused(&mut self, plan: &Plan) {
        for refused in &plan.refused {
            let (class, reason, message) = match &refused.why {
                Why::Claimed(other) => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    format!("it is managed by GitSync {other} too; remove it from one of the two"),
                ),
                Why::AwaitsHandover(other) => {
                    (Class::NotReady, Reason::OwnershipConflict, format!("waiting for GitSync {other} to release it"))
                }
                Why::Offered => {
                    let message = "it was offered to another GitSync; waiting until the status shows no handover of it";
                    (Class::NotReady, Reason::OwnershipConflict, message.to_owned())
                }
                Why::Terminating => (Class::NotReady, Reason::ApplyFailed, "it is being deleted".to_owned()),
                Why::Controlled => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    "a controller owns it; leave it out of the repository".to_owned(),
                ),
                Why::Contested(keeper, removed) => {
                    let message = format!("{}{}", keeper.text(), would_go(removed));
                    (Class::Invalid, Reason::OwnershipConflict, message)
                }
            };
            let keeper = match &refused.why {
                Why::Contested(keeper, _) => Some(keeper.clone()),
                _ => None,
            };
            // A watch shows when the keeper releases the object.
            let after = keeper.as_ref().filter(|keeper| keeper.is_watched()).map(|_| LONGEST);
            self.add(&refused.key, class, reason, message, after);
            if let Some(failed) = self.0.get_mut(&refused.key) {
                failed.keeper = keeper;
            }
        }
    }

    /// Returns the objects that other tools manage, with their keepers.
    pub(super) fn contested(&self) -> impl Iterator<Item = (&Key, &Keeper)> {
        self.0.iter().filter_map(|(key, failed)| Some((key, failed.keeper.as_ref()?)))
    }

    /// Returns the objects that other GitSyncs or tools manage.
    pub(super) fn conflicts(&self) -> HashSet<&Key> {
        let conflicts = self.0.iter().filter(|(_, failed)| failed.reason == Reason::OwnershipConflict);
        conflicts.map(|(key, _)| key).collect()
    }

    /// Makes the objects due that other tools manage.
    pub(super) fn retry_contested(&mut self, now: Instant) {
        for failed in self.0.values_mut().filter(|failed| failed.keeper.is_some()) {
            failed.again = now;
        }
    }

    /// Removes an object whose write succeeded.
    pub(super) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Forgets failures that do not match the desired objects: failed applies of removed objects, and failed deletions
    /// of objects that are desired again.
    pub(super) fn forget_old(&mut self, desired: &[Arc<Desired>]) {
        if self.0.is_empty() {
            return;
        }
        let keys = desired.iter().map(|d| &d.key).collect::<HashSet<_>>();
        self.0.retain(|key, failed| keys.contains(key) != (failed.reason == Reason::PruneFailed));
    }

    /// Forgets failures that no retry follows: the drift loop applied the object, the live object matches the commit,
    /// or the object may stay. Otherwise such a failure would be due forever.
    pub(super) fn forget_settled(&mut self, plan: &Plan) {
        if self.0.is_empty() {
            return;
        }
        let paused = plan.paused.iter().map(|(desired, _)| desired);
        let settled = plan.unchanged.iter().chain(paused).map(|d| &d.key).collect::<HashSet<_>>();
        self.0.retain(|key, failed| match failed.reason {
            Reason::PruneFailed => plan.leaving.prune.contains(key),
            _ => !settled.contains(key),
        });
    }

    /// Forgets failed deletions, because this round does not retry them.
    pub(super) fn forget_deletions(&mut self) {
        self.0.retain(|_, failed| failed.reason != Reason::PruneFailed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the apply of an object failed.
    pub(super) fn has_apply(&self) -> bool {
        self.0.values().any(|failed| failed.reason != Reason::PruneFailed)
    }

    /// Returns the objects whose retry is not due at `now`.
    pub(super) fn waiting(&self, now: Instant) -> HashSet<Key> {
        self.0.iter().filter(|(_, failed)| failed.again > now).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the time of the first retry.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|failed| failed.again).min()
    }

    /// Whether an object waits for an object that another GitSync may apply.
    pub(super) fn waits_for_others(&self) -> bool {
        self.0.values().any(Failed::waits_for_others)
    }

    /// Makes the objects due that wait for another GitSync. Returns whether there are any.
    pub(super) fn retry_awaiting(&mut self, now: Instant) -> bool {
        let mut any = false;
        for failed in self.0.values_mut().filter(|failed| failed.waits_for_others()) {
            failed.again = now;
            any = true;
        }
        any
    }

    /// Makes all objects due.
    pub(super) fn retry_all(&mut self, now: Instant) {
        for failed in self.0.values_mut() {
            failed.again = now;
        }
    }

    /// Postpones the objects that were due at `then` to `next`.
    pub(super) fn postpone(&mut self, then: Instant, next: Instant) {
        for failed in self.0.values_mut().filter(|failed| failed.again <= then) {
            failed.again = next;
        }
    }

    /// Returns all failures in the form of the status, sorted by key. The status shows the first ones: with shards
    /// (`is_shared`), objects of other owners come last, so that other agents see which objects could not be applied.
    pub(super) fn shown(&self, is_shared: bool) -> Vec<(Class, Reason, Failure)> {
        let mut all = self.0.iter().collect::<Vec<_>>();
        all.sort_by_key(|(key, failed)| (is_shared && failed.reason == Reason::OwnershipConflict, *key));
        let shown = |(key, failed): (&Key, &Failed)| {
            let reason = failed.reason.as_str();
            let message = failed.message.clone();
            (failed.class, failed.reason, Failure { object: key.to_string(), reason, message })
        };
        all.into_iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_other_owners_are_shown_last_with_shards_only() {
        let mut failures = Failures::default();
        for (name, reason) in [("a", Reason::OwnershipConflict), ("b", Reason::ApplyFailed), ("c", Reason::PruneFailed)]
        {
            failures.add(&Key::new("", "A", None, name), Class::Invalid, reason, String::new(), None);
        }
        let shown = |is_shared: bool| {
            let shown = failures.shown(is_shared).into_iter();
            shown.map(|(_, _, failure)| failure.object).collect::<Vec<_>>()
        };
        assert_eq!(shown(false), ["A a", "A b", "A c"]);
        assert_eq!(shown(true), ["A b", "A c", "A a"]);
    }
}
