//! The store: the desired state, the last apply and the phase of every managed object.
//!
//! Events and outcomes go in, and decisions come out. The store is a value behind one lock that is held briefly; its
//! functions never wait. Writes are in `writes`, events in `events`.
//!
//! Invariant: an object is in the store before this agent applies it or waits for the end of its pause. An object that
//! an earlier agent applied enters it when its owner accepts a commit with the document of the inventory entry. An
//! object that a user deletes stays. An object that the commit lacks stays, too (phase `Leaving`), until it is gone or
//! belongs to a different owner. Watch events of objects that are not in the store are ignored.
//! Invariant: an owner that is confined to its namespace never takes an object from an unconfined owner.
//! Invariant: an unconfined GitSync takes objects from confined owners, also missing ones. If its apply is refused, the
//! object belongs to the confined owner again, which recreates a missing object unless it is suspended.
//! Invariant: an owner that acts as a ServiceAccount takes no object that is applied for an owner of a different
//! namespace. The other owner must give the object up first.
//! Invariant: at most one write to an object is in flight. Events during the write are handled after it.
//!
//! Objects and inventories are two tables because neither contains the other. A stored object has a document and one
//! owner. An inventory entry means that a GitSync is responsible for an object that it may have created. An entry that
//! an earlier agent wrote has no document until a commit is accepted, and never if the commit lacks the object. Two
//! GitSyncs list an object during a handover. With one table, every use of a document would have to handle its absence.
//! Every use of an owner would have to handle several. An inventory is also a snapshot, for the plan of a commit and
//! for saving, while its objects keep changing. Both tables are updated in the same step (`writes`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::account::{Account, History, Policy};
use super::autoscaler::Autoscaler;
use super::backoff_expiry::BackoffExpiry;
use super::decisions::Decisions;
use super::desired::Desired;
use super::health_rules::HealthRules;
use super::inventory::Written;
use super::inventory_maps::InventoryMaps;
use super::memory_budget::SharedBudget;
use super::object::Managed;
use super::objects::{Objects, WriteGuard};
use super::remaining::RemainingDrift;
use super::replacement::ReplacedKinds;
use super::verdict::LastApplied;
use mainstay_api::DriftPolicy;
use mainstay_cluster::{KindId, ServiceAccount};
use mainstay_object::{Key, Owner};

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    pub(crate) objects: Objects,
    pub(crate) accounts: HashMap<Owner, Account>,
    /// The last decisions about objects.
    pub(crate) decisions: Decisions,
    /// The inventories of the owners that have one.
    pub(crate) written: HashMap<Owner, Written>,
    /// The ConfigMaps with inventories in the cluster.
    pub(crate) inventory_maps: InventoryMaps,
    pub(crate) expiry: BackoffExpiry,
    /// The memory of each owner.
    pub(crate) memory: SharedBudget,
    /// Workloads that an autoscaler scales.
    pub(crate) autoscaled: HashMap<Key, Autoscaler>,
    /// The kinds that are watched by Mainstay's label, with the cause if the watch fails repeatedly.
    pub(crate) watched: HashMap<KindId, Option<String>>,
}

impl Store {
    pub(crate) fn get(&self, key: &Key) -> Option<&Managed> {
        self.objects.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<WriteGuard<'_>> {
        self.objects.get_mut(key)
    }

    /// Sets the policy for an owner's objects. Returns whether it changed. `history` is used only on the first call.
    pub(crate) fn set_policy(&mut self, owner: &Owner, policy: Policy, mut history: History) -> bool {
        let Some(account) = self.accounts.get_mut(owner) else {
            self.decisions.recall(owner, std::mem::take(&mut history.last_decisions));
            self.accounts.insert(owner.clone(), Account::new(policy, history));
            return false;
        };
        let is_changed = account.policy != policy;
        account.policy = policy;
        is_changed
    }

    /// Suspends an owner, until the next [`set_policy`](Self::set_policy).
    pub(crate) fn suspend(&mut self, owner: &Owner) {
        if let Some(account) = self.accounts.get_mut(owner) {
            account.policy.suspended = true;
        }
    }

