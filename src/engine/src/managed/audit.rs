//! The schedule of audits, and the state with which an object is compared.
//!
//! The hash of its identity gives each object a fixed time in the interval. Audits are thus spread evenly and stay at
//! the same times after a restart, and no schedule is stored.
//!
//! Invariant: an object is audited once in an interval.
//! Invariant: objects that the drift loop skips, writes or reverts are not audited.
//!
//! Not here: the clock, and the requests (`drift`, `apply`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::desired::Desired;
use super::pending::{Next, Seen};
use super::remaining::Differing;
use super::store::Store;
use super::verdict::LastApplied;
use mainstay_api::DriftPolicy;
use mainstay_object::{Key, Owner};

/// Number of parts of an interval. The objects of a part are looked up together.
const PARTS: u32 = 60;

/// The schedule of audits. Times are since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    interval: Duration,
}

/// An object that is due.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    /// The owner of the object.
    pub(crate) owner: Owner,
    /// The desired state.
    pub(crate) desired: Arc<Desired>,
    /// The last apply, with which the response is compared.
    pub(crate) known: LastApplied,
}

impl Schedule {
    /// Returns a schedule with this interval; `None` if it is 0.
    pub(crate) fn every(interval: Duration) -> Option<Self> {
        (!interval.is_zero()).then_some(Self { interval })
    }

    /// The part of an interval for which objects are looked up together.
    pub(crate) fn part(self) -> Duration {
        (self.interval / PARTS).max(Duration::from_millis(1))
    }

    /// Returns the time from which audits continue at `now`, if all audits until `done` were made. Late audits are made
    /// up for in order, but missed whole intervals are skipped.
    pub(crate) fn resume(self, done: Duration, now: Duration) -> Duration {
        // The clock was set back.
        let Some(late) = now.checked_sub(done) else {
            return if done.saturating_sub(now) > self.part() { now } else { done };
        };
        let missed = late.as_nanos() / self.interval.as_nanos().max(1);
        let missed = self.interval.as_nanos() * missed;
        done + Duration::from_nanos(u64::try_from(missed).unwrap_or_default())
    }

    /// Returns the time of an object's first audit at or after `from`.
    pub(crate) fn next(self, key: &Key, from: Duration) -> Duration {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let interval = self.interval.as_nanos();
        // The result is less than the interval.
        let place = (interval * u128::from(hasher.finish())) >> 64;
        let wait = (place + interval - from.as_nanos() % interval) % interval;
        from + Duration::from_nanos(u64::try_from(wait).unwrap_or_default())
    }
}

impl Store {
    /// Returns the objects that are due from `from` until before `to`, in order.
    pub(crate) fn audits_due(&self, schedule: Schedule, from: Duration, to: Duration) -> Vec<(Duration, Key)> {
        let applied = self.objects.iter().filter(|(_, managed)| managed.is_applied() && !managed.phase.is_leaving());
        let due = applied.map(|(key, _)| (schedule.next(key, from), key)).filter(|(at, _)| *at < to);
        let mut due = due.map(|(at, key)| (at, key.clone())).collect::<Vec<_>>();
        due.sort_unstable();
        due
    }

    /// Returns the state for the audit of an object. `None` if the object is exempt from reverts, has known drift, is
    /// being written or reverted, or was not seen yet.
    pub(crate) fn begin_audit(&self, key: &Key) -> Option<Audit> {
        let managed = self.get(key)?;
        let account = self.accounts.get(&managed.owner)?;
        let is_left = account.policy.suspended || account.policy.drift == DriftPolicy::Ignore;
        let is_spared =
            account.unread.contains_key(key) || managed.phase.is_leaving() || managed.phase.pause().is_some();
        let is_busy = managed.write.is_queued() || managed.write.is_in_flight() || managed.applied.is_outdated();
        let is_otherwise = managed.drift.is_some() || managed.ended.is_some() || managed.successor.is_some();
        let known = managed.applied.last().filter(|last| !last.resource_version.is_empty() && last.digest.is_some())?;
        if is_left || is_spared || is_busy || is_otherwise || managed.is_absent {
            return None;
        }
        let (owner, desired) = (managed.owner.clone(), Arc::clone(&managed.desired));
        Some(Audit { owner, desired, known: known.clone() })
    }

    /// Whether the state of an object is still that from the start of its audit.
    pub(crate) fn is_as_audited(&self, audit: &Audit) -> bool {
        let now = self.begin_audit(&audit.desired.key);
        now.is_some_and(|now| now.known == audit.known && Arc::ptr_eq(&now.desired, &audit.desired))
    }

