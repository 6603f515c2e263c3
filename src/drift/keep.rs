//! [`Drift`]: the store behind its lock, and what owners read from it and hand to it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::queue::{Job, Queue};
use super::watching::Watching;
use crate::api::git_sync::Revert;
use crate::cluster::{Cluster, Kind};
use crate::liveness::Component;
use crate::managed::Policy;
use crate::managed::desired::Desired;
use crate::managed::inventory::Inventory;
use crate::managed::object::Managed;
use crate::managed::objects::Topic;
use crate::managed::store::Store;
use crate::managed::summary::Summary;
use crate::managed::verdict::LastApplied;
use crate::managed::written::Accepted;
use crate::notification::Message;
use crate::object::{Digest, Key, Owner};

/// Locks that serialise writes to one object; objects share them by hash.
const LOCKS: usize = 512;

/// Objects that are accepted under one hold of the store's lock.
const ACCEPTED: usize = 256;

/// A message of one of the loops.
pub struct Announcement<'a> {
    /// For whom the object is managed.
    pub owner: &'a Owner,
    /// The object, where it is about one: what it must be and what it is.
    pub object: Option<(&'a Desired, &'a Value)>,
    /// What happened.
    pub message: &'a Message,
}

/// No write to an object begins while this is held.
pub struct ObjectLock<'a>(#[expect(dead_code, reason = "it is held, not read")] tokio::sync::MutexGuard<'a, ()>);

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The backward loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks broke.
    #[error("a task of the drift loop ended")]
    Task(#[source] tokio::task::JoinError),
}

/// The backward loop, and the one writer of managed objects.
#[derive(Clone)]
pub struct Drift(pub(super) Arc<Inner>);

pub(super) struct Inner {
    cluster: Cluster,
    announce: Box<Announce>,
    store: Mutex<Store>,
    locks: Vec<tokio::sync::Mutex<()>>,
    watches: Mutex<HashMap<KindId, Arc<Watching>>>,
    notifiers: Mutex<HashMap<Owner, Arc<Notify>>>,
    autoscalers_known: watch::Sender<bool>,
    pub(super) queue: Queue,
    started: Instant,
    /// Moves with every revert.
    pub(super) liveness: Component,
}

/// Group, version, kind.
type KindId = (Arc<str>, Arc<str>, Arc<str>);

