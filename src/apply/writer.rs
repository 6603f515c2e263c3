//! [`Writer`]: the store behind its lock, the locks of the objects, and what every write needs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::follow_up::{FollowUp, FollowUps};
use super::object_locks::{ObjectLock, ObjectLocks};
use crate::cluster::{Cluster, Error, Regarding};
use crate::liveness::Component;
use crate::managed::desired::Desired;
use crate::managed::pending::Next;
use crate::managed::store::Store;
use crate::notification::Message;
use crate::object::{Key, Owner};

/// Longest wait of a commit's writes for reverts, per object.
const YIELD: Duration = Duration::from_millis(50);
/// How long after the end of a break glass the object is looked at.
const AFTER_PAUSE: Duration = Duration::from_millis(50);

/// A message about what an owner's controller or the writer did.
pub struct Announcement<'a> {
    /// For whom the object is managed.
    pub owner: &'a Owner,
    /// The object, where it is about one that is there or just was.
    pub object: Option<Regarding>,
    /// What happened.
    pub message: &'a Message,
}

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// How many reverts there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reverts {
    in_flight: usize,
    /// Some wait until they may be in flight.
    some_wait: bool,
}

/// The one writer of managed objects. Clones share everything. It reads and writes with the agent's own rights, or with
/// those of an owner's ServiceAccount ([`acting_for`](Self::acting_for)).
#[derive(Clone)]
pub struct Writer(Arc<Inner>, Cluster);

struct Inner {
    announce: Box<Announce>,
    store: Mutex<Store>,
    locks: ObjectLocks,
    notifiers: Mutex<HashMap<Owner, Arc<Notify>>>,
    autoscalers_known: watch::Sender<bool>,
    reverts: watch::Sender<Reverts>,
    follow_ups: UnboundedSender<FollowUp>,
    started: Instant,
    liveness: Component,
}