    /// Queues an object that an apply would change although its fields did not change since the last apply. The object
    /// is reverted or reported.
    pub(crate) fn enqueue_audited(&mut self, key: &Key, live: Value, at: Instant) -> Next {
        let queued = self.objects.queued();
        let Some(mut managed) = self.objects.get_mut(key) else { return Next::Nothing };
        managed.write.enqueue(Seen::of(live, at), queued)
    }

    /// Returns the differences between a live object and its manifest.
    pub(crate) fn differing(&self, desired: &Desired, live: &Value) -> Differing {
        Differing::of(desired, live, self.autoscaled.get(&desired.key).copied()).bounded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::PauseEnd;
    use crate::managed::fixtures::{applied, applying};

    const HOUR: Duration = Duration::from_secs(3600);

    fn keys(count: usize) -> Vec<Key> {
        (0..count).map(|number| Key::new("", "ConfigMap", Some("shop"), format!("map-{number}"))).collect()
    }

    #[test]
    fn ten_thousand_objects_are_spread_evenly_over_the_hour() {
        let schedule = Schedule::every(HOUR).unwrap();
        let mut minutes = [0; 60];
        for key in keys(10_000) {
            let at = schedule.next(&key, HOUR * 7);
            assert!((HOUR * 7..HOUR * 8).contains(&at));
            minutes[usize::try_from(at.saturating_sub(HOUR * 7).as_secs() / 60).unwrap()] += 1;
        }
        // The mean is 167; five standard deviations of the binomial distribution are 65.
        assert!(minutes.iter().all(|count| (100..=235).contains(count)), "{minutes:?}");
    }

    #[test]
    fn each_object_is_audited_once_in_an_interval_wherever_it_begins() {
        let schedule = Schedule::every(HOUR).unwrap();
        for key in keys(100) {
            let first = schedule.next(&key, Duration::from_secs(123_456_789));
            assert_eq!(schedule.next(&key, first), first);
            assert_eq!(schedule.next(&key, first + Duration::from_nanos(1)), first + HOUR);
            assert_eq!(
                schedule.next(&key, first.saturating_sub(Duration::from_secs(10))),
                first,
                "a restart changes nothing"
            );
        }
    }

    #[test]
    fn late_audits_are_caught_up_within_one_interval() {
        let schedule = Schedule::every(HOUR).unwrap();
        let at = Duration::from_secs(1_000_000);
        assert_eq!(schedule.resume(at, at + HOUR / 2), at, "late ones come in their order");
        assert_eq!(schedule.resume(at, at + HOUR * 2 + HOUR / 2), at + HOUR * 2);
        assert_eq!(schedule.resume(at, at.saturating_sub(Duration::from_secs(1))), at);
        assert_eq!(schedule.resume(at, at.saturating_sub(HOUR)), at.saturating_sub(HOUR), "the clock was set back");
        assert_eq!(Schedule::every(Duration::ZERO), None);
    }

    #[test]
    fn objects_that_the_drift_loop_skips_or_works_on_are_not_audited() {
        let (mut store, desired) = applied();
        let key = &desired.key;
        assert!(store.begin_audit(key).is_some_and(|audit| store.is_as_audited(&audit)));
        store.get_mut(key).unwrap().phase.begin_pause(PauseEnd::Open);
        assert!(store.begin_audit(key).is_none(), "under break glass");
        store.get_mut(key).unwrap().phase.end_pause();
        store.get_mut(key).unwrap().phase.leave();
        assert!(store.begin_audit(key).is_none(), "it leaves");
        assert!(store.audits_due(Schedule::every(HOUR).unwrap(), HOUR, HOUR * 2).is_empty());
        store.get_mut(key).unwrap().phase.stay();
        assert_eq!(store.audits_due(Schedule::every(HOUR).unwrap(), HOUR, HOUR * 2).len(), 1);
        let audit = store.begin_audit(key).unwrap();
        let next = store.enqueue_audited(key, serde_json::json!({}), Instant::now());
        assert_eq!(next, Next::Queue);
        assert!(store.begin_audit(key).is_none() && !store.is_as_audited(&audit), "it is being reverted");
        let (store, desired) = applying();
        assert!(store.begin_audit(&desired.key).is_none(), "it is being applied");
    }

    #[test]
    fn suspended_and_ignored_objects_are_not_audited() {
        for (suspended, drift) in [(true, DriftPolicy::Revert), (false, DriftPolicy::Ignore)] {
            let (mut store, desired) = applied();
            let owner = store.get(&desired.key).unwrap().owner.clone();
            let policy = &mut store.accounts.get_mut(&owner).unwrap().policy;
            (policy.suspended, policy.drift) = (suspended, drift);
            assert!(store.begin_audit(&desired.key).is_none());
        }
    }
}
