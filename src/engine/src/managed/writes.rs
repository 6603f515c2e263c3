//! Writes to objects in the store: how they start, succeed and fail.
//!
//! A write is an apply for an owner (a put) or a revert. A report is a revert that only sends a dry run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::adoption::Taken;
use super::aliases;
use super::apply_state::ApplyState;
use super::desired::Desired;
use super::inventory::Entry;
use super::object::{Answered, FailedReverts, NotPutBack};
use super::pending::{Seen, Write};
use super::revert_backoff::{Shift, ceiling};
use super::store::Store;
use super::verdict::LastApplied;
use jiff::Timestamp;
use serde_json::Value;

use mainstay_api::DriftPolicy;
use mainstay_api::git_sync::{Replacement, Revert};
use mainstay_object::{Ended, Health, Key, Owner};

/// A revert or report that begins.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The owner of the object.
    pub(crate) owner: Owner,
    /// The desired state.
    pub(crate) desired: Arc<Desired>,
    /// The seen state, unless it is outdated.
    pub(crate) seen: Option<Seen>,
    /// Whether the drift is only reported, or ignored at the end of a pause.
    pub(crate) reports: bool,
}

impl Store {
    /// Begins an apply for the owner. Returns the last resource version and the waiting state, which is obsolete after
    /// a success. Returns `None` for a paused object, which gets the desired state after the pause. Keeps the entry of an
    /// owner that this one outranks until an apply succeeds.
    pub(crate) fn begin_put(&mut self, owner: &Owner, desired: &Arc<Desired>) -> Option<(String, Option<Box<Seen>>)> {
        let key = &desired.key;
        let outranks = self.is_applied_for_another(owner, key) && self.outranks(owner, key);
        let replaced = self.hold(owner, Arc::clone(desired), LastApplied::default());
        let mut managed = self.objects.get_mut(key)?;
        if let Some(replaced) = replaced.filter(|_| outranks) {
            managed.outranked = Some(replaced);
        }
        managed.phase.stay();
        managed.successor = None;
        if managed.phase.pause().is_some() {
            managed.desired = Arc::clone(desired);
            managed.applied.mark_outdated();
            return None;
        }
        let seen = managed.write.begin_put();
        let version = managed.applied.last().map(|last| last.resource_version.to_string());
        Some((version.unwrap_or_default(), seen))
    }

    /// Records a failed apply. If it may have succeeded (`is_unknown`), the object counts as outdated. Restores the
    /// state that was seen before the apply.
    pub(crate) fn put_failed(&mut self, desired: &Arc<Desired>, before: Option<Box<Seen>>, is_unknown: bool) {
        let Some(mut managed) = self.objects.get_mut(&desired.key) else { return };
        if is_unknown && managed.is_applied() {
            managed.desired = Arc::clone(desired);
            managed.applied.mark_outdated();
        }
        if let Some(before) = before {
            managed.write.restore_pending(before);
        }
    }

