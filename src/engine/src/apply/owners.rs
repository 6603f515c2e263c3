//! Access of owners (GitSyncs and Functions) to the store, where a follow-up is needed or several values are read
//! together.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Writer;
use super::follow_up::FollowUp;
use crate::managed::desired::Desired;
use crate::managed::health_rules::HealthRules;
use crate::managed::objects::Topic;
use crate::managed::pending::Next;
use crate::managed::replacement::ReplacedKinds;
use crate::managed::summary::Summary;
use crate::managed::verdict::LastApplied;
use crate::managed::written::Accepted;
use crate::managed::{History, Part, PauseEnd, Policy, Waiting};
use mainstay_cluster::KindId;
use mainstay_object::{Digest, Key, Owner};

/// Maximum number of objects that are accepted while the store is locked.
const ACCEPTED: usize = 256;

impl Writer {
    /// Sets the policy of an owner. `history` comes from the owner's status and is used only on the first call. Returns
    /// whether the policy changed.
    pub fn set_policy(&self, owner: &Owner, policy: Policy, history: History) -> bool {
        let kinds = {
            let mut store = self.store();
            if !store.set_policy(owner, policy, history) {
                return false;
            }
            // The old policy may have ignored drift.
            store.show_again(owner, |_| true)
        };
        self.list(kinds);
        self.retry_failed(owner);
        true
    }

    /// Suspends an owner until its policy is set again: from now on, no object is applied for its commit, and none is reverted.
    pub fn suspend(&self, owner: &Owner) {
        self.store().suspend(owner);
    }

    /// Whether an owner is suspended.
    pub fn is_suspended(&self, owner: &Owner) -> bool {
        self.store().is_suspended(owner)
    }

    /// Lists the unshown objects of these kinds.
    fn list(&self, kinds: impl IntoIterator<Item = KindId>) {
        for kind in kinds {
            self.follow_up(FollowUp::List(kind));
        }
    }

    /// Sets the kinds that may be replaced for an owner. Returns whether they changed.
    pub fn set_replaced_kinds(&self, owner: &Owner, kinds: ReplacedKinds) -> bool {
        let is_changed = self.store().set_replaced_kinds(owner, kinds);
        if is_changed {
            self.retry_failed(owner);
        }
        is_changed
    }

    /// Sets the health rules of an owner. The store does not contain whole objects, so kinds whose health may change
    /// are listed again.
    pub fn set_health_rules(&self, owner: &Owner, rules: &Arc<HealthRules>) {
        let kinds = self.store().set_health_rules(owner, rules);
        self.list(kinds);
    }

    /// Retries failed reverts immediately.
    fn retry_failed(&self, owner: &Owner) {
        let failed = self.store().failed_of(owner);
        for key in failed {
            let is_queued = self.store().reset_failure(&key);
            if is_queued {
                self.carry_out(&key, Next::Queue);
            }
        }
    }

    /// Whether an object is recreated with a different desired state once it is gone.
    pub fn has_successor(&self, key: &Key) -> bool {
        self.store().successor(key).is_some()
    }

    /// Exempts objects from reverts while their owner cannot read its repository. Objects that are no longer exempt
    /// are checked.
    pub fn set_unread(&self, owner: &Owner, unread: BTreeMap<Key, Timestamp>) {
        let over = self.store().set_unread(owner, unread);
        for key in over {
            self.follow_up(FollowUp::LookAgain(key, Duration::ZERO));
        }
    }

    /// Sets the autoscalers in the manifests of an owner. Their workloads keep the replica count when it is removed
    /// from the manifest.
    pub fn expect_autoscalers(&self, owner: &Owner, desired: &[Arc<Desired>]) {
        self.store().expect_autoscalers(owner, desired);
    }

