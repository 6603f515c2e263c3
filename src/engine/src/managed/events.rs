//! Watch events of managed objects, and their consequences.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;

use super::account::{Account, Policy};
use super::additions;
use super::autoscaler::{Autoscaler, is_at_zero};
use super::desired::without_replicas;
use super::health_rules;
use super::object::{Managed, Watched};
use super::pending::{Next, Seen, Sight, number};
use super::projection;
use super::store::Store;
use super::verdict::{self, Reason, Verdict, decide, is_seen, resource_version};
use mainstay_api::DriftPolicy;
use mainstay_cluster::Kind;
use mainstay_object::{Health, Key, Owner, can_end};

/// Queues the report of a state, while `queued` objects wait, unless the same drift is reported already.
fn report(managed: &mut Managed, live: Value, at: Instant, queued: usize) -> Next {
    let view = managed.desired.view(&live);
    let digest = managed.applied.last().and_then(|last| projection::digest(&view, &last.empty_containers));
    let is_reported = managed.reported.replace(digest) == Some(digest);
    if is_reported { Next::Nothing } else { managed.write.enqueue(Seen::of(live, at), queued) }
}

impl Store {
    /// Handles the live state of an object, as [`see`](Self::see), but records no pause.
    pub(super) fn see_now(&mut self, kind: &Kind, key: &Key, live: Value, at: Instant, now: Timestamp) -> Next {
        self.note_end(kind, key, &live);
        let autoscaled = self.autoscaled.get(key).copied();
        let queued = self.objects.queued();
        let Some(mut managed) = self.objects.get_mut(key) else { return Next::Nothing };
        if managed.phase.is_leaving() || !managed.is_of(kind) || managed.was_gone_at(resource_version(&live)) {
            return Next::Nothing;
        }
        (managed.gone_at, managed.unreadable) = (None, None);
        if managed.write.is_in_flight() {
            managed.is_shown = true;
            managed.write.defer(Seen::of(live, at));
            return Next::Nothing;
        }
        if managed.write.needs_newer_than(resource_version(&live)) {
            return Next::Nothing;
        }
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if account.policy.suspended || !managed.is_applied() {
            return Next::Nothing;
        }
        let is_older = managed.applied.is_newer_than(resource_version(&live));
        if is_older && verdict::break_glass_of(&live, now).is_some() {
            // A newer state without the pause is known.
            return Next::Nothing;
        }
        let uid = managed.other_uid(&live);
        let is_known = managed.applied.last().is_some_and(|last| is_seen(last, resource_version(&live)));
        let verdict = account.spare(key, managed.judge(&live, account, &account.policy, autoscaled, now));
        managed.note_drift(&verdict, &live, autoscaled, now);
        let is_changed = matches!(verdict, Verdict::Revert | Verdict::LeaveAlone(Reason::Report | Reason::Ignore));
        let is_resumed = is_changed && managed.resume();
        let next = match verdict {
            // The queued state may be newer than this state, which is already known.
            Verdict::InSync if managed.write.is_queued() && is_known => Next::Nothing,
            Verdict::InSync => {
                managed.write.clear_in_sync();
                if managed.phase.end_pause() { Next::Resumed } else { Next::Nothing }
            }
            Verdict::Revert => managed.write.enqueue(Seen::of(live, at), queued),
            Verdict::LeaveAlone(Reason::BreakGlass(until)) => {
                managed.write.clear_in_sync();
                if managed.phase.begin_pause(until) { Next::Paused(until) } else { Next::Nothing }
            }
            Verdict::LeaveAlone(Reason::Report) => report(&mut managed, live, at, queued),
            Verdict::AwaitDeletion | Verdict::LeaveAlone(Reason::Controlled | Reason::Ignore | Reason::Unread) => {
                managed.write.clear_in_sync();
                if is_resumed { Next::Resumed } else { Next::Nothing }
            }
        };
        let is_another = uid.is_some_and(|uid| uid == managed.last_uid());
        drop(managed);
        if is_another {
            self.write_down(key);
        }
        next
    }

