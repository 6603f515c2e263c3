//! Records decisions about objects: pauses, their ends, and drift that was only reported.
//!
//! Invariant: an agent that starts and sees the pauses and the reported drift of a status again records nothing.

use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::decisions::{caused_by, decision, paused};
use super::desired::Desired;
use super::pause_end::PauseEnd;
use super::pending::Next;
use super::phase::Pause;
use super::remaining::Differing;
use super::store::Store;
use super::verdict::Verdict;
use mainstay_api::git_sync::{Decided, Decision, DriftReason, WHOLE_OBJECT};
use mainstay_cluster::Kind;
use mainstay_object::{Key, Owner};

impl Store {
    /// Handles the live state of an object. Returns the consequence of the verdict on it.
    pub(crate) fn see(&mut self, kind: &Kind, key: &Key, live: Value, at: Instant, now: Timestamp) -> Next {
        let before = self.pause_of(key);
        let next = self.see_now(kind, key, live, at, now);
        self.record_pause(key, before, now);
        next
    }

    /// Returns the verdict on an object that was read because its last event did not contain it. Ends its pause if the
    /// object is not paused any more and its drift is not reverted.
    pub(crate) fn judge(&mut self, key: &Key, live: &Value, now: Timestamp) -> Verdict {
        let before = self.pause_of(key);
        let verdict = self.judge_now(key, live, now);
        self.record_pause(key, before, now);
        verdict
    }

    /// Begins the pause of an object. Returns whether the pause or its end is new.
    pub(crate) fn begin_pause(&mut self, key: &Key, until: PauseEnd, now: Timestamp) -> bool {
        let before = self.pause_of(key);
        let is_new = self.objects.get_mut(key).is_some_and(|mut managed| managed.phase.begin_pause(until));
        self.record_pause(key, before, now);
        is_new
    }

    /// Ends the pause of an object. Returns whether there was one.
    pub(crate) fn end_pause(&mut self, key: &Key, now: Timestamp) -> bool {
        let before = self.pause_of(key);
        let was_paused = self.objects.get_mut(key).is_some_and(|mut managed| managed.phase.end_pause());
        self.record_pause(key, before, now);
        was_paused
    }

    /// Returns the pause of an object.
    pub(crate) fn pause_of(&self, key: &Key) -> Option<Pause> {
        self.get(key)?.phase.pause()
    }

    /// Records that an object was paused or resumed, if its pause is not the one `before`.
    pub(super) fn record_pause(&mut self, key: &Key, before: Option<Pause>, now: Timestamp) {
        let Some(managed) = self.get(key).filter(|managed| managed.phase.pause() != before) else { return };
        let (pause, owner) = (managed.phase.pause(), managed.owner.clone());
        let may_be_recalled = self.end_recall(key);
        let recorded = match pause {
            None => decision(Decided::Resumed, key, now),
            Some(Pause { until }) => {
                let account = self.accounts.get(&owner).filter(|_| may_be_recalled);
                if account.is_some_and(|account| account.known.has_pause(&key.to_string(), until)) {
                    return;
                }
                paused(key, until, now)
            }
        };
        self.record_decision(&owner, recorded);
    }

    /// Records that drift is reported, before [`note_reported`](Self::note_reported).
    pub(crate) fn record_report(&mut self, owner: &Owner, desired: &Desired, differing: &Differing, now: Timestamp) {
        let key = &desired.key;
        let Some(managed) = self.get(key) else { return };
        // Each list that lacks an object reports its absence again.
        let is_known = managed.is_reported_absent() && managed.drift.as_ref().is_some_and(|drift| drift.is_answered);
        let is_repeated = is_known && differing.fields == [WHOLE_OBJECT];
        let may_be_recalled = self.end_recall(key);
        let account = self.accounts.get(owner).filter(|_| may_be_recalled);
        let is_recalled = account.is_some_and(|account| {
            let (shown, _) = differing.clone().bounded().shown(desired, DriftReason::Report, Time(now));
            account.known.has_report(&shown)
        });
        if !is_repeated && !is_recalled {
            self.record_decision(owner, caused_by(Decided::Reported, &differing.who, key, now));
        }
    }

