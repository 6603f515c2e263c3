//! Remaining drift of managed objects, and its changes by events and writes.
//!
//! Invariant: the start of a drift stays the same until the drift ends, even if the agent restarts.
//! Invariant: drift that does not remain costs nothing, and remaining drift needs no walk over other objects.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::autoscaler::Autoscaler;
use super::desired::Desired;
use super::object::Managed;
use super::objects::Topic;
use super::pending::Sight;
use super::projection;
use super::remaining::{Differing, RemainingDrift};
use super::store::Store;
use super::summary::SHOWN;
use super::verdict::{Reason, Verdict, resource_version};
use mainstay_api::DriftPolicy;
use mainstay_api::git_sync::{DriftReason, Drifted};
use mainstay_object::{Digest, Key, Owner};

impl Managed {
    /// Returns the remaining drift: the object drifted and is not reverted immediately.
    pub(crate) fn drift(&self) -> Option<&Drifted> {
        self.drift.as_ref().map(|drift| &drift.shown)
    }

    /// Whether the object is missing and is not recreated immediately.
    pub(crate) fn remains_absent(&self) -> bool {
        self.drift().is_some_and(Drifted::is_absent)
    }

    /// Whether the object's drift was only reported.
    pub(crate) fn is_reported(&self) -> bool {
        self.drift().is_some_and(|drift| drift.reason == DriftReason::Report)
    }

    /// Whether the object's drift was reported in this state, which lacks Mainstay's label.
    pub(crate) fn is_reported_as(&self, live: &Value) -> bool {
        let is_known = self.drift.as_ref().is_some_and(|drift| *drift.version == *resource_version(live));
        is_known && self.is_reported() && !self.desired.mark.is_on(live)
    }

    /// Whether the object's absence was reported.
    pub(crate) fn is_reported_absent(&self) -> bool {
        self.is_reported() && self.remains_absent()
    }

    /// Records remaining drift with its reason.
    pub(crate) fn remain(
        &mut self,
        differing: Differing,
        live: Option<&Value>,
        reason: DriftReason,
        next_attempt: Option<Timestamp>,
        now: Timestamp,
    ) {
        let since = self.drift().map_or(Time(now), |shown| shown.since.clone());
        let (mut shown, paths) = differing.bounded().shown(&self.desired, reason, since);
        shown.next_attempt = next_attempt.map(Time);
        let version = live.map(resource_version).unwrap_or_default().into();
        let digest = live.and_then(|live| self.digest_of(live));
        let drift = RemainingDrift { shown, paths, digest, version, known_by: None, is_answered: false };
        self.drift = Some(Box::new(drift));
    }

    fn digest_of(&self, live: &Value) -> Option<Digest> {
        projection::digest(&self.desired.view(live), &self.applied.last()?.empty_containers)
    }

    /// Records remaining drift of the object in this state.
    fn remain_as(&mut self, live: &Value, reason: DriftReason, autoscaled: Option<Autoscaler>, now: Timestamp) {
        let (digest, seen) = (self.digest_of(live), Differing::of(&self.desired, live, autoscaled).bounded());
        let next_attempt = match self.drift.as_mut() {
            // The fields come from the server's response. If the result of the agent's own comparison changes, other
            // values may differ now, and the drift is reported again.
            Some(drift) if reason == DriftReason::Report && drift.known_by.is_some() && drift.digest == digest => {
                drift.version = resource_version(live).into();
                if drift.known_by.as_ref() != Some(&seen.fields) {
                    drift.known_by = Some(seen.fields.clone());
                    self.reported = None;
                }
                drift.update_values(seen);
                return;
            }
            Some(drift) if drift.shown.reason == reason => drift.shown.next_attempt.take(),
            _ => None,
        };
        self.remain(seen, Some(live), reason, next_attempt.map(|time| time.0), now);
    }

    /// Updates the remaining drift after a verdict on the live object.
    pub(crate) fn note_drift(
        &mut self,
        verdict: &Verdict,
        live: &Value,
        autoscaled: Option<Autoscaler>,
        now: Timestamp,
    ) {
        self.is_absent = false;
        let is_as_recalled = match verdict {
            Verdict::AwaitDeletion => true,
            Verdict::LeaveAlone(reason) => {
                matches!(reason, Reason::BreakGlass(_) | Reason::Report | Reason::Unread)
            }
            Verdict::InSync | Verdict::Revert => false,
        };
        self.may_be_recalled &= is_as_recalled;
        match verdict {
            // This state is older than the one in which the drift was found.
            Verdict::InSync if self.drift.as_ref().is_some_and(|drift| drift.is_newer_than(resource_version(live))) => {
            }
            Verdict::InSync | Verdict::LeaveAlone(Reason::Controlled | Reason::Ignore) => self.drift = None,
            Verdict::LeaveAlone(Reason::BreakGlass(_)) => {
                let is_as_applied = self.applied.last().is_some_and(|last| self.digest_of(live) == last.digest);
                if self.applied.is_outdated() || !is_as_applied {
                    self.remain_as(live, DriftReason::Paused, autoscaled, now);
                } else {
                    self.drift = None;
                }
            }
            Verdict::LeaveAlone(Reason::Unread) => self.remain_as(live, DriftReason::Unread, autoscaled, now),
            // A new drift is reverted or reported immediately, so only a known drift is updated.
            Verdict::Revert | Verdict::LeaveAlone(Reason::Report) => {
                if let Some(reason) = self.drift().map(|drift| drift.reason) {
                    self.remain_as(live, reason, autoscaled, now);
                }
            }
            Verdict::AwaitDeletion => {}
        }
    }
}

