//! The objects that could not be applied or deleted: what is said of each, and when it is tried again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::contested::would_go;
use super::plan::{Plan, Why};
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::Failure;
use mainstay_engine::managed::Desired;
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, Class};

/// How long an object that failed waits before it is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// An object that failed, and when it is tried again.
#[derive(Clone, Debug)]
struct Failed {
    class: Class,
    reason: Reason,
    message: String,
    attempts: u32,
    again: Instant,
    /// The drift loop creates it as soon as what is there is gone.
    awaits_deletion: bool,
}

impl Failed {
    fn awaits_others(&self) -> bool {
        self.class == Class::NotReady || self.reason == Reason::OwnershipConflict
    }
}

/// The objects whose last apply or deletion failed.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Key, Failed>);

impl Failures {
    /// An apply or a deletion of this object failed. It is tried again after its backoff, and not before `after`.
    pub(super) fn add(&mut self, key: &Key, class: Class, reason: Reason, message: String, after: Option<Duration>) {
        let attempts = self.0.get(key).map_or(1, |failed| failed.attempts + 1);
        let backoff = class.backoff().filter(|_| class == Class::Conflict).unwrap_or(RETRY);
        let wait = backoff.jittered(attempts, fastrand::f64()).max(after.unwrap_or_default());
        let again = Instant::now() + wait;
        let failed = Failed { class, reason, message, attempts, again, awaits_deletion: false };
        self.0.insert(key.clone(), failed);
    }

    /// Whether the server did not allow the last attempt.
    pub(super) fn is_denied(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|failed| failed.class == Class::Denied)
    }

    /// An object that failed is created by the drift loop as soon as what is there is gone.
    pub(super) fn await_deletion(&mut self, key: &Key) {
        if let Some(failed) = self.0.get_mut(key) {
            failed.awaits_deletion = true;
        }
    }

    /// Whether that is so for an object.
    pub(super) fn awaits_deletion(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|failed| failed.awaits_deletion)
    }

    /// The objects for which that is so.
    pub(super) fn awaiting_deletion(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(|(_, failed)| failed.awaits_deletion).map(|(key, _)| key)
    }

    /// The objects that a plan refuses to apply have failed.
    pub(super) fn add_refused(&mut self, plan: &Plan) {
        for refused in &plan.refused {
            let (class, reason, message) = match &refused.why {
                Why::Claimed(other) => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    format!("it is managed by GitSync {other} too; remove it from one of the two"),
                ),
                Why::AwaitsHandover(other) => {
                    (Class::NotReady, Reason::OwnershipConflict, format!("waiting for GitSync {other} to give it up"))
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
            self.add(&refused.key, class, reason, message, None);
        }
    }

    /// What failed has been done.
    pub(super) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What failed and is no longer desired, or is desired again, has not failed.
    pub(super) fn forget_old(&mut self, desired: &[Arc<Desired>]) {
        if self.0.is_empty() {
            return;
        }
        let keys = desired.iter().map(|d| &d.key).collect::<HashSet<_>>();
        self.0.retain(|key, failed| keys.contains(key) != (failed.reason == Reason::PruneFailed));
    }

    /// What failed and is not tried any more has not failed: the drift loop has put it right meanwhile, it is as this
    /// commit wants it, or it may stay. Left in, its next try would be due for ever.
    pub(super) fn forget_settled(&mut self, plan: &Plan) {
        if self.0.is_empty() {
            return;
        }
        let settled = plan.unchanged.iter().chain(&plan.paused).map(|d| &d.key).collect::<HashSet<_>>();
        self.0.retain(|key, failed| match failed.reason {
            Reason::PruneFailed => plan.leaving.prune.contains(key),
            _ => !settled.contains(key),
        });
    }

    /// Deletions are not tried in this round: they have not failed again.
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

    /// The objects that are not to be tried yet.
    pub(super) fn waiting(&self, now: Instant) -> HashSet<Key> {
        self.0.iter().filter(|(_, failed)| failed.again > now).map(|(key, _)| key.clone()).collect()
    }

    /// When the first object is to be tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|failed| failed.again).min()
    }

    /// Whether an object waits for something that another GitSync may bring.
    pub(super) fn awaits_others(&self) -> bool {
        self.0.values().any(Failed::awaits_others)
    }

    /// Objects that wait for something that another GitSync may have brought are tried again; whether there is one.
    pub(super) fn retry_awaiting(&mut self, now: Instant) -> bool {
        let mut any = false;
        for failed in self.0.values_mut().filter(|failed| failed.awaits_others()) {
            failed.again = now;
            any = true;
        }
        any
    }

    /// All objects are tried again.
    pub(super) fn retry_all(&mut self, now: Instant) {
        for failed in self.0.values_mut() {
            failed.again = now;
        }
    }

    /// Objects that were due at `then` are tried again at `next`.
    pub(super) fn postpone(&mut self, then: Instant, next: Instant) {
        for failed in self.0.values_mut().filter(|failed| failed.again <= then) {
            failed.again = next;
        }
    }

    /// All of them as a status shows them, in the order of their keys.
    pub(super) fn shown(&self) -> Vec<(Class, Reason, Failure)> {
        let mut all = self.0.iter().collect::<Vec<_>>();
        all.sort_by_key(|(key, _)| *key);
        let shown = |(key, failed): (&Key, &Failed)| {
            let reason = failed.reason.as_str();
            let message = failed.message.clone();
            (failed.class, failed.reason, Failure { object: key.to_string(), reason, message })
        };
        all.into_iter().map(shown).collect()
    }
}
