//! The store: of every managed object what it must be, what was last applied to it, and what is going on with it.
//!
//! Events and outcomes go in, decisions come out. It is a value behind one lock that is held briefly; nothing here waits.
//!
//! Invariant: an object is in the store from the moment its first apply begins until it is forgotten, and whatever is
//! not in it is ignored everywhere.
//! Invariant: at most one write to an object is under way; what is seen of it meanwhile is looked at afterwards.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;

use super::autoscaler::{Autoscaler, is_at_zero};
use super::backoff_expiry::BackoffExpiry;
use super::desired::Desired;
use super::inventory::Written;
use super::object::{Answered, Managed, Next, NotPutBack, Watched};
use super::objects::{Objects, WriteGuard};
use super::phase::Write;
use super::policy::Policy;
use super::revert_backoff::Shift;
use super::seen::{Seen, Sight};
use super::verdict::{LastApplied, Reason, Verdict};
use crate::api::DriftPolicy;
use crate::api::git_sync::Revert;
use crate::cluster::KindId;
use crate::object::{Key, Owner};

/// How many reverts a GitSync's status shows.
const SHOWN_REVERTS: usize = 10;

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

/// What the store remembers of an owner.
#[derive(Debug)]
pub(crate) struct Account {
    policy: Policy,
    pub(crate) reverted: i64,
    pub(crate) last_reverts: VecDeque<Revert>,
}