    /// Whether an owner is suspended.
    pub(crate) fn is_suspended(&self, owner: &Owner) -> bool {
        self.accounts.get(owner).is_some_and(|account| account.policy.suspended)
    }

    /// Returns the impersonated ServiceAccount of an owner. `Some(None)` stands for the agent's own permissions, `None`
    /// for an unknown owner.
    pub(crate) fn acts_as(&self, owner: &Owner) -> Option<Option<ServiceAccount>> {
        self.accounts.get(owner).map(|account| account.policy.acts_as.clone())
    }

    /// Whether additions by users' tools are removed from an object.
    pub(crate) fn takes_back(&self, desired: &Desired) -> bool {
        let account = self.get(&desired.key).and_then(|managed| self.accounts.get(&managed.owner));
        desired.label().is_some() && account.is_some_and(|account| account.policy.takes_back())
    }

    /// Whether the drift of an object is ignored.
    pub(crate) fn ignores_drift(&self, key: &Key) -> bool {
        let account = self.get(key).and_then(|managed| self.accounts.get(&managed.owner));
        account.is_some_and(|account| account.policy.drift == DriftPolicy::Ignore)
    }

    /// Sets the kinds that may be replaced for an owner. Returns whether they changed.
    pub(crate) fn set_replaced_kinds(&mut self, owner: &Owner, kinds: ReplacedKinds) -> bool {
        let Some(account) = self.accounts.get_mut(owner) else { return false };
        let is_changed = account.replaced_kinds != kinds;
        account.replaced_kinds = kinds;
        is_changed
    }

    /// Returns the kinds that may be replaced for an owner.
    pub(crate) fn replaced_kinds(&self, owner: &Owner) -> ReplacedKinds {
        self.accounts.get(owner).map(|account| account.replaced_kinds.clone()).unwrap_or_default()
    }

    /// Sets the health rules of an owner. Returns the kinds whose health may change and that must be listed again.
    pub(crate) fn set_health_rules(&mut self, owner: &Owner, rules: &Arc<HealthRules>) -> HashSet<KindId> {
        let Some(account) = self.accounts.get_mut(owner) else { return HashSet::new() };
        let none = Arc::default();
        let before = account.health_rules.as_ref().unwrap_or(&none);
        if before == rules {
            return HashSet::new();
        }
        let before = Arc::clone(before);
        account.health_rules = Some(Arc::clone(rules)).filter(|rules| !rules.is_empty());
        self.show_again(owner, |kind| rules.differs_for(&before, &kind.group, &kind.kind))
    }

    /// Returns the health rules of an object's owner.
    pub(crate) fn health_rules(&self, key: &Key) -> Option<Arc<HealthRules>> {
        self.accounts.get(&self.objects.get(key)?.owner)?.health_rules.clone()
    }

    /// Exempts objects from reverts and replaces the earlier exemptions. Returns the objects that are no longer exempt.
    pub(crate) fn set_unread(&mut self, owner: &Owner, unread: BTreeMap<Key, Timestamp>) -> Vec<Key> {
        let Some(account) = self.accounts.get_mut(owner) else { return Vec::new() };
        let mut before = std::mem::replace(&mut account.unread, unread);
        before.retain(|key, _| !account.unread.contains_key(key));
        before.into_keys().collect()
    }

    /// Whether an object belongs to a different owner from which `owner` may not take it.
    pub(crate) fn is_outranked(&self, owner: &Owner, key: &Key) -> bool {
        let policy = |owner: &Owner| self.accounts.get(owner).map(|account| &account.policy);
        let Some(own) = policy(owner).filter(|own| own.confined) else { return false };
        let Some(other) = self.get(key).filter(|m| m.owner != *owner && !m.phase.is_leaving()) else { return false };
        let is_elsewhere = || other.owner.resource().namespace() != owner.resource().namespace();
        let is_confined = policy(&other.owner).is_some_and(|policy| policy.confined);
        !is_confined || (own.acts_as.is_some() && other.is_applied() && is_elsewhere())
    }