    /// Puts the entry back that `owner` outranks, because its apply was refused. Does nothing if an apply has succeeded, if
    /// fields were taken over, or if the other owner has given the object up meanwhile. The write in flight continues, and
    /// reverts of earlier generations stay outdated. Returns whether the entry is back: then the caller ends the write and
    /// has the object read.
    pub(crate) fn put_back_outranked(&mut self, owner: &Owner, key: &Key) -> bool {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.owner == *owner && !m.is_applied()) else {
            return false;
        };
        if managed.takeover.is_some() {
            return false;
        }
        let outranked = managed.outranked.take().filter(|outranked| self.accounts.contains_key(&outranked.owner));
        let Some(mut outranked) = outranked else { return false };
        outranked.write = std::mem::replace(&mut managed.write, Write::idle(0));
        outranked.write.requeue();
        drop(managed);
        self.objects.insert(key.clone(), *outranked);
        true
    }

    /// Records a takeover until an apply has removed its fields. After a failed apply, Mainstay still owns them.
    pub(crate) fn begin_takeover(&mut self, key: &Key, mut taken: Taken) {
        let Some(mut managed) = self.objects.get_mut(key) else { return };
        if let Some(earlier) = managed.takeover.take() {
            taken.and_earlier(&earlier);
        }
        managed.takeover = Some(Arc::new(taken));
    }

    /// Returns the takeover of an object whose fields no apply has removed yet.
    pub(crate) fn takeover(&self, key: &Key) -> Option<Arc<Taken>> {
        self.objects.get(key)?.takeover.clone()
    }

    /// Removes the takeover of an object and returns it.
    pub(crate) fn end_takeover(&mut self, key: &Key) -> Option<Arc<Taken>> {
        self.objects.get_mut(key)?.takeover.take()
    }

    /// Records that an object cannot be updated to `desired`, so it is recreated with that state when it is gone.
    pub(crate) fn set_successor(&mut self, desired: &Arc<Desired>) {
        if let Some(mut managed) = self.objects.get_mut(&desired.key).filter(|managed| managed.is_applied()) {
            managed.successor = Some(Arc::clone(desired));
        }
    }

    /// Returns the desired state with which an object is recreated, if it differs from the last apply.
    pub(crate) fn successor(&self, key: &Key) -> Option<Arc<Desired>> {
        self.objects.get(key)?.successor.clone()
    }

    /// Records the response to an apply of `desired`. Returns the owner of the object.
    pub(crate) fn answered(&mut self, desired: &Arc<Desired>, answered: Answered, now: Timestamp) -> Option<Owner> {
        let key = &desired.key;
        let autoscaled = self.autoscaled.contains_key(key);
        let mut managed = self.objects.get_mut(key)?;
        managed.desired = Arc::clone(desired);
        managed.successor = None;
        managed.outranked = None;
        managed.is_at_zero = answered.is_at_zero;
        let meanwhile = managed.ended_meanwhile.take().filter(|(uid, _)| *uid == answered.last_applied.uid);
        managed.ended = answered.ended.or(meanwhile.map(|(_, ended)| ended));
        managed.health = if managed.is_owner() { Health::Healthy } else { answered.health };
        managed.succeeded();
        // An autoscaler may have been added while the count was sent, or removed while it was omitted.
        let is_outdated = if autoscaled { answered.sent_replicas } else { answered.left_out_replicas };
        managed.applied = if is_outdated {
            ApplyState::Outdated(answered.last_applied)
        } else {
            ApplyState::Desired(answered.last_applied)
        };
        let paused = managed.phase.pause();
        managed.phase.end_pause();
        (managed.reported, managed.may_be_recalled) = (None, false);
        (managed.drift, managed.is_absent, managed.is_shown) = (None, false, true);
        managed.gone_at = None;
        let owner = managed.owner.clone();
        drop(managed);
        self.record_pause(key, paused, now);
        self.write_down(key);
        Some(owner)
    }

    /// Whether an apply may remove a field with aliases from an object.
    pub(crate) fn may_leave_aliases(&self, key: &Key, body: &Value) -> bool {
        self.objects.get(key).is_none_or(|managed| {
            managed.may_differ_from_desired() || aliases::may_leave(key, &managed.desired.body(), body)
        })
    }

    /// Records that the desired state changed without a new document.
    pub(crate) fn mark_outdated(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.applied.mark_outdated();
        }
    }

    /// Writes the last apply of an object into its owner's inventory, if the inventory lists the object. The entry of
    /// an outdated object keeps its document, which is the applied one, and does not record its end.
    pub(crate) fn write_down(&mut self, key: &Key) {
        let Some(managed) = self.objects.get(key) else { return };
        let Some(written) = self.written.get_mut(&managed.owner) else { return };
        let Some(last) = managed.applied.last().filter(|last| !last.uid.is_empty()) else { return };
        if managed.phase.is_leaving() {
            return;
        }
        let entry = Entry::of(&managed.desired, &last.uid, last.digest);
        let entry = match written.inventory.0.get(key) {
            Some(known) if managed.applied.is_outdated() => Entry { uid: entry.uid, ended: None, ..known.clone() },
            _ => Entry { ended: managed.ended, ..entry },
        };
        written.set(key, entry);
    }

    /// Returns the owner of an object, and the delay of its revert at `clock` (of the revert backoff) and `now`.
    pub(crate) fn revert_delay(&self, key: &Key, clock: f64, now: Instant) -> Option<(Owner, Duration)> {
        let managed = self.objects.get(key)?;
        let most = ceiling(&key.group, &key.kind);
        // An object that Mainstay itself deleted is recreated without a delay.
        let damping = managed.damping.as_ref().filter(|_| !managed.is_to_succeed());
        let damped = damping.map(|damping| damping.backoff.delay(clock, most));
        let not_before = managed.failing.as_ref().and_then(|failing| failing.reverts.as_ref()?.not_before);
        let failed = not_before.map(|at| at.saturating_duration_since(now));
        Some((managed.owner.clone(), damped.max(failed).unwrap_or_default()))
    }

    /// Begins the revert or report by the owner's policy. Returns `None` if the object is not stored, was removed, has
    /// a newer generation, or has a write in flight. `seen` is `None` if the policy now exempts the object.
    pub(crate) fn begin_revert(&mut self, key: &Key, generation: u32) -> Option<Begun> {
        let mut managed = self.objects.get_mut(key).filter(|m| m.write.generation() == generation)?;
        let account = self.accounts.get(&managed.owner)?;
        let policy = &account.policy;
        let is_asked = managed.applied.is_outdated() || managed.is_to_succeed();
        let drift = if is_asked { DriftPolicy::Revert } else { policy.drift };
        // A paused object is read, because its pause may be over.
        let is_ignored = drift == DriftPolicy::Ignore && managed.phase.pause().is_none();
        if policy.suspended || is_ignored || account.unread.contains_key(key) {
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
        let (owner, desired) = (managed.owner.clone(), Arc::clone(&managed.desired));
        Some(Begun { owner, desired, seen, reports: drift != DriftPolicy::Revert })
    }

    /// Records that the object with this UID has succeeded, by the word of its owner. An end is final.
    pub(crate) fn note_success(&mut self, owner: &Owner, key: &Key, uid: &str) {
        if let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.owner == *owner && m.last_uid() == uid) {
            managed.ended.get_or_insert(Ended::Succeeded);
        }
    }

    /// Records a failed revert or report, and restores the seen state. Returns the owner and the number of attempts.
    /// The caller sets the time of the next attempt. The first message of a failure stays, because some servers vary
    /// the message.
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

    /// Makes a failed revert due immediately. Returns whether one is queued.
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

    /// Returns the objects that `concerns` selects and whose last revert failed.
    pub(crate) fn failed(&self, concerns: impl Fn(&Key) -> bool) -> Vec<Key> {
        let failed = self.objects.iter().filter(|(_, m)| m.failure().is_some());
        failed.filter(|(key, _)| concerns(key)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the objects of an owner whose last revert failed.
    pub(crate) fn failed_of(&self, owner: &Owner) -> Vec<Key> {
        let failed = self.objects.of(owner).filter(|(_, managed)| managed.failure().is_some());
        failed.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn record_replacement(&mut self, owner: &Owner, replacement: Replacement) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.record_replacement(replacement);
        }
    }

    pub(crate) fn record(&mut self, owner: &Owner, revert: Revert) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.record(revert);
        }
    }

    /// Counts a change of these fields by another manager. Returns whether the object became contended.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::managed::History;
    use crate::managed::fixtures::{POLICY, desired_of, live, verify};
    use mainstay_cluster::{Kind, Scope};

    #[test]
    fn an_object_is_outdated_if_its_autoscaler_leaves_during_the_write() {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let document =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2}});
        let desired = desired_of(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced), &document);
        store.set_policy(&owner, POLICY, History::default());
        assert!(store.begin_put(&owner, &desired).is_some());
        let mut sent = desired.body();
        crate::managed::desired::without_replicas(&mut sent);
        verify(&mut store, &desired, &live(5, "1"), &sent);
        assert!(store.get(&desired.key).unwrap().applied.is_outdated());
        verify(&mut store, &desired, &live(6, "1"), &desired.body());
        assert!(!store.get(&desired.key).unwrap().applied.is_outdated());
    }

    /// Returns a Job `a` that runs an image.
    fn job(image: &str) -> Arc<Desired> {
        let document = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {
            "spec": {"containers": [{"name": "main", "image": image}]}}}});
        desired_of(Kind::fixed("batch/v1", "Job", "jobs", Scope::Namespaced), &document)
    }

    #[test]
    fn a_job_that_ends_during_a_pause_did_not_end_with_the_new_document() {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let (first, second) = (job("one"), job("two"));
        let key = first.key.clone();
        store.set_policy(&owner, POLICY, History::default());
        store.intend(&owner, std::iter::once(&first));
        assert!(store.begin_put(&owner, &first).is_some());
        verify(&mut store, &first, &live(5, "1"), &first.body());
        store.end(&key, jiff::Timestamp::UNIX_EPOCH);
        assert!(store.inventory(&owner).unwrap().0[&key].is_for(&first));

        store.get_mut(&key).unwrap().phase.begin_pause(crate::managed::PauseEnd::Open);
        assert!(store.begin_put(&owner, &second).is_none(), "it is paused");
        let mut ended = live(6, "1");
        ended["status"] = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        store.note_end(&second.kind, &key, &ended);

        let entry = store.inventory(&owner).unwrap().0[&key].clone();
        assert_eq!(entry.ended, None);
        assert!(!entry.is_for(&second), "the second document was never applied");
    }
}