/// The store.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) objects: Objects,
    pub(crate) accounts: HashMap<Owner, Account>,
    /// The inventories of the owners that have one.
    pub(crate) written: HashMap<Owner, Written>,
    pub(crate) expiry: BackoffExpiry,
    /// Workloads that an autoscaler scales.
    autoscaled: HashMap<Key, Autoscaler>,
    /// The kinds that are watched by our label, each with the cause if its watch fails again and again.
    pub(crate) watched: HashMap<KindId, Option<String>>,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Managed> {
        self.objects.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<WriteGuard<'_>> {
        self.objects.get_mut(key)
    }

    /// What applies to an owner's objects from now on; whether something else did before. `reverted` and `last` count only
    /// the first time.
    pub(crate) fn set_policy(&mut self, owner: &Owner, policy: Policy, reverted: i64, last: Vec<Revert>) -> bool {
        let Some(account) = self.accounts.get_mut(owner) else {
            let account = Account { policy, reverted, last_reverts: last.into() };
            self.accounts.insert(owner.clone(), account);
            return false;
        };
        std::mem::replace(&mut account.policy, policy) != policy
    }

    /// Begins to keep an object at what an earlier agent applied, or (`last_applied` default) at what will be applied.
    /// An object that is already kept for the same owner keeps what is known of it.
    pub(crate) fn hold(&mut self, owner: &Owner, desired: Arc<Desired>, last_applied: LastApplied) {
        let key = desired.key.clone();
        let says_nothing_new = |m: &Managed| m.is_applied() || last_applied == LastApplied::default();
        if self.objects.get(&key).is_some_and(|m| m.owner == *owner && !m.phase.is_leaving() && says_nothing_new(m)) {
            return;
        }
        // Reverts that were queued for the object as it was kept before do not count any more.
        let generation = self.objects.get(&key).map_or(0, |m| m.generation.wrapping_add(1));
        self.objects.insert(key, Managed::new(owner, desired, last_applied, generation));
    }

    /// Whether an object is applied for another owner.
    pub(crate) fn is_applied_for_another(&self, owner: &Owner, key: &Key) -> bool {
        self.get(key).is_some_and(|m| m.owner != *owner && m.is_applied() && !m.phase.is_leaving())
    }

    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        self.objects.remove_owner(owner);
        self.accounts.remove(owner);
        self.written.remove(owner);
    }

    /// From now on the backward loop leaves the object alone: it left the repository.
    pub(crate) fn leave(&mut self, owner: &Owner, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.owner == *owner) {
            managed.phase.leave();
            managed.write.clear_pending();
        }
    }

    /// What a list at this version, of a kind's objects with this kind of mark, had to show and did not. What was
    /// applied after the list is not missing: nothing has to be read for it. What is followed by name need not be shown.
    pub(crate) fn missing(
        &self,
        kind: &crate::cluster::Kind,
        watched: Watched,
        shown: &HashSet<Key>,
        version: &str,
    ) -> Vec<Key> {
        self.objects
            .iter()
            .map(|(_, m)| m)
            .filter(|m| watched == Watched::by(&m.desired.mark) && m.is_of(kind) && m.is_expected())
            .filter(|m| m.followed.is_none() && !m.last_applied.has_seen(version) && !shown.contains(&m.desired.key))
            .map(|m| m.desired.key.clone())
            .collect()
    }

    /// Looks at an object, whatever its last event said.
    pub(crate) fn look_now(&mut self, key: &Key, at: Instant) -> Next {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.is_expected()) else { return Next::Nothing };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        managed.lose_sight(None, at, account.policy)
    }

    /// The desired state of an object has changed without a new document.
    pub(crate) fn mark_outdated(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.outdated = true;
        }
    }

    /// An object was seen.
    pub(crate) fn see(
        &mut self,
        kind: &crate::cluster::Kind,
        key: &Key,
        live: Value,
        at: Instant,
        now: Timestamp,
    ) -> Next {
        let autoscaled = self.autoscaled.get(key).copied();
        let Some(mut managed) = self.objects.get_mut(key) else { return Next::Nothing };
        if managed.phase.is_leaving() || !managed.is_of(kind) {
            return Next::Nothing;
        }
        if let Write::InFlight(pending) = &mut managed.write {
            *pending = Some(Box::new(Seen::of(live, at)));
            return Next::Nothing;
        }
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if account.policy.suspended || !managed.is_applied() {
            return Next::Nothing;
        }
        let uid = managed.other_uid(&live);
        let next = managed.look(live, at, account.policy.drift, autoscaled, now);
        let is_another = uid.is_some_and(|uid| uid == *managed.last_applied.uid);
        drop(managed);
        if is_another {
            self.write_down(key);
        }
        next
    }

    /// An object vanished from the watch by this version: deleted, or its label was taken off.
    pub(crate) fn miss(&mut self, kind: &crate::cluster::Kind, key: &Key, version: Option<&str>, at: Instant) -> Next {
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.is_of(kind) && m.is_expected()) else {
            return Next::Nothing;
        };
        let Some(account) = self.accounts.get(&managed.owner) else { return Next::Nothing };
        if version.is_some_and(|version| managed.last_applied.has_seen(version)) {
            return Next::Nothing;
        }
        managed.lose_sight(version, at, account.policy)
    }

    /// What to do about an object that was read because its last event did not say.
    pub(crate) fn judge(&mut self, key: &Key, live: &Value, now: Timestamp) -> Verdict {
        let autoscaled = self.autoscaled.get(key).copied();
        let left = Verdict::LeaveAlone(Reason::Ignore);
        let Some(mut managed) = self.objects.get_mut(key).filter(|m| !m.phase.is_leaving()) else { return left };
        let Some(account) = self.accounts.get(&managed.owner) else { return left };
        if account.policy.suspended {
            return left;
        }
        let uid = managed.other_uid(live);
        let verdict = managed.judge(live, account.policy.drift, autoscaled, now);
        let is_another = uid.is_some_and(|uid| uid == *managed.last_applied.uid);
        drop(managed);
        if is_another {
            self.write_down(key);
        }
        verdict
    }

    /// Starts the revert or report that the owner's policy asks for. `None` when the object is not kept, is leaving, is of
    /// a newer generation, or another write is under way. `seen` is `None` when the policy leaves the object alone by now.
    pub(crate) fn begin_revert(&mut self, key: &Key, generation: u32) -> Option<Begun> {
        let mut managed = self.objects.get_mut(key).filter(|m| m.generation == generation)?;
        let policy = self.accounts.get(&managed.owner)?.policy;
        let drift = if managed.outdated { DriftPolicy::Revert } else { policy.drift };
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
        let seen = managed.write.begin().map(|seen| *seen);
        Some(Begun { desired: Arc::clone(&managed.desired), seen, reports: drift == DriftPolicy::Report })
    }

    /// Starts a write that makes the object what the forward loop wants. `None` when it is under break glass: then that
    /// is what it will be afterwards. What was seen of the object before the write says nothing once it has succeeded.
    pub(crate) fn begin_put(&mut self, owner: &Owner, desired: &Arc<Desired>) -> Option<(String, Option<Box<Seen>>)> {
        self.hold(owner, Arc::clone(desired), LastApplied::default());
        let mut managed = self.objects.get_mut(&desired.key)?;
        managed.phase.stay();
        if managed.phase.pause().is_some() {
            managed.desired = Arc::clone(desired);
            managed.outdated = true;
            return None;
        }
        managed.generation = managed.generation.wrapping_add(1);
        let seen = managed.write.begin();
        Some((managed.last_applied.resource_version.to_string(), seen))
    }

    /// A write of the forward loop failed. If it may have been carried out all the same, the object must become what
    /// was written; else it stays what it was, and what was seen before counts again.
    pub(crate) fn put_failed(&mut self, desired: &Arc<Desired>, before: Option<Box<Seen>>, is_unknown: bool) {
        let Some(mut managed) = self.objects.get_mut(&desired.key) else { return };
        if is_unknown && managed.is_applied() {
            managed.desired = Arc::clone(desired);
            managed.outdated = true;
        }
        if let Some(before) = before {
            managed.write.restore_pending(before);
        }
    }

    /// A revert or a report failed: what was seen counts again, but not before `not_before`. For as long as it fails for
    /// the same reason, the words of the first time stay: some servers have others every time.
    pub(crate) fn revert_failed(&mut self, key: &Key, seen: Seen, failure: NotPutBack) -> Option<(Owner, u32)> {
        let mut managed = self.objects.get_mut(key)?;
        let failing = managed.failing();
        failing.attempts += 1;
        if failing.failure.as_ref().is_none_or(|known| !known.is_the_same(&failure)) {
            failing.failure = Some(failure);
        }
        managed.reported = None;
        managed.write.restore_pending(Box::new(seen));
        Some((managed.owner.clone(), managed.attempts()))
    }

    /// A failed revert is due at once. Whether one is queued.
    pub(crate) fn reset_failure(&mut self, key: &Key) -> bool {
        let Some(mut managed) = self.objects.get_mut(key) else { return false };
        if let Some(failing) = &mut managed.failing {
            failing.not_before = None;
            failing.futile = None;
        }
        managed.generation = managed.generation.wrapping_add(1);
        if matches!(managed.write, Write::Queued(None)) {
            managed.write = Write::Idle;
        }
        managed.write.is_queued()
    }

    /// Ends a write and looks at what was seen of the object meanwhile: at once, for what is seen next is newer.
    pub(crate) fn end(&mut self, key: &Key, now: Timestamp) -> Next {
        let Some(mut managed) = self.objects.get_mut(key) else { return Next::Nothing };
        let Some(seen) = managed.write.end() else { return Next::Nothing };
        let kind = Arc::clone(&managed.desired.kind);
        drop(managed);
        let Seen { live, gone_at, at } = *seen;
        match live.and_then(Sight::into_value) {
            Some(live) => self.see(&kind, key, live, at, now),
            None => self.miss(&kind, key, gone_at.as_deref(), at),
        }
    }

    /// The server's answer to an apply is what counts from now on.
    pub(crate) fn verify(&mut self, key: &Key, desired: &Arc<Desired>, answered: Answered) {
        let autoscaled = self.autoscaled.contains_key(key);
        let Some(mut managed) = self.objects.get_mut(key) else { return };
        managed.desired = Arc::clone(desired);
        managed.is_at_zero = answered.is_at_zero;
        managed.health = answered.health;
        managed.last_applied = answered.last_applied;
        managed.succeeded();
        // An autoscaler may have come while the count was on its way, or gone while it was left out.
        managed.outdated = if autoscaled { answered.sent_replicas } else { answered.left_out_replicas };
        managed.phase.end_pause();
        managed.reported = None;
        drop(managed);
        self.write_down(key);
    }

    pub(crate) fn record(&mut self, owner: &Owner, revert: Revert) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.reverted += 1;
            account.last_reverts.push_front(revert);
            account.last_reverts.truncate(SHOWN_REVERTS);
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

    /// Replaces the autoscaled workloads; returns the kept ones that have to be looked at for it, and whether it changes
    /// what is applied to them.
    pub(crate) fn set_autoscaled(&mut self, workloads: HashMap<Key, Autoscaler>) -> Vec<(Key, bool)> {
        let old = std::mem::replace(&mut self.autoscaled, workloads);
        let new = &self.autoscaled;
        let changed = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let look = |key: &Key| {
            let managed = self.objects.get(key)?;
            let came_or_went = old.contains_key(key) != new.contains_key(key);
            let is_outdated = came_or_went && managed.desired.sets_replicas(&managed.desired.body());
            let may_wake = managed.is_at_zero && old.get(key) != new.get(key);
            (is_outdated || may_wake).then(|| (key.clone(), is_outdated))
        };
        changed.filter_map(look).collect()
    }

    pub(crate) fn is_autoscaled(&self, key: &Key) -> bool {
        self.autoscaled.contains_key(key)
    }

    /// How many replicas an autoscaled workload that is at 0 must have; `None` when 0 is right.
    pub(crate) fn woken(&self, desired: &Desired, live: &Value) -> Option<i64> {
        let autoscaler = self.autoscaled.get(&desired.key).filter(|_| is_at_zero(live))?;
        autoscaler.woken(&desired.body(), live)
    }

    /// The objects whose last revert failed, of those that `concerns` names.
    pub(crate) fn failed(&self, concerns: impl Fn(&Key) -> bool) -> Vec<Key> {
        let failed = self.objects.iter().filter(|(_, m)| m.failure().is_some());
        failed.filter(|(key, _)| concerns(key)).map(|(key, _)| key.clone()).collect()
    }

    /// All objects kept for an owner, with what was last applied to them.
    pub(crate) fn kept_for(&self, owner: &Owner) -> impl Iterator<Item = (&Key, &Managed)> {
        self.objects.of(owner)
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::cluster::{Kind, Scope};
    use crate::managed::Mark;
    use crate::managed::inventory::uid_bytes;
    use crate::managed::seen::SMALL;
    use crate::object::{Object, Place};
    use serde_json::json;

    const POLICY: Policy = Policy { drift: DriftPolicy::Revert, suspended: false };

    fn desired() -> Arc<Desired> {
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        Arc::new(Desired { key: kind.key(Some("shop"), "a"), kind, object, mark: Mark::Label("shop.demo".into()) })
    }

    fn live(version: u64, value: &str) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string(), "managedFields": [
            {"manager": "mainstay", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}]}, "data": {"a": value}})
    }

    fn verify(store: &mut Store, desired: &Arc<Desired>, answer: &Value, sent: &Value) {
        store.verify(&desired.key, desired, Answered::of(desired, answer, sent));
    }

    /// A store in which the first apply of an object is under way.
    fn applying() -> (Store, Arc<Desired>) {
        let (mut store, desired, owner) = (Store::default(), desired(), Owner::git_sync("shop", "demo"));
        store.set_policy(&owner, POLICY, 0, Vec::new());
        assert!(store.begin_put(&owner, &desired).is_some());
        (store, desired)
    }

    /// A store with an object that was answered at version 5.
    fn applied() -> (Store, Arc<Desired>) {
        let (mut store, desired) = applying();
        verify(&mut store, &desired, &live(5, "1"), &desired.body());
        assert_eq!(store.end(&desired.key, Timestamp::UNIX_EPOCH), Next::Nothing);
        (store, desired)
    }

    #[test]
    fn an_autoscaler_that_goes_while_its_count_is_left_out_leaves_the_object_to_be_written_again() {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let kind = Arc::new(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced));
        let document =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        let mark = Mark::Label("shop.demo".into());
        let desired = Arc::new(Desired { key: kind.key(Some("shop"), "a"), kind, object, mark });
        store.set_policy(&owner, POLICY, 0, Vec::new());
        assert!(store.begin_put(&owner, &desired).is_some());
        let mut sent = desired.body();
        crate::managed::desired::without_replicas(&mut sent);
        verify(&mut store, &desired, &live(5, "1"), &sent);
        assert!(store.get(&desired.key).unwrap().outdated);
        verify(&mut store, &desired, &live(6, "1"), &desired.body());
        assert!(!store.get(&desired.key).unwrap().outdated);
    }

    #[test]
    fn a_revert_that_ends_as_the_last_apply_did_is_no_news_for_the_inventory() {
        let (mut store, desired) = applied();
        let owner = Owner::git_sync("shop", "demo");
        assert!(store.intend(&owner, std::iter::once(&desired)) && !store.intend(&owner, std::iter::once(&desired)));
        let mut unsaved = |answer: &Value| {
            verify(&mut store, &desired, answer, &desired.body());
            let unsaved = store.is_unsaved(&owner);
            assert!(store.save(&owner).unwrap().0[&desired.key].is_for(&desired));
            unsaved
        };
        assert!(unsaved(&live(5, "1")), "its first apply is answered");
        assert!(!unsaved(&live(6, "1")));
        assert!(unsaved(&live(7, "2")), "the server made something else of it");
        let mut other = live(8, "2");
        other["metadata"]["uid"] = "other".into();
        assert!(unsaved(&other), "it is another object");
    }

    #[test]
    fn the_uid_of_an_object_that_was_expected_without_one_is_written_down_when_it_is_seen() {
        let (before, desired) = applied();
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        store.set_policy(&owner, POLICY, 0, Vec::new());
        store.intend(&owner, std::iter::once(&desired));
        let digest = before.get(&desired.key).unwrap().last_applied.digest;
        store.hold(&owner, Arc::clone(&desired), LastApplied { digest, ..LastApplied::default() });
        store.save(&owner);
        let see = |store: &mut Store, version| {
            store.see(&desired.kind, &desired.key, live(version, "1"), Instant::now(), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(&mut store, 9), Next::Nothing);
        assert!(store.is_unsaved(&owner));
        assert_eq!(store.save(&owner).unwrap().0[&desired.key].uid, Some(uid_bytes("u")));
        assert_eq!(see(&mut store, 10), Next::Nothing);
        assert!(!store.is_unsaved(&owner), "it is the same object");
    }

    #[test]
    fn what_was_known_of_an_object_when_it_left_stays_written_down() {
        let (mut store, desired) = applied();
        let owner = Owner::git_sync("shop", "demo");
        store.intend(&owner, std::iter::once(&desired));
        verify(&mut store, &desired, &live(6, "1"), &desired.body());
        let known = store.save(&owner).unwrap();
        store.leave(&owner, &desired.key);
        verify(&mut store, &desired, &live(7, "2"), &desired.body());
        assert!(!store.is_unsaved(&owner) && store.save(&owner).unwrap() == known);
        store.remove(&owner, &desired.key);
        assert!(store.is_unsaved(&owner) && store.save(&owner).unwrap().0.is_empty());
    }

    #[test]
    fn a_list_misses_what_it_had_to_show_and_nothing_that_came_after_it() {
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
    fn what_vanishes_while_its_first_apply_is_under_way_is_looked_at_unless_the_answer_is_newer() {
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
    fn an_edit_that_follows_a_revert_at_once_is_not_forgotten_for_what_the_revert_itself_shows() {
        let (mut store, desired) = applied();
        let (kind, key) = (&desired.kind, &desired.key);
        let see = |store: &mut Store, version: u64, value: &str| {
            store.see(kind, key, live(version, value), Instant::now(), Timestamp::UNIX_EPOCH)
        };
        assert_eq!(see(&mut store, 6, "2"), Next::Queue);
        let generation = store.get(key).unwrap().generation;
        assert!(store.begin_revert(key, generation).is_some());
        verify(&mut store, &desired, &live(7, "1"), &desired.body());
        assert_eq!(see(&mut store, 7, "1"), Next::Nothing, "the revert's own event waits for its end");
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Nothing);
        assert_eq!(see(&mut store, 8, "2"), Next::Queue);
        assert_eq!(see(&mut store, 7, "1"), Next::Nothing, "older than what waits");
        let seen = store.begin_revert(key, generation).unwrap().seen;
        assert_eq!(seen.unwrap().live.unwrap().into_value(), Some(live(8, "2")));
    }

    #[test]
    fn what_waits_is_the_newest_state_unless_that_is_large() {
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
}