    /// Whether an object belongs to a confined owner, and `owner` is an unconfined GitSync, which may take it.
    pub(crate) fn outranks(&self, owner: &Owner, key: &Key) -> bool {
        let is_confined = |owner: &Owner| self.accounts.get(owner).map(|account| account.policy.confined);
        let Some(other) = self.get(key).map(|managed| &managed.owner) else { return false };
        matches!(owner, Owner::GitSync(_)) && is_confined(owner) == Some(false) && is_confined(other) == Some(true)
    }

    /// Inserts an object with the last apply of an earlier agent, or (by default) before its first apply. A known
    /// object of the same owner stays as it is. Returns the entry that the new one replaces.
    pub(crate) fn hold(
        &mut self,
        owner: &Owner,
        desired: Arc<Desired>,
        last_applied: LastApplied,
    ) -> Option<Box<Managed>> {
        let key = desired.key.clone();
        if self.is_outranked(owner, &key) {
            return None;
        }
        let says_nothing_new = |m: &Managed| m.is_applied() || last_applied == LastApplied::default();
        if self.objects.get(&key).is_some_and(|m| m.owner == *owner && !m.phase.is_leaving() && says_nothing_new(m)) {
            return None;
        }
        let replaced = self.objects.take(&key);
        // Reverts that were queued for an earlier object are outdated.
        let generation = replaced.as_ref().map_or(0, |m| m.write.next_generation());
        let mut managed = Managed::new(owner, desired, last_applied, generation);
        if managed.is_applied() {
            // This drift is valid until the object is seen.
            let recalled = self.accounts.get_mut(owner).and_then(|account| account.recall(&key));
            managed.drift = recalled.map(|shown| Box::new(RemainingDrift::recalled(shown)));
        }
        self.objects.insert(key, managed);
        replaced
    }

