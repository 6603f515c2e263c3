//! Reverts and reports as the store knows them: those that begin, that failed, and that are repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desired::Desired;
use super::object::{FailedReverts, NotPutBack};
use super::revert_backoff::{Shift, ceiling};
use super::seen::Seen;
use super::store::Store;
use crate::api::DriftPolicy;
use crate::api::git_sync::Revert;
use crate::object::{Key, Owner};

/// A revert or report that begins.
#[derive(Debug)]
pub(crate) struct Begun {
    /// What it must be.
    pub(crate) desired: Arc<Desired>,
    /// What was seen of it, if that still counts.
    pub(crate) seen: Option<Seen>,
    /// It is only reported.
    pub(crate) reports: bool,
}

impl Store {
    /// For whom an object is managed, and how long its revert has to wait at `clock` (of the revert backoff) and `now`.
    pub(crate) fn revert_delay(&self, key: &Key, clock: f64, now: Instant) -> Option<(Owner, Duration)> {
        let managed = self.objects.get(key)?;
        let most = ceiling(&key.group, &key.kind);
        let damped = managed.damping.as_ref().map(|damping| damping.backoff.delay(clock, most));
        let not_before = managed.failing.as_ref().and_then(|failing| failing.reverts.as_ref()?.not_before);
        let failed = not_before.map(|at| at.saturating_duration_since(now));
        Some((managed.owner.clone(), damped.max(failed).unwrap_or_default()))
    }

    /// Starts the revert or report that the owner's policy asks for. `None` when the object is not kept, is leaving, is of
    /// a newer generation, or another write is under way. `seen` is `None` when the policy leaves the object alone by now.
    pub(crate) fn begin_revert(&mut self, key: &Key, generation: u32) -> Option<Begun> {
        let mut managed = self.objects.get_mut(key).filter(|m| m.write.generation() == generation)?;
        let policy = self.accounts.get(&managed.owner)?.policy;
        let drift = if managed.applied.is_outdated() { DriftPolicy::Revert } else { policy.drift };
        if policy.suspended || drift == DriftPolicy::Ignore {
            managed.write.clear_pending();
        }
        if managed.write.is_in_flight() {
            return None;
        }
        if managed.phase.is_leaving() {
            managed.write.end();
            return None;
        }
        let seen = managed.write.begin_revert().map(|seen| *seen);
        Some(Begun { desired: Arc::clone(&managed.desired), seen, reports: drift == DriftPolicy::Report })
    }

    /// A revert or a report failed: what was seen counts again; the caller says when it
    /// is tried again. For as long as it fails for
    /// the same reason, the words of the first time stay: some servers have others every time.
    pub(crate) fn revert_failed(&mut self, key: &Key, seen: Seen, failure: NotPutBack) -> Option<(Owner, u32)> {
        let mut managed = self.objects.get_mut(key)?;
        match &mut managed.failing().reverts {
            Some(reverts) => {
                reverts.attempts += 1;
                if !reverts.failure.is_the_same(&failure) {
                    reverts.failure = failure;
                }
            }
            first => *first = Some(FailedReverts { failure, attempts: 1, not_before: None }),
        }
        managed.reported = None;
        managed.write.restore_pending(Box::new(seen));
        Some((managed.owner.clone(), managed.attempts()))
    }

    /// A failed revert is due at once. Whether one is queued.
    pub(crate) fn reset_failure(&mut self, key: &Key) -> bool {
        let Some(mut managed) = self.objects.get_mut(key) else { return false };
        if let Some(failing) = &mut managed.failing {
            failing.futile = None;
            if let Some(reverts) = &mut failing.reverts {
                reverts.not_before = None;
            }
        }
        managed.write.requeue()
    }

    /// The objects whose last revert failed, of those that `concerns` names.
    pub(crate) fn failed(&self, concerns: impl Fn(&Key) -> bool) -> Vec<Key> {
        let failed = self.objects.iter().filter(|(_, m)| m.failure().is_some());
        failed.filter(|(key, _)| concerns(key)).map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn record(&mut self, owner: &Owner, revert: Revert) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.record(revert);
        }
    }

    /// Somebody changed an object, in these fields; whether it has become contended by that.
    pub(crate) fn count_change(&mut self, key: &Key, clock: f64, fields: &[String], who: &str) -> Shift {
        let Some(mut managed) = self.objects.get_mut(key) else { return Shift::Same };
        let is_new = managed.damping.is_none();
        let damping = managed.damping.get_or_insert_default();
        let shift = damping.backoff.grow(clock);
        let next = damping.backoff.next_change();
        if damping.backoff.update_contended(clock) {
            damping.contended = Some((fields.to_vec(), who.to_owned()));
        }
        if is_new || shift == Shift::Contended {
            self.expiry.expect(key, next);
        }
        shift
    }
}