    /// Records that a state of an object was shown whose check has panicked.
    pub(crate) fn note_shown(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.is_shown = true;
        }
    }

    /// Records that an object ended.
    pub(crate) fn note_end(&mut self, kind: &Kind, key: &Key, live: &Value) {
        let managed = if can_end(key) { self.objects.get_mut(key) } else { None };
        let has_ended = managed.filter(|m| m.is_of(kind)).is_some_and(|mut m| m.note_end(live));
        if has_ended {
            self.write_down(key);
        }
    }

    /// Handles a deleted object. Returns whether it is not recreated: it had ended in its desired state, it is the owner
    /// itself, a GitSync that a user deleted, or its owner has released it meanwhile.
    pub(crate) fn stays_absent(&mut self, key: &Key) -> bool {
        self.objects.get_mut(key).is_none_or(|mut managed| managed.is_owner() || managed.stays_absent())
    }

    /// Handles an object that vanished from the watch at this version: it was deleted, or it lost its label.
    pub(crate) fn miss(&mut self, kind: &Kind, key: &Key, version: Option<&str>, at: Instant) -> Next {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.is_of(kind) && m.is_expected()) else {
            return Next::Nothing;
        };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        managed.is_shown |= version.is_some();
        if version.is_some_and(|version| managed.applied.is_newer_than(version)) {
            return Next::Nothing;
        }
        managed.gone_at = managed.gone_at.max(version.and_then(number));
        managed.lose_sight(version, at, &account.policy)
    }

    /// Records that an object exists at this version but cannot be parsed. Returns whether this state has to be announced:
    /// the object is managed, and the state was not announced yet.
    pub(crate) fn note_unreadable(&mut self, kind: &Kind, key: &Key, version: &str) -> bool {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.is_of(kind)) else { return false };
        managed.is_shown = true;
        let before = managed.unreadable.replace(version.into());
        version.is_empty() || before.is_none_or(|before| *before != *version)
    }

    /// Returns the objects that a list at this version should have shown but did not. Skips objects that were applied
    /// after the list. Skips objects that are watched by name, unless their drift was only reported: the policy may
    /// have changed since.
    pub(crate) fn missing(&self, kind: &Kind, watched: Watched, shown: &HashSet<Key>, version: &str) -> Vec<Key> {
        let all = self.objects.iter().map(|(_, m)| m);
        all.filter(|m| m.is_missing(kind, watched, shown, version)).map(|m| m.desired.key.clone()).collect()
    }

    /// Queues an object to be read, regardless of its last event.
    pub(crate) fn look_now(&mut self, key: &Key, at: Instant) -> Next {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.is_expected()) else { return Next::Nothing };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        managed.lose_sight(None, at, &account.policy)
    }

    /// Returns the verdict on an object that was read, as [`judge`](Self::judge), but records no end of a pause.
    pub(super) fn judge_now(&mut self, key: &Key, live: &Value, now: Timestamp) -> Verdict {
        let autoscaled = self.autoscaled.get(key).copied();
        let left = Verdict::LeaveAlone(Reason::Ignore);
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| !m.phase.is_leaving()) else { return left };
        let Some(account) = self.accounts.get(&managed.owner) else { return left };
        if account.policy.suspended {
            return left;
        }
        let uid = managed.other_uid(live);
        let verdict = account.spare(key, managed.judge(live, account, &account.policy, autoscaled, now));
        managed.note_drift(&verdict, live, autoscaled, now);
        // No event shows that the time of a pause is over. An object that was never applied has no real verdict.
        let is_left = matches!(verdict, Verdict::LeaveAlone(Reason::Report | Reason::Ignore)) && managed.is_applied();
        if is_left && managed.resume() {
            managed.succeeded();
        }
        let is_another = uid.is_some_and(|uid| uid == managed.last_uid());
        drop(managed);
        if is_another {
            self.write_down(key);
        }
        verdict
    }

    /// Whether an object that was just read has the state that was last applied for this owner. Ignores additions.
    pub(crate) fn is_in_sync(&mut self, owner: &Owner, key: &Key, live: &Value, now: Timestamp) -> bool {
        let autoscaled = self.autoscaled.get(key).copied();
        let Some(account) = self.accounts.get(owner) else { return false };
        let policy = Policy { drift: DriftPolicy::Revert, additions: false, ..account.policy.clone() };
        let managed = self.objects.get_mut(key).filter(|m| m.owner == *owner && !m.phase.is_leaving());
        managed.is_some_and(|mut m| m.judge(live, account, &policy, autoscaled, now) == Verdict::InSync)
    }

    /// Ends a write and handles the state that was seen during the write, before any newer one.
    pub(crate) fn end(&mut self, key: &Key, now: Timestamp) -> Next {
        let Some(mut managed) = self.objects.get_mut(key) else { return Next::Nothing };
        let Some(seen) = managed.write.end() else { return Next::Nothing };
        let kind = Arc::clone(&managed.desired.kind);
        drop(managed);
        let Seen { live, gone_at, at, .. } = *seen;
        match live.and_then(Sight::into_value) {
            Some(live) => self.see(&kind, key, live, at, now),
            None => self.miss(&kind, key, gone_at.as_deref(), at),
        }
    }
}