impl Drift {
    /// Over a cluster. `announce` is called for everything worth telling and must not block.
    pub fn new(
        cluster: Cluster,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            cluster,
            announce: Box::new(announce),
            store: Mutex::default(),
            locks: (0..LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            watches: Mutex::default(),
            notifiers: Mutex::default(),
            autoscalers_known: watch::Sender::new(false),
            queue: Queue::default(),
            started: Instant::now(),
            liveness,
        }))
    }

    /// What applies to an owner's objects from now on. `reverted` and `last` are what its status says, and count only
    /// the first time.
    pub fn set_policy(&self, owner: &Owner, policy: Policy, reverted: i64, last: Vec<Revert>) {
        let before = self.store().policy(owner);
        self.store().set_policy(owner, policy, reverted, last);
        if before.is_some_and(|before| before != policy) {
            // What was passed over under the old policy has to be looked at again.
            let watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.values().for_each(|watching| watching.relist.notify_one());
        }
    }

    /// The inventory of an owner, once it was read.
    pub fn inventory(&self, owner: &Owner) -> Option<Arc<Inventory>> {
        self.store().inventory(owner)
    }

    /// The inventory of an owner was read.
    pub fn set_inventory(&self, owner: &Owner, inventory: Inventory) {
        self.store().set_inventory(owner, inventory);
    }

    /// The objects that were applied for an owner.
    pub fn applied(&self, owner: &Owner) -> HashSet<Key> {
        self.store().applied(owner)
    }

    /// These objects are about to be applied for an owner: they are listed from now on. Whether one was not.
    pub fn intend<'d>(&self, owner: &Owner, desired: impl Iterator<Item = &'d Arc<Desired>>) -> bool {
        self.store().intend(owner, desired)
    }

    /// A commit counts from now on: what is `leaving` is left alone, and what was applied as the commit wants it is kept.
    pub fn accept<'k>(&self, owner: &Owner, desired: &[Arc<Desired>], leaving: impl IntoIterator<Item = &'k Key>) {
        let mut store = self.store();
        for key in leaving {
            store.leave(owner, key);
        }
        drop(store);
        for some in desired.chunks(ACCEPTED) {
            let Accepted { expected, back } = self.store().accept(owner, some);
            for desired in &expected {
                if let Some(watching) = self.watch_kind(desired) {
                    watching.relist.notify_one();
                }
            }
            for key in &back {
                self.look_again(key, Duration::ZERO);
            }
        }
    }

    /// Another owner is to take these objects: one that comes back to this one is applied anew.
    pub fn give_up(&self, owner: &Owner, keys: &[Key]) {
        self.store().give_up(owner, keys);
    }

    /// The inventory of an owner, which is saved now.
    pub fn save(&self, owner: &Owner) -> Option<Arc<Inventory>> {
        self.store().save(owner)
    }

    /// Whether the inventory of an owner has changed since it was saved.
    pub fn is_unsaved(&self, owner: &Owner) -> bool {
        self.store().is_unsaved(owner)
    }

    /// The inventory of an owner could not be saved.
    pub fn not_saved(&self, owner: &Owner) {
        self.store().not_saved(owner);
    }

    /// Digest of the document that an object is kept at for an owner: nothing needs to be done about it by the owner,
    /// although it may just be on its way back, or under break glass.
    pub fn kept_source(&self, owner: &Owner, key: &Key) -> Option<Digest> {
        let store = self.store();
        let managed = store.get(key).filter(|managed| managed.owner == *owner && !managed.phase.is_leaving())?;
        let applied = managed.is_applied() && !managed.outdated;
        (applied || managed.phase.pause().is_some()).then(|| managed.desired.source())
    }

    /// The document that is kept at a key, for an object whose commit did not change.
    pub fn desired(&self, key: &Key) -> Option<Arc<Desired>> {
        self.store().get(key).map(|managed| Arc::clone(&managed.desired))
    }

    /// Follows an object under break glass that is not kept yet, and notifies its owner when that ends.
    pub fn insert_paused(&self, owner: &Owner, desired: &Arc<Desired>) {
        let new = {
            let mut store = self.store();
            store.hold(owner, Arc::clone(desired), LastApplied::default());
            store.get_mut(&desired.key).is_some_and(|mut managed| {
                let was_paused = managed.phase.pause().is_some();
                managed.phase.begin_pause(None);
                !was_paused
            })
        };
        if new {
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

    /// Forgets everything of an owner.
    pub fn forget_owner(&self, owner: &Owner) {
        self.store().remove_owner(owner);
        self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
        self.end_idle_watches();
    }

    /// What an owner's status says of its objects.
    pub fn summary(&self, owner: &Owner) -> Summary {
        let clock = self.clock();
        let mut summary = self.store().summary(owner, clock);
        summary.unwatched = self.unwatched(owner);
        summary
    }

    /// Kinds of an owner's objects that cannot be watched, with the cause.
    fn unwatched(&self, owner: &Owner) -> Vec<(String, String)> {
        let watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let failing = watches.iter().filter_map(|(id, watching)| Some((id.clone(), watching.failure()?)));
        let failing = failing.collect::<Vec<_>>();
        drop(watches);
        if failing.is_empty() {
            return Vec::new();
        }
        let store = self.store();
        let mut unwatched = Vec::new();
        for ((group, version, kind), why) in failing {
            let is_of = |m: &Managed| m.desired.label().is_some() && m.desired.kind.is(&group, &version, &kind);
            let first = store.kept_for(owner).map(|(_, managed)| managed).find(|managed| is_of(managed));
            unwatched.extend(first.map(|managed| (managed.desired.kind.resource.to_string(), why)));
        }
        unwatched.sort();
        unwatched
    }

    /// Notifies every owner of an object of this kind.
    pub(super) fn changed_for_kind(&self, kind: &Kind) {
        let owners = self.store().owners_of(kind);
        for owner in &owners {
            self.changed(owner);
        }
    }

    /// Objects that could not be put back, with the cause, once that has been tried again: what fails once only is over
    /// sooner than anybody can read of it.
    pub fn not_put_back(&self, owner: &Owner) -> Vec<(Key, String)> {
        let store = self.store();
        let keys = store.objects.tally(owner).into_iter().flat_map(|tally| tally.about(Topic::NotPutBack));
        keys.filter_map(|key| Some((key.clone(), store.get(key)?.failure()?.cause.clone()))).collect()
    }

    /// Notifies when something changed that an owner's status shows.
    pub fn notifier(&self, owner: &Owner) -> Arc<Notify> {
        let mut notifiers = self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(notifiers.entry(owner.clone()).or_default())
    }

    /// The cluster that is written to.
    pub fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other write to the object is under way.
    pub(super) async fn lock_object(&self, key: &Key) -> tokio::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        self.0.locks[at].lock().await
    }

    /// Seconds on a monotonic clock.
    pub(super) fn clock(&self) -> f64 {
        self.0.started.elapsed().as_secs_f64()
    }

    #[expect(clippy::unused_self, reason = "the clock is the loop's, wherever it comes from")]
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    pub(super) fn changed(&self, owner: &Owner) {
        let notifiers = self.0.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        // An owner that is gone has no notifier, and gets none.
        notifiers.get(owner).inspect(|notifier| notifier.notify_one());
    }

    pub(super) fn announce(&self, owner: &Owner, object: Option<(&Arc<Desired>, &Value)>, message: &Message) {
        let object = object.map(|(desired, live)| (&**desired, live));
        (self.0.announce)(&Announcement { owner, object, message });
    }

    /// Watches the objects of a kind from now on, if they are known by a label. The watch, if it was running already.
    pub(super) fn watch_kind(&self, desired: &Desired) -> Option<Arc<Watching>> {
        desired.label()?;
        let kind = &desired.kind;
        let id = (Arc::clone(&kind.group), Arc::clone(&kind.version), Arc::clone(&kind.kind));
        let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = watches.get(&id) {
            return Some(Arc::clone(running));
        }
        let watching = Arc::<Watching>::default();
        watches.insert(id, Arc::clone(&watching));
        self.0.queue.send(Job::Watch(Arc::clone(kind), watching));
        None
    }

    /// Watches one object by name: it lost the label by which we would see it, and is not to be touched now.
    pub(super) fn watch_by_name(&self, desired: &Desired) {
        let over = CancellationToken::new();
        let new = self.store().get_mut(&desired.key).is_some_and(|mut managed| {
            let new = managed.followed.is_none();
            managed.followed.get_or_insert_with(|| over.clone().drop_guard());
            new
        });
        if new {
            self.0.queue.send(Job::WatchByName(Arc::clone(&desired.kind), desired.key.clone(), over));
        }
    }

    /// Waits until no write to the object is under way; no new one begins while the answer is held.
    pub async fn lock(&self, key: &Key) -> ObjectLock<'_> {
        ObjectLock(self.lock_object(key).await)
    }

    /// Ends the watches of kinds of which nothing is kept any more.
    pub fn end_idle_watches(&self) {
        let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let store = self.store();
        watches.retain(|(group, version, kind), watching| {
            let kept = store.keeps(group, version, kind);
            if !kept {
                watching.stop.cancel();
            }
            kept
        });
    }

    /// Waits until it is known which workloads an autoscaler scales; a cluster that does not say is not waited for long.
    pub(super) async fn know_autoscalers(&self) {
        let mut known = self.0.autoscalers_known.subscribe();
        let _ = tokio::time::timeout(Duration::from_secs(10), known.wait_for(|known| *known)).await;
    }

    pub(super) fn autoscalers_are_known(&self) {
        self.0.autoscalers_known.send_replace(true);
    }
}