/// A queued revert or report.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) owner: Owner,
    pub(crate) desired: Arc<Desired>,
    /// The live object, if the queue still has it.
    pub(crate) live: Option<Value>,
    /// Whether the object vanished from the watch and was not read since then.
    pub(crate) is_missing: bool,
}

impl Store {
    /// Records that a commit was not applied to an object because the object is paused.
    pub(crate) fn note_held_back(&mut self, key: &Key, now: Timestamp) {
        if let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.drift.is_none() && m.applied.is_outdated()) {
            managed.remain(Differing::somehow(), None, DriftReason::Paused, None, now);
        }
    }

    /// Records that an object was read and does not exist.
    pub(crate) fn note_absent(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.is_absent = true;
        }
    }

    /// Ends the remaining drift of an object.
    pub(crate) fn end_drift(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.drift = None;
        }
    }

    /// Records that the drift of an object was reported and remains. Returns whether the object must be watched by
    /// name: it lacks Mainstay's label, and its owner has few such objects.
    pub(crate) fn note_reported(
        &mut self,
        key: &Key,
        differing: Differing,
        live: Option<&Value>,
        now: Timestamp,
    ) -> bool {
        let autoscaled = self.autoscaled.get(key).copied();
        let Some(mut managed) = self.objects.get_mut(key) else { return false };
        managed.remain(differing, live, DriftReason::Report, None, now);
        let known_by = live.map(|live| Differing::of(&managed.desired, live, autoscaled).bounded().fields);
        if let Some(drift) = &mut managed.drift {
            drift.known_by = known_by;
            drift.is_answered = true;
        }
        let is_unmarked = live.is_none_or(|live| !managed.desired.mark.is_on(live));
        let owner = managed.owner.clone();
        drop(managed);
        let drifted = self.objects.tally(&owner).map_or(0, |tally| tally.about(Topic::Drifted).len());
        is_unmarked && drifted <= SHOWN
    }

    /// Records that a revert or report of an object failed, with the time of the next attempt.
    pub(crate) fn note_not_put_back(
        &mut self,
        key: &Key,
        live: Option<&Value>,
        reason: DriftReason,
        again: Timestamp,
        now: Timestamp,
    ) {
        let autoscaled = self.autoscaled.get(key).copied();
        let Some(mut managed) = self.objects.get_mut(key) else { return };
        match live {
            None if managed.is_absent => managed.remain(Differing::absent(), None, reason, None, now),
            // The object could not be read.
            None => {}
            Some(live) => managed.remain_as(live, reason, autoscaled, now),
        }
        managed.expect_attempt(again);
    }

    /// Returns the queued revert or report with this generation.
    pub(crate) fn waiting(&self, key: &Key, generation: u32) -> Option<Waiting> {
        let managed = self.get(key).filter(|m| m.write.is_queued() && m.write.generation() == generation)?;
        let seen = managed.write.pending()?;
        let live = seen.live.as_ref().and_then(Sight::value).map(Cow::into_owned);
        let is_missing = live.is_none() && seen.gone_at.is_some() && managed.ended.is_none() && !managed.is_absent;
        Some(Waiting { owner: managed.owner.clone(), desired: Arc::clone(&managed.desired), live, is_missing })
    }

    /// Records that a revert or report waits until this time. Returns the owner of the object.
    pub(crate) fn note_waiting(
        &mut self,
        key: &Key,
        generation: u32,
        live: Option<&Value>,
        until: Timestamp,
        now: Timestamp,
    ) -> Option<Owner> {
        let autoscaled = self.autoscaled.get(key).copied();
        let mut managed = self.objects.get_mut(key)?;
        let policy = &self.accounts.get(&managed.owner)?.policy;
        if !managed.write.is_queued() || managed.write.generation() != generation || managed.phase.pause().is_some() {
            return None;
        }
        let reason = match policy.drift {
            DriftPolicy::Report => DriftReason::Report,
            _ if managed.attempts() > 0 => DriftReason::RevertFailed,
            _ => DriftReason::Backoff,
        };
        match live {
            Some(live) => managed.remain_as(live, reason, autoscaled, now),
            None if managed.is_absent => managed.remain(Differing::absent(), None, reason, None, now),
            None if managed.drift.is_none() => managed.remain(Differing::somehow(), None, reason, None, now),
            None => {}
        }
        managed.expect_attempt(until);
        Some(managed.owner.clone())
    }
}

impl Managed {
    /// Sets the time of the next revert. Drift that is only reported has none.
    fn expect_attempt(&mut self, at: Timestamp) {
        if let Some(drift) = &mut self.drift {
            drift.shown.next_attempt = (drift.shown.reason != DriftReason::Report).then_some(Time(at));
        }
    }
}