impl Managed {
    /// Whether the object was gone at this version or later. Unknown versions cannot be compared.
    fn was_gone_at(&self, version: &str) -> bool {
        matches!((self.gone_at, number(version)), (Some(gone_at), Some(version)) if version <= gone_at)
    }

    /// Whether a list at this version should have shown the object but did not.
    fn is_missing(&self, kind: &Kind, watched: Watched, shown: &HashSet<Key>, version: &str) -> bool {
        watched == Watched::by(&self.desired.mark)
            && self.is_of(kind)
            && self.is_expected()
            && (self.followed.is_none() || self.is_reported())
            && !self.applied.is_newer_than(version)
            && !shown.contains(&self.desired.key)
    }

    /// Returns the verdict on a live object, and updates the known state.
    fn judge(
        &mut self,
        live: &Value,
        account: &Account,
        policy: &Policy,
        autoscaled: Option<Autoscaler>,
        now: Timestamp,
    ) -> Verdict {
        // Set before the checks, which may panic.
        self.is_shown = true;
        (self.gone_at, self.unreadable) = (None, None);
        let is_outdated = self.applied.is_outdated();
        let is_newer = !self.applied.is_newer_than(resource_version(live));
        let is_owner = self.is_owner();
        let Some(last) = self.applied.last_mut() else { return Verdict::LeaveAlone(Reason::Ignore) };
        let view = self.desired.view(live);
        if last.resource_version.is_empty() {
            // An earlier agent verified the object and stored only the digest.
            let mut sent = self.desired.body();
            if autoscaled.is_some() {
                without_replicas(&mut sent);
            }
            last.empty_containers = projection::empty_containers(&view, &sent);
        }
        let mut woken = None;
        if is_newer {
            self.health = if is_owner {
                Health::Healthy
            } else {
                let rules = account.health_rules.as_deref();
                health_rules::health(rules, &self.desired.key, &self.desired.object, live)
            };
            self.is_at_zero = is_at_zero(live);
            let autoscaler = autoscaled.filter(|_| self.is_at_zero && !self.desired.ignores_replicas());
            woken = autoscaler.and_then(|autoscaler| autoscaler.woken(&self.desired.body(), live));
            if let Some(count) = woken {
                self.health = Health::Progressing(format!("0 of {count} replicas are wanted: its autoscaler is off"));
            }
        }
        let takes_back = policy.takes_back() && is_newer && self.desired.label().is_some();
        let verdict = match decide(last, &self.desired.mark, &view, policy.drift, now) {
            Verdict::InSync if woken.is_some() && !verdict::is_terminating(live) => match policy.drift {
                DriftPolicy::Revert => Verdict::Revert,
                DriftPolicy::Report => Verdict::LeaveAlone(Reason::Report),
                DriftPolicy::Ignore => Verdict::LeaveAlone(Reason::Ignore),
            },
            Verdict::InSync
                if takes_back && !verdict::is_terminating(live) && additions::are_in(&self.desired, &view) =>
            {
                Verdict::Revert
            }
            Verdict::InSync | Verdict::LeaveAlone(Reason::Report | Reason::Ignore) if is_outdated => Verdict::Revert,
            verdict => verdict,
        };
        let verdict = match verdict {
            // A GitSync does not revert its own suspension.
            Verdict::Revert if is_owner && verdict::is_suspended(live, now) => Verdict::LeaveAlone(Reason::Ignore),
            verdict => verdict,
        };
        match &verdict {
            Verdict::InSync => {
                if is_newer {
                    last.resource_version = resource_version(live).into();
                    last.uid = verdict::uid(live).into();
                }
                self.reported = None;
                self.succeeded();
            }
            // The watch shows when the object is gone.
            Verdict::AwaitDeletion => self.health = Health::Progressing("being deleted".into()),
            Verdict::Revert | Verdict::LeaveAlone(_) => {}
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;
    use crate::managed::fixtures::{POLICY, applied, applying, desired_of, live, verify};
    use crate::managed::pending::SMALL;
    use crate::managed::verdict::LastApplied;
    use crate::managed::{Desired, History};
    use mainstay_api::GitSync;

    #[test]
    fn a_git_sync_neither_ends_its_own_suspension_nor_undoes_its_own_deletion() {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let document = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "demo"}, "spec": {"suspend": false},
        });
        let kind = Kind::of::<GitSync>();
        let desired = desired_of(kind, &document);
        let live = |version: u64, spec: Value| {
            let ours = json!({"f:spec": {"f:suspend": {}, "f:interval": {}}});
            let entry = json!({"manager": "mainstay", "operation": "Apply", "fieldsV1": ours});
            let metadata =
                json!({"name": "demo", "uid": "u", "resourceVersion": version.to_string(), "managedFields": [entry]});
            json!({"metadata": metadata, "spec": spec})
        };
        store.set_policy(&owner, POLICY, History::default());
        assert!(store.begin_put(&owner, &desired).is_some());
        verify(&mut store, &desired, &live(5, json!({"suspend": false})), &desired.body());
        let (kind, key) = (&desired.kind, &desired.key);
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Nothing);
        let mut see = |version: u64, spec: Value| {
            store.see(kind, key, live(version, spec), Instant::now(), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(6, json!({"suspend": true})), Next::Nothing);
        assert_eq!(see(7, json!({"suspend": false, "suspendUntil": "2999-01-01T00:00:00Z"})), Next::Nothing);
        assert_eq!(see(8, json!({"suspend": false, "interval": "3h"})), Next::Queue, "everything else goes back");
        assert!(store.stays_absent(key));
        let (mut store, other) = applied();
        assert!(!store.stays_absent(&other.key));
        store.remove_owner(&owner);
        assert!(store.stays_absent(&other.key), "its owner has released it");
    }

    #[test]
    fn objects_that_a_list_lacks_are_missing_unless_applied_later() {
        let (store, desired) = applied();
        let missing = |shown: &HashSet<Key>, version: &str| {
            store.missing(&desired.kind, Watched::ByUs, shown, version).contains(&desired.key)
        };
        let (none, all) = (HashSet::new(), HashSet::from([desired.key.clone()]));
        assert!(missing(&none, "5") && missing(&none, "6") && missing(&none, "10"));
        assert!(!missing(&none, "4"), "versions compare as numbers");
        assert!(missing(&none, "") && missing(&none, "v4"), "where they are none, it is looked at");
        assert!(!missing(&all, "6"));
    }

    #[test]
    fn a_deletion_during_the_first_apply_is_examined_unless_the_answer_is_newer() {
        for (gone_at, next) in [("7", Next::Queue), ("4", Next::Nothing)] {
            let (mut store, desired) = applying();
            let (key, kind, now) = (&desired.key, &desired.kind, Instant::now());
            assert_eq!(store.missing(kind, Watched::ByUs, &HashSet::new(), gone_at), std::slice::from_ref(key));
            assert_eq!(store.miss(kind, key, Some(gone_at), now), Next::Nothing);
            verify(&mut store, &desired, &live(5, "1"), &desired.body());
            assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), next, "gone at {gone_at}");
        }
    }

    #[test]
    fn an_edit_right_after_a_revert_outlasts_the_event_of_the_revert() {
        let (mut store, desired) = applied();
        let (kind, key) = (&desired.kind, &desired.key);
        let see = |store: &mut Store, version: u64, value: &str| {
            store.see(kind, key, live(version, value), Instant::now(), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(&mut store, 6, "2"), Next::Queue);
        let generation = store.get(key).unwrap().write.generation();
        assert!(store.begin_revert(key, generation).is_some());
        verify(&mut store, &desired, &live(7, "1"), &desired.body());
        assert_eq!(see(&mut store, 7, "1"), Next::Nothing, "the revert's own event waits for its end");
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Nothing);
        assert_eq!(see(&mut store, 8, "2"), Next::Queue);
        assert_eq!(see(&mut store, 7, "1"), Next::Nothing, "older than what waits");
        let seen = store.begin_revert(key, generation).unwrap().seen;
        assert_eq!(seen.unwrap().live.unwrap().into_value(), Some(live(8, "2")));
    }

    /// Returns a store with an object that an earlier agent applied and no watch has shown.
    fn taken_over() -> (Store, Arc<Desired>) {
        let (_, desired) = applied();
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        store.set_policy(&owner, POLICY, History::default());
        let live = live(1, "1");
        let view = desired.view(&live);
        let empty_containers = projection::empty_containers(&view, &desired.body());
        let digest = projection::digest(&view, &empty_containers);
        store.hold(&owner, Arc::clone(&desired), LastApplied { digest, ..LastApplied::default() });
        (store, desired)
    }

    #[test]
    fn a_deletion_outlasts_an_older_state_of_a_list() {
        let (mut store, desired) = taken_over();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        assert!(store.is_unshown(key));
        assert_eq!(store.miss(kind, key, Some("105"), now), Next::Queue);
        assert!(!store.is_unshown(key), "the watch has shown the deletion");
        assert_eq!(store.see(kind, key, live(90, "1"), now, Timestamp::UNIX_EPOCH), Next::Nothing);
        let generation = store.get(key).unwrap().write.generation();
        let seen = store.begin_revert(key, generation).unwrap().seen.unwrap();
        assert_eq!((seen.live.is_none(), seen.gone_at.as_deref()), (true, Some("105")));
    }

    #[test]
    fn a_reported_deletion_outlasts_older_states_of_a_list() {
        let (mut store, desired) = applied();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        let policy = Policy { drift: DriftPolicy::Report, ..POLICY };
        store.set_policy(&Owner::git_sync("shop", "demo"), policy, History::default());
        assert_eq!(store.miss(kind, key, Some("105"), now), Next::Queue);
        let generation = store.get(key).unwrap().write.generation();
        assert!(store.begin_revert(key, generation).is_some_and(|begun| begun.reports));
        store.note_absent(key);
        store.end(key, Timestamp::UNIX_EPOCH);
        for version in [90, 105] {
            store.see(kind, key, live(version, "1"), now, Timestamp::UNIX_EPOCH);
            assert!(store.get(key).unwrap().is_absent, "version {version}");
        }
        store.see(kind, key, live(106, "1"), now, Timestamp::UNIX_EPOCH);
        assert!(!store.get(key).unwrap().is_absent, "it was recreated");
        store.see(kind, key, live(90, "1"), now, Timestamp::UNIX_EPOCH);
        assert_eq!(store.get(key).unwrap().gone_at, None);
    }

    #[test]
    fn each_unreadable_state_of_a_managed_object_is_announced_once() {
        let (mut store, desired) = applied();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        let mut news = |versions: [&str; 3]| versions.map(|version| store.note_unreadable(kind, key, version));
        assert_eq!(news(["7", "7", "8"]), [true, false, true]);
        assert_eq!(news(["", "", "8"]), [true, true, true], "an unknown version is always new");
        store.see(kind, key, live(9, "1"), now, Timestamp::UNIX_EPOCH);
        assert!(store.note_unreadable(kind, key, "8"), "it could be parsed in the meantime");
        assert!(!store.note_unreadable(kind, &kind.key(Some("shop"), "other"), "8"), "it is not managed");
    }

    #[test]
    fn an_edit_during_an_apply_outlasts_older_states_of_a_list() {
        let (mut store, desired) = taken_over();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        assert!(store.begin_put(&Owner::git_sync("shop", "demo"), &desired).is_some());
        let see = |store: &mut Store, version: u64, value: &str| {
            store.see(kind, key, live(version, value), now, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(&mut store, 106, "2"), Next::Nothing, "it waits for the apply");
        assert!(!store.is_unshown(key));
        assert_eq!(see(&mut store, 90, "1"), Next::Nothing);
        assert_eq!(store.miss(kind, key, Some("100"), now), Next::Nothing);
        verify(&mut store, &desired, &live(104, "1"), &desired.body());
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Queue);
        let generation = store.get(key).unwrap().write.generation();
        let seen = store.begin_revert(key, generation).unwrap().seen.unwrap();
        assert_eq!(seen.live.unwrap().into_value(), Some(live(106, "2")));
    }

    #[test]
    fn an_older_state_in_sync_does_not_cancel_a_read() {
        let (mut store, desired) = taken_over();
        let (kind, key, now) = (&desired.kind, &desired.key, Instant::now());
        assert_eq!(store.look_now(key, now), Next::Queue);
        assert_eq!(store.see(kind, key, live(90, "1"), now, Timestamp::UNIX_EPOCH), Next::Nothing);
        let generation = store.get(key).unwrap().write.generation();
        let seen = store.begin_revert(key, generation).unwrap().seen.unwrap();
        assert!(seen.live.is_none() && seen.gone_at.is_none(), "it is read");
    }

    #[test]
    fn the_queue_holds_the_newest_state_unless_it_is_large() {
        let (mut store, desired) = applied();
        let mut see = |live: &Value| {
            let next = store.see(&desired.kind, &desired.key, live.clone(), Instant::now(), Timestamp::UNIX_EPOCH);
            let waiting = store.get(&desired.key).unwrap().write.pending().unwrap();
            (next, waiting.live.as_ref().and_then(Sight::value).map(Cow::into_owned))
        };
        assert_eq!(see(&live(6, "2")), (Next::Queue, Some(live(6, "2"))));
        assert_eq!(see(&live(7, "3")), (Next::Nothing, Some(live(7, "3"))));
        assert_eq!(see(&live(8, &"3".repeat(SMALL))), (Next::Nothing, None), "it is read when its turn comes");
        assert_eq!(see(&live(9, "4")), (Next::Nothing, None), "and that is not forgotten");
    }

    #[test]
    fn queued_objects_are_counted_until_they_start_or_are_dropped() {
        let see = |store: &mut Store, desired: &Desired, version: u64, value: &str| {
            let next =
                store.see(&desired.kind, &desired.key, live(version, value), Instant::now(), Timestamp::UNIX_EPOCH);
            (next, store.objects.queued())
        };
        let (mut store, desired) = applied();
        assert_eq!(see(&mut store, &desired, 6, "2"), (Next::Queue, 1));
        assert_eq!(see(&mut store, &desired, 7, "3"), (Next::Nothing, 1), "once for each object");
        let generation = store.get(&desired.key).unwrap().write.generation();
        assert!(store.begin_revert(&desired.key, generation).is_some());
        assert_eq!(store.objects.queued(), 0);
        for forget in [Store::remove as fn(&mut Store, &Owner, &Key), |store, owner, _| store.remove_owner(owner)] {
            let (mut store, desired) = applied();
            assert_eq!(see(&mut store, &desired, 6, "2"), (Next::Queue, 1));
            forget(&mut store, &Owner::git_sync("shop", "demo"), &desired.key);
            assert_eq!(store.objects.queued(), 0);
        }
    }
}
