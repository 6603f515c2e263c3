//! The store: of every managed object what it must be, what was last applied to it, and what is going on with it.
//!
//! Events and outcomes go in, decisions come out. It is a value behind one lock that is held briefly; nothing here waits.
//! What is written to an object is in `writes`, what is seen of it in `events`.
//!
//! Invariant: an object is in the store from the moment its first apply begins until it is forgotten, and whatever is
//! not in it is ignored everywhere.
//! Invariant: an owner that is confined to its namespace never takes an object from one that is not; nor does one that acts as a
//! ServiceAccount take one that is applied for an owner of another namespace, unless that gives it up.
//! Invariant: at most one write to an object is under way; what is seen of it meanwhile is looked at afterwards.
//!
//! Objects and inventories are two tables, because they answer two questions and neither holds the other. An object is here
//! when there is a document for it, and has one owner. An entry says that a GitSync answers for what it may have created:
//! of what left the repository or an earlier agent created there is no document, and while an object goes from one GitSync
//! to another both list it. In one table every use of a document would have to expect none, and every use of an owner
//! several. An inventory is also handed out as it was at one moment, to plan a commit by and to be saved, while its objects
//! go on changing. They are kept in step in one place: what is answered, and the UID of what is seen, is written down in
//! the same step (`writes`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::account::{Account, History, Policy};
use super::autoscaler::Autoscaler;
use super::backoff_expiry::BackoffExpiry;
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
use mainstay_cluster::{Kind, KindId, ServiceAccount};
use mainstay_object::{Key, Owner};

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    pub(crate) objects: Objects,
    pub(crate) accounts: HashMap<Owner, Account>,
    /// The inventories of the owners that have one.
    pub(crate) written: HashMap<Owner, Written>,
    /// The ConfigMaps that hold inventories in the cluster.
    pub(crate) inventory_maps: InventoryMaps,
    pub(crate) expiry: BackoffExpiry,
    /// What is kept in memory for each owner.
    pub(crate) memory: SharedBudget,
    /// Workloads that an autoscaler scales.
    pub(crate) autoscaled: HashMap<Key, Autoscaler>,
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

    /// What applies to an owner's objects from now on; whether something else did before. `history` counts only the
    /// first time.
    pub(crate) fn set_policy(&mut self, owner: &Owner, policy: Policy, history: History) -> bool {
        let Some(account) = self.accounts.get_mut(owner) else {
            self.accounts.insert(owner.clone(), Account::new(policy, history));
            return false;
        };
        let is_changed = account.policy != policy;
        account.policy = policy;
        is_changed
    }

    /// In whose name an owner's objects are read and written (`Some(None)`: with the agent's own rights); `None` if it is not
    /// known.
    pub(crate) fn acts_as(&self, owner: &Owner) -> Option<Option<ServiceAccount>> {
        self.accounts.get(owner).map(|account| account.policy.acts_as.clone())
    }

    /// Whether what people's tools add to an object is taken back.
    pub(crate) fn takes_back(&self, desired: &Desired) -> bool {
        let account = self.get(&desired.key).and_then(|managed| self.accounts.get(&managed.owner));
        desired.label().is_some() && account.is_some_and(|account| account.policy.takes_back())
    }

    /// The kinds whose objects may be deleted and created anew for an owner from now on; whether it was others before.
    pub(crate) fn set_replaced_kinds(&mut self, owner: &Owner, kinds: ReplacedKinds) -> bool {
        let Some(account) = self.accounts.get_mut(owner) else { return false };
        let is_changed = account.replaced_kinds != kinds;
        account.replaced_kinds = kinds;
        is_changed
    }

    /// Those kinds.
    pub(crate) fn replaced_kinds(&self, owner: &Owner) -> ReplacedKinds {
        self.accounts.get(owner).map(|account| account.replaced_kinds.clone()).unwrap_or_default()
    }

    /// How to tell whether an owner's objects are healthy from now on. The kinds of which objects may be healthy by that, and were
    /// not before, or the other way round, each with the label of the owner's objects.
    pub(crate) fn set_health_rules(&mut self, owner: &Owner, rules: &Arc<HealthRules>) -> Vec<(Arc<Kind>, Arc<str>)> {
        let Some(account) = self.accounts.get_mut(owner) else { return Vec::new() };
        let none = Arc::default();
        let before = account.health_rules.as_ref().unwrap_or(&none);
        if before == rules {
            return Vec::new();
        }
        let before = Arc::clone(before);
        account.health_rules = Some(Arc::clone(rules)).filter(|rules| !rules.is_empty());
        let mut kinds = self.kinds_of(owner);
        kinds.retain(|(kind, _)| rules.differs_for(&before, &kind.group, &kind.kind));
        kinds
    }

    /// How to tell whether an object is healthy, where its owner says so.
    pub(crate) fn health_rules(&self, key: &Key) -> Option<Arc<HealthRules>> {
        self.accounts.get(&self.objects.get(key)?.owner)?.health_rules.clone()
    }

    /// Changes of these objects stay from now on, and of no others for this reason. Those that stayed before.
    pub(crate) fn set_unread(&mut self, owner: &Owner, unread: BTreeMap<Key, Timestamp>) -> Vec<Key> {
        let Some(account) = self.accounts.get_mut(owner) else { return Vec::new() };
        let mut before = std::mem::replace(&mut account.unread, unread);
        before.retain(|key, _| !account.unread.contains_key(key));
        before.into_keys().collect()
    }

    /// Whether an object is kept for another owner that this one takes nothing from.
    pub(crate) fn is_outranked(&self, owner: &Owner, key: &Key) -> bool {
        let policy = |owner: &Owner| self.accounts.get(owner).map(|account| &account.policy);
        let Some(own) = policy(owner).filter(|own| own.confined) else { return false };
        let Some(other) = self.get(key).filter(|m| m.owner != *owner && !m.phase.is_leaving()) else { return false };
        let is_elsewhere = || other.owner.resource().namespace() != owner.resource().namespace();
        let is_confined = policy(&other.owner).is_some_and(|policy| policy.confined);
        !is_confined || (own.acts_as.is_some() && other.is_applied() && is_elsewhere())
    }

    /// Begins to keep an object at what an earlier agent applied, or (`last_applied` default) at what will be applied.
    /// An object that is already kept for the same owner keeps what is known of it.
    pub(crate) fn hold(&mut self, owner: &Owner, desired: Arc<Desired>, last_applied: LastApplied) {
        let key = desired.key.clone();
        if self.is_outranked(owner, &key) {
            return;
        }
        let says_nothing_new = |m: &Managed| m.is_applied() || last_applied == LastApplied::default();
        if self.objects.get(&key).is_some_and(|m| m.owner == *owner && !m.phase.is_leaving() && says_nothing_new(m)) {
            return;
        }
        // Reverts that were queued for the object as it was kept before do not count any more.
        let generation = self.objects.get(&key).map_or(0, |m| m.write.next_generation());
        let mut managed = Managed::new(owner, desired, last_applied, generation);
        if managed.is_applied() {
            // So it is until it is seen.
            let recalled = self.accounts.get_mut(owner).and_then(|account| account.recall(&key));
            managed.drift = recalled.map(|shown| Box::new(RemainingDrift::recalled(shown)));
        }
        self.objects.insert(key, managed);
    }

    /// Whether an object is applied for another owner.
    pub(crate) fn is_applied_for_another(&self, owner: &Owner, key: &Key) -> bool {
        self.get(key).is_some_and(|m| m.owner != *owner && m.is_applied() && !m.phase.is_leaving())
    }

    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        self.memory.remove_owner(owner);
        self.objects.remove_owner(owner);
        self.accounts.remove(owner);
        self.written.remove(owner);
    }

    /// The object left the repository: it is not reverted any more.
    pub(crate) fn leave(&mut self, owner: &Owner, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key).filter(|m| m.owner == *owner) {
            managed.phase.leave();
            managed.drift = None;
            managed.write.clear_pending();
        }
    }

    /// All objects kept for an owner, with what was last applied to them.
    pub(crate) fn kept_for(&self, owner: &Owner) -> impl Iterator<Item = (&Key, &Managed)> {
        self.objects.of(owner)
    }
}
