//! What the owners of objects (GitSyncs and Functions) hand to the store and read from it, where the drift loop has to
//! follow or several things are read together.

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

/// Objects that are accepted under one hold of the store's lock.
const ACCEPTED: usize = 256;

impl Writer {
    /// What applies to an owner's objects from now on. `history` is what its status says, and counts only the first time.
    /// Whether something else did before.
    pub fn set_policy(&self, owner: &Owner, policy: Policy, history: History) -> bool {
        let is_changed = self.store().set_policy(owner, policy, history);
        if is_changed {
            // What was passed over under the old policy has to be looked at again.
            self.follow_up(FollowUp::ListOwner(owner.clone()));
            self.retry_failed(owner);
        }
        is_changed
    }

    /// The kinds whose objects may be deleted and created anew for an owner from now on; whether it was others before.
    pub fn set_replaced_kinds(&self, owner: &Owner, kinds: ReplacedKinds) -> bool {
        let is_changed = self.store().set_replaced_kinds(owner, kinds);
        if is_changed {
            self.retry_failed(owner);
        }
        is_changed
    }

    /// How to tell whether an owner's objects are healthy from now on. What is kept of objects does not say that: those of which
    /// it may be something else now are read again.
    pub fn set_health_rules(&self, owner: &Owner, rules: &Arc<HealthRules>) {
        let kinds = self.store().set_health_rules(owner, rules);
        if !kinds.is_empty() {
            self.follow_up(FollowUp::ListKinds(owner.clone(), kinds));
        }
    }

    /// Reverts that failed are tried again at once.
    fn retry_failed(&self, owner: &Owner) {
        let failed = self.store().failed_of(owner);
        for key in failed {
            let is_queued = self.store().reset_failure(&key);
            if is_queued {
                self.carry_out(&key, Next::Queue);
            }
        }
    }

    /// Whether an object is to be created as something else than it is, once it is gone.
    pub fn has_successor(&self, key: &Key) -> bool {
        self.store().successor(key).is_some()
    }

    /// Changes of these objects stay from now on, because with them the owner cannot read its repository. Those of which
    /// that is over are looked at.
    pub fn set_unread(&self, owner: &Owner, unread: BTreeMap<Key, Timestamp>) {
        let over = self.store().set_unread(owner, unread);
        for key in over {
            self.follow_up(FollowUp::LookAgain(key, Duration::ZERO));
        }
    }

    /// The documents of an owner are these: what autoscalers among them scale keeps its count where it leaves a document.
    pub fn expect_autoscalers(&self, owner: &Owner, desired: &[Arc<Desired>]) {
        self.store().expect_autoscalers(owner, desired);
    }

    /// A commit counts from now on: what is `leaving` is left alone, and what was applied as the commit wants it is kept.
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
            for kind in to_list {
                self.follow_up(FollowUp::List(kind));
            }
            for key in back {
                self.follow_up(FollowUp::LookAgain(key, Duration::ZERO));
            }
        }
    }

    /// Digest of the document that an object is kept at for an owner: nothing needs to be done about it by the owner,
    /// although it may just be on its way back, or under break glass.
    pub fn kept_source(&self, owner: &Owner, key: &Key) -> Option<Digest> {
        let store = self.store();
        let managed = store.get(key).filter(|managed| managed.owner == *owner && !managed.phase.is_leaving())?;
        let applied = managed.is_applied() && !managed.applied.is_outdated();
        (applied || managed.phase.pause().is_some()).then(|| managed.desired.source())
    }

    /// The document that is kept at a key, for an object whose commit did not change.
    pub fn desired(&self, key: &Key) -> Option<Arc<Desired>> {
        self.store().get(key).map(|managed| Arc::clone(&managed.desired))
    }

    /// Follows an object under break glass that is not kept yet, and notifies its owner when that ends.
    pub fn insert_paused(&self, owner: &Owner, desired: &Arc<Desired>) {
        let is_new = {
            let mut store = self.store();
            store.hold(owner, Arc::clone(desired), LastApplied::default());
            store.get_mut(&desired.key).filter(|managed| managed.owner == *owner).is_some_and(|mut managed| {
                let was_paused = managed.phase.pause().is_some();
                managed.phase.begin_pause(PauseEnd::Open);
                !was_paused
            })
        };
        if is_new {
            self.watch_by_name(desired);
        }
    }

    /// Whether an object is kept and known to be under break glass.
    pub fn is_paused(&self, key: &Key) -> bool {
        self.store().get(key).is_some_and(|managed| managed.phase.pause().is_some())
    }

    /// An object is gone, or somebody else's: it is neither kept nor listed for this owner any more.
    pub fn remove(&self, owner: &Owner, key: &Key) {
        self.store().remove(owner, key);
    }

    /// Forgets an object of which nothing was ever applied: it was refused, and another one may be wanted next.
    pub fn forget_unapplied(&self, owner: &Owner, key: &Key) {
        let mut store = self.store();
        if store.get(key).is_some_and(|managed| !managed.is_applied() && managed.phase.pause().is_none()) {
            store.remove(owner, key);
        }
    }

    /// So many bytes are to be kept in memory for an owner; whether they may.
    pub fn keep_in_memory(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.store().memory.set(owner, part, bytes)
    }

    /// Whether so many bytes might be kept in memory for an owner now.
    pub fn may_keep_in_memory(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.store().memory.fits(owner, part, bytes)
    }

    /// An owner begins: so many bytes are kept in memory for what it is itself, and so many are set aside for its objects; whether
    /// they may.
    pub fn admit_to_memory(&self, owner: &Owner, resource: usize, expected: usize) -> bool {
        self.store().memory.admit(owner, resource, expected)
    }

    /// There was no memory for an owner: it is woken when there may be. How many bytes must be allowed for all owners together so
    /// that it fits after those that wait longer.
    pub fn wait_for_memory(&self, owner: &Owner, waiting: Waiting) -> usize {
        self.store().memory.wait(owner, waiting)
    }

    /// An owner waits for memory no longer.
    pub fn end_memory_wait(&self, owner: &Owner) {
        self.store().memory.end_wait(owner);
    }

    /// What may be kept in memory for all owners together, in bytes.
    pub fn limit_memory(&self, bytes: usize) {
        self.store().memory.set_limit(bytes);
    }

    /// Forgets everything of an owner.
    pub fn forget_owner(&self, owner: &Owner) {
        self.store().remove_owner(owner);
        self.remove_notifier(owner);
        self.end_idle_watches();
    }

    /// Ends the watches of kinds of which nothing is kept any more.
    pub fn end_idle_watches(&self) {
        let mut store = self.store();
        for kind in store.end_idle_watches() {
            // Sent under the lock, so that a watch that begins anew begins after it.
            self.follow_up(FollowUp::EndWatch(kind));
        }
    }

    /// What an owner's status says of its objects.
    pub fn summary(&self, owner: &Owner) -> Summary {
        let clock = self.clock();
        self.store().summary(owner, clock)
    }

    /// Objects that could not be reverted, with the cause, once that has been tried again: what fails once only is over
    /// sooner than anybody can read of it.
    pub fn not_put_back(&self, owner: &Owner) -> Vec<(Key, String)> {
        let store = self.store();
        let keys = store.objects.tally(owner).into_iter().flat_map(|tally| tally.about(Topic::NotPutBack));
        keys.filter_map(|key| Some((key.clone(), store.get(key)?.failure()?.cause.clone()))).collect()
    }
}