    /// Records a decision about an object of a GitSync. The decisions about other objects are in no status.
    pub(crate) fn record_decision(&mut self, owner: &Owner, decision: Decision) {
        if matches!(owner, Owner::GitSync(_)) && self.accounts.contains_key(owner) {
            self.decisions.record(owner, decision);
        }
    }

    /// Removes the decisions about an owner's objects.
    pub(crate) fn forget_decisions(&mut self, owner: &Owner) {
        self.decisions.remove_owner(owner);
    }

    /// Returns whether the pause or reported drift of an object may be that of the recalled status. The next one is new.
    fn end_recall(&mut self, key: &Key) -> bool {
        self.objects.get_mut(key).is_some_and(|mut managed| std::mem::take(&mut managed.may_be_recalled))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::managed::fixtures::{POLICY, applied, live, verify};
    use crate::managed::inventory::Inventory;
    use crate::managed::verdict::{LastApplied, Reason};
    use crate::managed::{History, Policy, projection};
    use mainstay_api::DriftPolicy;
    use mainstay_api::git_sync::{self, Drifted};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn owner() -> Owner {
        Owner::git_sync("shop", "demo")
    }

    /// Shows a state of the object, which is paused if `until` is given.
    fn see(store: &mut Store, desired: &Desired, version: u64, value: &str, until: Option<&str>) -> Next {
        let live = until.map_or_else(|| live(version, value), |until| paused_live(version, value, until));
        store.see(&desired.kind, &desired.key, live, Instant::now(), NOW)
    }

    fn paused_live(version: u64, value: &str, until: &str) -> Value {
        let mut live = live(version, value);
        live["metadata"]["annotations"] = json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until});
        live
    }

    fn decided(store: &Store) -> Vec<Decided> {
        store.decisions.of(&owner()).into_iter().map(|known| known.decided).collect()
    }

    /// Returns the store of a new agent with an object that an earlier agent applied.
    fn restarted(drift: DriftPolicy, history: History) -> (Store, Arc<Desired>) {
        let (_, desired) = applied();
        let mut store = Store::default();
        store.set_policy(&owner(), Policy { drift, ..POLICY }, history);
        let live = live(1, "1");
        let empty_containers = projection::empty_containers(&live, &desired.body());
        let digest = projection::digest(&live, &empty_containers);
        store.hold(&owner(), Arc::clone(&desired), LastApplied { digest, ..LastApplied::default() });
        (store, desired)
    }

    const UNTIL: Option<&str> = Some("2030-01-01T00:00:00Z");
    const PAUSED: Next = Next::Paused(PauseEnd::At(Timestamp::constant(1_893_456_000, 0)));

    #[test]
    fn each_pause_and_each_end_is_recorded() {
        let (mut store, desired) = applied();
        let key = &desired.key;
        assert_eq!(see(&mut store, &desired, 6, "1", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 7, "2", UNTIL), Next::Nothing);
        assert_eq!(see(&mut store, &desired, 8, "2", None), Next::Queue);
        let generation = store.get(key).unwrap().write.generation();
        assert!(store.begin_revert(key, generation).is_some());
        verify(&mut store, &desired, &live(9, "1"), &desired.body());
        assert_eq!(store.end(key, NOW), Next::Nothing);
        assert_eq!(decided(&store), [Decided::Resumed, Decided::Paused]);
        assert_eq!(see(&mut store, &desired, 10, "1", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 11, "1", None), Next::Resumed);
        let all = [Decided::Resumed, Decided::Paused, Decided::Resumed, Decided::Paused];
        assert_eq!(decided(&store), all);
        assert_eq!(store.decisions.of(&owner())[1].until, Some(Time("2030-01-01T00:00:00Z".parse().unwrap())));
    }

    #[test]
    fn a_resumed_object_whose_drift_is_only_reported_is_not_paused_any_more() {
        let (mut store, desired) = restarted(DriftPolicy::Report, History::default());
        assert_eq!(see(&mut store, &desired, 6, "2", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 7, "2", None), Next::Queue);
        assert_eq!(store.pause_of(&desired.key), None);
        assert_eq!(decided(&store), [Decided::Resumed, Decided::Paused]);
    }

    #[test]
    fn reported_drift_is_reported_again_after_a_pause_and_the_end_of_an_ignored_one_is_announced() {
        let (mut store, desired) = restarted(DriftPolicy::Report, History::default());
        assert_eq!(see(&mut store, &desired, 6, "2", None), Next::Queue);
        let generation = store.get(&desired.key).unwrap().write.generation();
        assert!(store.begin_revert(&desired.key, generation).is_some_and(|begun| begun.reports));
        assert_eq!(store.end(&desired.key, NOW), Next::Nothing);
        assert_eq!(see(&mut store, &desired, 7, "2", None), Next::Nothing);
        assert_eq!(see(&mut store, &desired, 8, "2", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 9, "2", None), Next::Queue);

        let (mut store, desired) = restarted(DriftPolicy::Ignore, History::default());
        assert_eq!(see(&mut store, &desired, 6, "2", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 7, "2", None), Next::Resumed);
        assert_eq!(see(&mut store, &desired, 8, "2", None), Next::Nothing);
    }

    #[test]
    fn a_pause_ends_at_its_time_without_an_event_if_drift_is_not_reverted() {
        for (drift, reason) in [(DriftPolicy::Report, Reason::Report), (DriftPolicy::Ignore, Reason::Ignore)] {
            let (mut store, desired) = restarted(drift, History::default());
            let (key, end) = (&desired.key, Timestamp::constant(1_893_456_000, 0));
            assert_eq!(see(&mut store, &desired, 6, "2", UNTIL), PAUSED);
            assert_eq!(store.look_now(key, Instant::now()), Next::Queue);
            let generation = store.get(key).unwrap().write.generation();
            let begun = store.begin_revert(key, generation).unwrap();
            assert!(begun.reports && begun.seen.is_some(), "it is read");
            let live = paused_live(6, "2", UNTIL.unwrap());
            let paused = Verdict::LeaveAlone(Reason::BreakGlass(PauseEnd::At(end)));
            assert_eq!(store.judge(key, &live, NOW), paused);
            store.set_policy(&owner(), Policy { drift, suspended: true, ..POLICY }, History::default());
            assert_eq!(store.judge(key, &live, end), Verdict::LeaveAlone(Reason::Ignore));
            assert_eq!(decided(&store), [Decided::Paused], "its owner is suspended");
            store.set_policy(&owner(), Policy { drift, ..POLICY }, History::default());
            assert_eq!(store.judge(key, &live, end), Verdict::LeaveAlone(reason));
            assert_eq!((store.pause_of(key), decided(&store)), (None, vec![Decided::Resumed, Decided::Paused]));
        }
    }

    #[test]
    fn decisions_about_a_removed_object_are_removed_unless_it_was_never_applied() {
        let (mut store, desired) = applied();
        assert_eq!(see(&mut store, &desired, 6, "1", UNTIL), PAUSED);
        assert_eq!(see(&mut store, &desired, 7, "1", None), Next::Resumed);
        store.remove(&owner(), &desired.key);
        assert!(decided(&store).is_empty());

        let pause =
            git_sync::Pause { object: "ConfigMap shop/a".to_owned(), until: UNTIL.map(str::to_owned), problem: None };
        let last_decisions = vec![paused(&desired.key, PauseEnd::Open, NOW)];
        let history = History { paused: vec![pause], last_decisions, ..History::default() };
        let mut store = Store::default();
        store.set_policy(&owner(), POLICY, history);
        store.set_inventory(&owner(), Inventory::default());
        // An apply finds the object of another client. Then its pause is found.
        for is_found in [false, true] {
            store.hold(&owner(), Arc::clone(&desired), LastApplied::default());
            if is_found {
                assert!(store.begin_pause(&desired.key, PauseEnd::At(Timestamp::constant(1_893_456_000, 0)), NOW));
            } else {
                store.remove(&owner(), &desired.key);
            }
            assert_eq!(decided(&store), [Decided::Paused]);
        }
    }

    #[test]
    fn a_new_agent_records_a_known_pause_only_once_it_ends() {
        let pause =
            git_sync::Pause { object: "ConfigMap shop/a".to_owned(), until: UNTIL.map(str::to_owned), problem: None };
        let history = || History { paused: vec![pause.clone()], ..History::default() };
        let (mut store, desired) = restarted(DriftPolicy::Revert, history());
        assert_eq!(see(&mut store, &desired, 6, "1", UNTIL), PAUSED);
        assert!(decided(&store).is_empty());
        assert_eq!(see(&mut store, &desired, 7, "1", None), Next::Resumed);
        assert_eq!(see(&mut store, &desired, 8, "1", UNTIL), PAUSED);
        assert_eq!(decided(&store), [Decided::Paused, Decided::Resumed]);

        let (mut store, desired) = restarted(DriftPolicy::Revert, history());
        assert_eq!(see(&mut store, &desired, 6, "1", None), Next::Nothing);
        assert_eq!(see(&mut store, &desired, 7, "1", UNTIL), PAUSED);
        assert_eq!(decided(&store), [Decided::Paused], "the recalled pause had ended");
        let (mut store, desired) = restarted(DriftPolicy::Ignore, history());
        assert_eq!(see(&mut store, &desired, 6, "2", None), Next::Nothing);
        assert_eq!(see(&mut store, &desired, 7, "2", UNTIL), PAUSED);
        assert_eq!(decided(&store), [Decided::Paused], "the recalled pause had ended, and drift is ignored");
        let (mut store, desired) = restarted(DriftPolicy::Revert, History::default());
        assert!(store.begin_pause(&desired.key, PauseEnd::Open, NOW));
        assert_eq!(decided(&store), [Decided::Paused], "it began while no agent ran");
    }

    #[test]
    fn a_new_agent_records_known_drift_only_if_it_changes() {
        let (fields, who) = (vec!["data.a".to_owned()], "kubectl".to_owned());
        let differing = Differing { fields: fields.clone(), changes: Vec::new(), who: who.clone() };
        let drifted = Drifted {
            object: "ConfigMap shop/a".to_owned(),
            fields,
            changes: Vec::new(),
            who,
            since: Time(NOW),
            reason: DriftReason::Report,
            next_attempt: None,
        };
        let history = History { drifted: vec![drifted], ..History::default() };
        let (mut store, desired) = restarted(DriftPolicy::Report, history);
        assert_eq!(see(&mut store, &desired, 6, "2", None), Next::Queue);
        store.record_report(&owner(), &desired, &differing, NOW);
        assert!(decided(&store).is_empty());
        for _ in 0..2 {
            store.record_report(&owner(), &desired, &differing, NOW);
        }
        assert_eq!(decided(&store), [Decided::Reported]);
        assert_eq!(store.decisions.of(&owner())[0].times, 2);
    }

    #[test]
    fn the_absence_of_an_object_is_recorded_once() {
        let (mut store, desired) = restarted(DriftPolicy::Report, History::default());
        for _ in 0..3 {
            store.record_report(&owner(), &desired, &Differing::absent(), NOW);
            store.note_reported(&desired.key, Differing::absent(), None, NOW);
        }
        assert_eq!(store.decisions.of(&owner())[0].times, 1);
    }
}