    /// Whether an object is applied for another owner.
    pub(crate) fn is_applied_for_another(&self, owner: &Owner, key: &Key) -> bool {
        self.get(key).is_some_and(|m| m.owner != *owner && m.is_applied() && !m.phase.is_leaving())
    }

    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        self.memory.remove_owner(owner);
        self.decisions.remove_owner(owner);
        self.objects.remove_owner(owner);
        self.accounts.remove(owner);
        self.written.remove(owner);
    }

    /// Records that an object was removed from the repository, so it is not reverted any more.
    pub(crate) fn leave(&mut self, owner: &Owner, key: &Key) {
        let Some(mut managed) = self.objects.get_mut(key) else { return };
        managed.outranked.take_if(|outranked| outranked.owner == *owner);
        if managed.owner == *owner {
            managed.phase.leave();
            managed.drift = None;
            managed.write.clear_pending();
        }
    }

    /// Returns all objects of an owner.
    pub(crate) fn kept_for(&self, owner: &Owner) -> impl Iterator<Item = (&Key, &Managed)> {
        self.objects.of(owner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::managed::fixtures::{POLICY, applied, live, verify};
    use crate::managed::pending::Next;

    #[test]
    fn only_an_unconfined_git_sync_outranks_the_confined_owner_of_an_object() {
        let (mut store, desired) = applied();
        let (owner, key) = (Owner::git_sync("shop", "demo"), &desired.key);
        let (platform, function) = (Owner::git_sync("platform", "all"), Owner::function("platform", "all"));
        store.set_policy(&function, POLICY, History::default());
        for (is_own, is_others) in [(false, false), (false, true), (true, false), (true, true)] {
            store.set_policy(&platform, Policy { confined: is_own, ..POLICY }, History::default());
            store.set_policy(&owner, Policy { confined: is_others, ..POLICY }, History::default());
            assert_eq!(store.outranks(&platform, key), !is_own && is_others, "{is_own} {is_others}");
            assert!(store.is_applied_for_another(&platform, key));
            assert!(!store.outranks(&owner, key), "it is its own");
            assert!(!store.outranks(&function, key), "only GitSyncs take objects");
        }
        assert!(!store.outranks(&Owner::git_sync("platform", "unknown"), key));
        assert!(!store.outranks(&platform, &desired.kind.key(Some("shop"), "other")), "it is not stored");
    }

    #[test]
    fn a_revert_of_the_former_owner_is_outdated_when_a_missing_object_is_taken() {
        let (mut store, desired) = applied();
        let (owner, platform) = (Owner::git_sync("shop", "demo"), Owner::git_sync("platform", "all"));
        store.set_policy(&owner, Policy { confined: true, ..POLICY }, History::default());
        store.set_policy(&platform, POLICY, History::default());
        assert_eq!(store.miss(&desired.kind, &desired.key, Some("6"), Instant::now()), Next::Queue);
        let generation = store.get(&desired.key).unwrap().write.generation();
        let (version, seen) = store.begin_put(&platform, &desired).unwrap();
        assert!(version.is_empty() && seen.is_none(), "it is created");
        assert_eq!(store.get(&desired.key).unwrap().owner, platform);
        assert!(store.begin_revert(&desired.key, generation).is_none());
        assert_eq!(store.kept_for(&owner).count(), 0);
    }

    /// Returns a store in which an unconfined GitSync `platform` begins to create a missing object of a confined one, and
    /// the generation of the latter's queued revert.
    fn creating(platform: &Owner) -> (Store, Arc<Desired>, u32) {
        let (mut store, desired) = applied();
        store.set_policy(&Owner::git_sync("shop", "demo"), Policy { confined: true, ..POLICY }, History::default());
        store.set_policy(platform, POLICY, History::default());
        assert_eq!(store.miss(&desired.kind, &desired.key, Some("6"), Instant::now()), Next::Queue);
        let generation = store.get(&desired.key).unwrap().write.generation();
        assert!(store.begin_put(platform, &desired).is_some());
        (store, desired, generation)
    }

    #[test]
    fn a_missing_object_that_is_not_created_goes_back_to_its_owner_and_is_recreated() {
        let (owner, platform) = (Owner::git_sync("shop", "demo"), Owner::git_sync("platform", "all"));
        let (mut store, desired, outdated) = creating(&platform);
        let key = &desired.key;
        store.put_failed(&desired, None, false);
        assert!(!store.put_back_outranked(&owner, key), "the apply was not its own");
        assert!(store.put_back_outranked(&platform, key));
        assert_eq!(store.end(key, Timestamp::UNIX_EPOCH), Next::Nothing);
        assert!(store.is_applied_for_another(&platform, key) && store.outranks(&platform, key));
        assert_eq!((store.kept_for(&owner).count(), store.kept_for(&platform).count()), (1, 0));
        assert_eq!(store.look_now(key, Instant::now()), Next::Queue);
        assert!(store.begin_revert(key, outdated).is_none());
        let generation = store.get(key).unwrap().write.generation();
        let begun = store.begin_revert(key, generation).unwrap();
        assert!(begun.owner == owner && begun.seen.is_some(), "{begun:?}");
    }

    #[test]
    fn an_object_that_was_created_or_given_up_does_not_go_back() {
        let platform = Owner::git_sync("platform", "all");
        let (mut store, desired, _) = creating(&platform);
        verify(&mut store, &desired, &live(7, "1"), &desired.body());
        assert!(!store.put_back_outranked(&platform, &desired.key));
        for give_up in
            [Store::leave as fn(&mut Store, &Owner, &Key), Store::remove, |store, owner, _| store.remove_owner(owner)]
        {
            let (mut store, desired, _) = creating(&platform);
            give_up(&mut store, &Owner::git_sync("shop", "demo"), &desired.key);
            assert!(!store.put_back_outranked(&platform, &desired.key));
            assert_eq!(store.get(&desired.key).unwrap().owner, platform);
        }
    }
}