    /// Accepts a commit: stops reverts of `leaving` objects and keeps those that already have the desired state.
    pub fn accept<'k>(&self, owner: &Owner, desired: &[Arc<Desired>], leaving: impl IntoIterator<Item = &'k Key>) {
        let mut store = self.store();
        for key in leaving {
            store.leave(owner, key);
        }
        store.expect_autoscalers(owner, desired);
        drop(store);
        for some in desired.chunks(ACCEPTED) {
            let mut to_list: HashSet<KindId> = HashSet::new();
            let mut store = self.store();
            let Accepted { expected, back } = store.accept(owner, some);
            for desired in &expected {
                if store.begin_watch(desired) {
                    self.follow_up(FollowUp::Watch(Arc::clone(&desired.kind)));
                } else if desired.label().is_some() {
                    to_list.insert(desired.kind.id());
                }
            }
            drop(store);
            self.list(to_list);
            for key in back {
                self.follow_up(FollowUp::LookAgain(key, Duration::ZERO));
            }
        }
    }

    /// Returns the digest of an object's stored manifest if the object needs no apply: it is applied, paused or being
    /// reverted.
    pub fn kept_source(&self, owner: &Owner, key: &Key) -> Option<Digest> {
        let store = self.store();
        let managed = store.get(key).filter(|managed| managed.owner == *owner && !managed.phase.is_leaving())?;
        let applied = managed.is_applied() && !managed.applied.is_outdated();
        (applied || managed.phase.pause().is_some()).then(|| managed.desired.source())
    }

    /// Returns the stored desired state of an object.
    pub fn desired(&self, key: &Key) -> Option<Arc<Desired>> {
        self.store().get(key).map(|managed| Arc::clone(&managed.desired))
    }

    /// Stores an object that is paused until this end, and watches it by name, so that its owner is notified when the
    /// pause ends.
    pub fn insert_paused(&self, owner: &Owner, desired: &Arc<Desired>, until: PauseEnd) {
        let is_new = {
            let mut store = self.store();
            store.hold(owner, Arc::clone(desired), LastApplied::default());
            let managed = store.get(&desired.key).filter(|managed| managed.owner == *owner);
            let is_running = managed.is_some_and(|managed| managed.phase.pause().is_none());
            is_running && store.begin_pause(&desired.key, until, self.now())
        };
        if is_new {
            self.watch_by_name(desired);
        }
    }

    /// Whether an object is stored and paused.
    pub fn is_paused(&self, key: &Key) -> bool {
        self.store().get(key).is_some_and(|managed| managed.phase.pause().is_some())
    }

    /// Removes an object that is gone or no longer belongs to this owner.
    pub fn remove(&self, owner: &Owner, key: &Key) {
        self.store().remove(owner, key);
    }

    /// Records that the object with this UID has succeeded, although its status does not show that yet. If it is deleted
    /// meanwhile, it is not recreated.
    pub fn note_success(&self, owner: &Owner, key: &Key, uid: &str) {
        self.store().note_success(owner, key, uid);
    }

    /// Removes an object that was never applied and is not paused.
    pub fn forget_unapplied(&self, owner: &Owner, key: &Key) {
        let mut store = self.store();
        if store.get(key).is_some_and(|managed| !managed.is_applied() && managed.phase.pause().is_none()) {
            store.remove(owner, key);
        }
    }

    /// Records the memory of an owner in bytes. Returns whether it is within the limit.
    pub fn keep_in_memory(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.store().memory.set(owner, part, bytes)
    }

    /// Whether so many bytes would be within the memory limit.
    pub fn may_keep_in_memory(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.store().memory.fits(owner, part, bytes)
    }

    /// Admits an owner: records the bytes of its own resource and reserves `expected` bytes for its objects. Returns
    /// whether they are within the limit.
    pub fn admit_to_memory(&self, owner: &Owner, resource: usize, expected: usize) -> bool {
        self.store().memory.admit(owner, resource, expected)
    }

    /// Queues an owner that did not fit into memory. Returns the limit, in bytes, with which it would fit after the
    /// owners that are before it in the queue.
    pub fn wait_for_memory(&self, owner: &Owner, waiting: Waiting) -> usize {
        self.store().memory.wait(owner, waiting)
    }

    /// Removes an owner from the queue for memory.
    pub fn end_memory_wait(&self, owner: &Owner) {
        self.store().memory.end_wait(owner);
    }

    /// Sets the memory limit of all owners in bytes.
    pub fn limit_memory(&self, bytes: usize) {
        self.store().memory.set_limit(bytes);
    }

    /// Removes the decisions about the objects of an owner that was recreated.
    pub fn forget_decisions(&self, owner: &Owner) {
        self.store().forget_decisions(owner);
    }

    /// Removes an owner with all its objects.
    pub fn forget_owner(&self, owner: &Owner) {
        self.store().remove_owner(owner);
        self.remove_notifier(owner);
        self.end_idle_watches();
    }

    /// Stops watches of kinds without stored objects.
    pub fn end_idle_watches(&self) {
        let mut store = self.store();
        for kind in store.end_idle_watches() {
            // Sent under the lock: a later watch of the kind is requested after this.
            self.follow_up(FollowUp::EndWatch(kind));
        }
    }

    /// Returns the counts and problems of an owner's objects for its status.
    pub fn summary(&self, owner: &Owner) -> Summary {
        let clock = self.clock();
        self.store().summary(owner, clock)
    }

    /// Returns objects whose revert failed at least twice, with the cause. Most single failures are over before a user
    /// reads them.
    pub fn not_put_back(&self, owner: &Owner) -> Vec<(Key, String)> {
        let store = self.store();
        let keys = store.objects.tally(owner).into_iter().flat_map(|tally| tally.about(Topic::NotPutBack));
        keys.filter_map(|key| Some((key.clone(), store.get(key)?.failure()?.cause.clone()))).collect()
    }
}
