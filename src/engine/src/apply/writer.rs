//! [`Writer`]: the store behind its lock, the locks of the objects, and what every write needs.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::audited::AuditCounts;
use super::follow_up::{FollowUp, FollowUps};
use super::load::ServerLoad;
use super::object_locks::{ObjectLock, ObjectLocks};
use crate::managed::desired::Desired;
use crate::managed::installation::Installation;
use crate::managed::pending::Next;
use crate::managed::store::Store;
use crate::notification::Message;
use mainstay_cluster::liveness::Component;
use mainstay_cluster::reflector::Delta;
use mainstay_cluster::{Cluster, Error, Regarding};
use mainstay_object::{Key, Owner};

/// Longest wait of a commit's writes for reverts, per object.
const YIELD: Duration = Duration::from_millis(50);
/// Longest wait of an audit for reverts and applies, per object: where there are always some, it is made all the same.
const YIELD_TO_ALL: Duration = Duration::from_secs(1);
/// How long the first answer of a watch is waited for.
const ASKED_WITHIN: Duration = Duration::from_secs(10);
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
    /// Until then the server wants to be left alone.
    paused_until: Option<Instant>,
}

impl Reverts {
    fn are_none(&self) -> bool {
        self.in_flight == 0 && !self.some_wait
    }
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
    /// The watch of inventories has shown all of them, or does not work.
    inventories_asked: watch::Sender<bool>,
    reverts: watch::Sender<Reverts>,
    /// How many applies of commits are in flight or wait for reverts.
    puts: watch::Sender<usize>,
    audits: AuditCounts,
    /// The Mainstay that runs here.
    installation: OnceLock<Installation>,
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

    /// For dry runs: no watch tells it anything, so it waits for none.
    pub fn for_dry_runs(cluster: Cluster, liveness: Component) -> Self {
        let (writer, _) = Self::new(cluster, liveness, |_| {});
        writer.0.autoscalers_known.send_replace(true);
        writer.0.inventories_asked.send_replace(true);
        writer
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
            inventories_asked: watch::Sender::new(false),
            reverts: watch::Sender::default(),
            puts: watch::Sender::default(),
            audits: AuditCounts::default(),
            installation: OnceLock::new(),
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

    /// Returns this writer for reverts: they do not wait for the requests of commits. Their own number is limited.
    pub(super) fn urgent(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.urgent())
    }

    /// The store, for a moment.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock()
    }

    /// The Mainstay that runs here is this from now on. Only the first time counts.
    pub fn set_installation(&self, installation: Installation) {
        // It does not change while its agent runs.
        let _ = self.0.installation.set(installation);
    }

    /// The Mainstay that runs here.
    pub fn installation(&self) -> &Installation {
        static UNKNOWN: LazyLock<Installation> = LazyLock::new(Installation::default);
        self.0.installation.get().unwrap_or(&UNKNOWN)
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
        self.0.reverts.send_if_modified(|reverts| {
            let before = std::mem::replace(reverts, Reverts { in_flight, some_wait, ..*reverts });
            before != *reverts
        });
    }

    /// The server wants to be left alone until then, if it does.
    pub(crate) fn set_pause(&self, until: Option<Instant>) {
        self.0.reverts.send_if_modified(|reverts| std::mem::replace(&mut reverts.paused_until, until) != until);
    }

    /// How many reverts are in flight.
    pub(super) fn reverts_in_flight(&self) -> usize {
        self.0.reverts.borrow().in_flight
    }

    /// Waits while there are reverts, for a moment: drift goes before sync work.
    pub(super) async fn yield_to_reverts(&self) {
        let mut reverts = self.0.reverts.subscribe();
        let none = reverts.wait_for(Reverts::are_none);
        let _ = tokio::time::timeout(YIELD, none).await;
    }

    /// Counts one more apply of a commit, until what is returned is dropped.
    pub(super) fn begin_put(&self) -> Putting<'_> {
        self.0.puts.send_modify(|puts| *puts += 1);
        Putting(self)
    }

    /// Waits while there are reverts and applies, for a moment, and for as long as the server wants to be left alone.
    pub(crate) async fn yield_to_all(&self) {
        let (mut reverts, mut puts) = (self.0.reverts.subscribe(), self.0.puts.subscribe());
        let none = async {
            // The senders live as long as the writer does.
            while reverts.wait_for(Reverts::are_none).await.is_ok() && puts.wait_for(|puts| *puts == 0).await.is_ok() {
                if self.0.reverts.borrow().are_none() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(YIELD_TO_ALL, none).await;
        loop {
            let until = self.0.reverts.borrow().paused_until;
            let Some(pause) = until.and_then(|until| until.checked_duration_since(Instant::now())) else { break };
            tokio::time::sleep(pause).await;
        }
    }

    /// What an audit says about the server counts for reverts, too.
    pub(crate) fn report_load(&self, load: ServerLoad) {
        self.follow_up(FollowUp::Learn(load));
    }

    /// What became of audits.
    pub fn audits(&self) -> &AuditCounts {
        &self.0.audits
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
        let _ = tokio::time::timeout(ASKED_WITHIN, known.wait_for(|known| *known)).await;
    }

    /// Takes in what the watch of the ConfigMaps that hold inventories shows.
    pub(crate) fn see_inventory(&self, delta: &Delta<Key>) {
        let mut store = self.store();
        let maps = &mut store.inventory_maps;
        match delta {
            Delta::Listed(_, live) => {
                maps.interrupted();
                return maps.insert(live);
            }
            Delta::Unreadable(_, live, _) => return maps.insert(live),
            Delta::Changed(_, live) => {
                maps.resumed();
                return maps.insert(live);
            }
            Delta::Gone(_, live) => {
                maps.resumed();
                return maps.remove(live);
            }
            Delta::Resumed => maps.resumed(),
            Delta::Complete(_) => maps.complete(),
            Delta::Failed(_) => maps.interrupted(),
        }
        drop(store);
        self.0.inventories_asked.send_replace(true);
    }

    /// The ConfigMaps with inventories that carry this label in this namespace; `None` where the cluster does not show that.
    pub async fn inventory_maps(&self, namespace: &str, label: &str) -> Option<Vec<String>> {
        let mut asked = self.0.inventories_asked.subscribe();
        let _ = tokio::time::timeout(ASKED_WITHIN, asked.wait_for(|asked| *asked)).await;
        self.store().inventory_maps.names(namespace, label)
    }

    /// A ConfigMap with an inventory is about to be written.
    pub fn note_inventory_map(&self, namespace: &str, label: &str, name: &str) {
        self.store().inventory_maps.note(namespace, label, name);
    }

    /// Whether what scales a workload may leave it without pods.
    pub fn may_rest(&self, workload: &Key) -> bool {
        self.store().may_rest(workload)
    }

    /// It is known which workloads an autoscaler scales, as far as the cluster says.
    pub(crate) fn autoscalers_are_known(&self) {
        self.0.autoscalers_known.send_replace(true);
    }
}

/// An apply of a commit that is in flight, or waits.
pub(super) struct Putting<'w>(&'w Writer);

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        self.0.0.puts.send_modify(|puts| *puts -= 1);
    }
}