impl Writer {
    /// Over a cluster, and the follow-ups of its writes. `liveness` moves with every revert; `announce` is called for
    /// everything worth telling and must not block.
    pub fn new(
        cluster: Cluster,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> (Self, FollowUps) {
        Self::over(Store::default(), cluster, liveness, announce)
    }

    /// Over another cluster, with a store of its own. What is kept in memory for both counts together.
    pub fn beside(
        &self,
        cluster: Cluster,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> (Self, FollowUps) {
        let store = Store { memory: self.store().memory.clone(), ..Store::default() };
        Self::over(store, cluster, liveness, announce)
    }

    fn over(
        store: Store,
        cluster: Cluster,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> (Self, FollowUps) {
        let (sender, follow_ups) = FollowUps::channel();
        let inner = Inner {
            announce: Box::new(announce),
            store: Mutex::new(store),
            locks: ObjectLocks::default(),
            notifiers: Mutex::default(),
            autoscalers_known: watch::Sender::new(false),
            reverts: watch::Sender::default(),
            follow_ups: sender,
            started: Instant::now(),
            liveness,
        };
        (Self(Arc::new(inner), cluster), follow_ups)
    }

    /// The cluster that is written to, by whose rights this writer writes.
    pub fn cluster(&self) -> &Cluster {
        &self.1
    }

    /// This writer with the rights that an owner's objects are read and written with: those of its ServiceAccount, or the
    /// agent's own. `None` once the owner is forgotten: then nobody answers for it.
    pub fn acting_for(&self, owner: &Owner) -> Option<Self> {
        let account = self.store().acts_as(owner)?;
        Some(Self(Arc::clone(&self.0), self.1.acting_as(account)))
    }

    /// The store, for a moment.
    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock()
    }

    pub(super) fn liveness(&self) -> &Component {
        &self.0.liveness
    }

    /// The lock of an object, which is held during each write to it.
    pub(super) async fn lock_object(&self, key: &Key) -> ObjectLock<'_> {
        self.0.locks.lock(key).await
    }

    /// So many reverts are in flight now; whether some wait until they may be.
    pub(crate) fn set_reverts(&self, in_flight: usize, some_wait: bool) {
        self.0.reverts.send_replace(Reverts { in_flight, some_wait });
    }

    /// How many reverts are in flight.
    pub(super) fn reverts_in_flight(&self) -> usize {
        self.0.reverts.borrow().in_flight
    }

    /// Waits while there are reverts, for a moment: drift goes before sync work.
    pub(super) async fn yield_to_reverts(&self) {
        let mut reverts = self.0.reverts.subscribe();
        let none = reverts.wait_for(|reverts| reverts.in_flight == 0 && !reverts.some_wait);
        let _ = tokio::time::timeout(YIELD, none).await;
    }

    /// Seconds on a monotonic clock.
    pub(crate) fn clock(&self) -> f64 {
        self.0.started.elapsed().as_secs_f64()
    }

    #[expect(clippy::unused_self, reason = "the clock is the writer's, wherever it comes from")]
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Notifies when something changed that an owner's status shows.
    pub fn notifier(&self, owner: &Owner) -> Arc<Notify> {
        let mut notifiers = self.0.notifiers.lock();
        Arc::clone(notifiers.entry(owner.clone()).or_default())
    }

    pub(super) fn remove_notifier(&self, owner: &Owner) {
        self.0.notifiers.lock().remove(owner);
    }

    /// Notifies an owner of a change that its status shows.
    pub(crate) fn notify(&self, owner: &Owner) {
        let notifiers = self.0.notifiers.lock();
        // An owner that is gone has no notifier, and gets none.
        notifiers.get(owner).inspect(|notifier| notifier.notify_one());
    }

    pub(super) fn announce(&self, owner: &Owner, object: Option<(&Arc<Desired>, &Value)>, message: &Message) {
        let object = object.map(|(desired, live)| Regarding {
            key: desired.key.clone(),
            api_version: desired.kind.api_version(),
            uid: live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
        });
        (self.0.announce)(&Announcement { owner, object, message });
    }

    /// Tells of a managed object that cannot be read.
    pub(crate) fn announce_unreadable(&self, key: &Key, live: &Value, error: &Error) {
        let known = self.store().get(key).map(|managed| (managed.owner.clone(), Arc::clone(&managed.desired)));
        let Some((owner, desired)) = known else { return };
        let message =
            Message::Unreadable { subject: owner.clone(), object: Some(key.to_string()), cause: error.cause_text() };
        self.announce(&owner, Some((&desired, live)), &message);
    }

    /// Asks the drift loop to do something.
    pub(super) fn follow_up(&self, follow_up: FollowUp) {
        // The receiver is gone only when the loop has ended, and then nothing is to be done any more.
        let _ = self.0.follow_ups.send(follow_up);
    }

    /// Does what the store says has to follow an event or a write: has the object reverted or reported, or says that it is
    /// paused or resumed.
    pub(crate) fn carry_out(&self, key: &Key, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Queue => {
                let generation = self.store().get(key).map_or(0, |managed| managed.write.generation());
                self.follow_up(FollowUp::Revert(key.clone(), generation));
            }
            Next::Paused(until) => {
                self.announce_pause(key, true, until.problem());
                if let Some(until) = until.time() {
                    let wait = Duration::try_from(until - self.now()).unwrap_or_default();
                    self.follow_up(FollowUp::LookAgain(key.clone(), wait + AFTER_PAUSE));
                }
            }
            Next::Resumed => self.announce_pause(key, false, None),
        }
    }

    fn announce_pause(&self, key: &Key, paused: bool, problem: Option<&'static str>) {
        let owner = self.store().get(key).map(|managed| managed.owner.clone());
        if let Some(owner) = owner {
            let message = Message::Paused { subject: owner.clone(), object: key.to_string(), paused, problem };
            self.announce(&owner, None, &message);
            self.notify(&owner);
        }
    }

    /// Has one object watched by name: it lost the label by which we would see it, and is not to be touched now.
    pub(super) fn watch_by_name(&self, desired: &Desired) {
        let over = CancellationToken::new();
        let is_new = self.store().get_mut(&desired.key).is_some_and(|mut managed| {
            let is_new = managed.followed.is_none();
            managed.followed.get_or_insert_with(|| over.clone().drop_guard());
            is_new
        });
        if is_new {
            self.follow_up(FollowUp::WatchByName(Arc::clone(&desired.kind), desired.key.clone(), over));
        }
    }

    /// Waits until it is known which workloads an autoscaler scales; a cluster that does not say is not waited for long.
    pub(super) async fn know_autoscalers(&self) {
        let mut known = self.0.autoscalers_known.subscribe();
        let _ = tokio::time::timeout(Duration::from_secs(10), known.wait_for(|known| *known)).await;
    }

    /// Whether what scales a workload may leave it without pods.
    pub(crate) fn may_rest(&self, workload: &Key) -> bool {
        self.store().may_rest(workload)
    }

    /// It is known which workloads an autoscaler scales, as far as the cluster says.
    pub(crate) fn autoscalers_are_known(&self) {
        self.0.autoscalers_known.send_replace(true);
    }
}
