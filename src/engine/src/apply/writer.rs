//! [`Writer`]: the shared state of all writes: the store, the object locks, and the counts of reverts and applies.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::audited::AuditCounts;
use super::decided;
use super::follow_up::{FollowUp, FollowUpSender, FollowUps};
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

/// Longest time that an apply of a commit waits for reverts.
const YIELD: Duration = Duration::from_millis(50);
/// Longest time that an audit waits for reverts and applies.
const YIELD_TO_ALL: Duration = Duration::from_secs(1);
/// Maximum time to wait for the first list of autoscalers.
const AUTOSCALERS_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time to wait until the watch has listed the inventories. Without the names, each owner costs a list, and the
/// API server scans all ConfigMaps of the namespace for each.
const INVENTORIES_WITHIN: Duration = Duration::from_secs(30);
/// Delay between the end of a pause and the next check of the object.
pub(crate) const AFTER_PAUSE: Duration = Duration::from_millis(50);

/// A message about an action of the writer or of an owner's controller.
pub struct Announcement<'a> {
    /// The owner of the object.
    pub owner: &'a Owner,
    /// The object; `None` if there is none.
    pub object: Option<Regarding>,
    /// The message.
    pub message: &'a Message,
}

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reverts {
    in_flight: usize,
    /// Whether queued reverts wait for a permit.
    some_wait: bool,
    /// The time until which reverts pause because the server is overloaded.
    paused_until: Option<Instant>,
}

impl Reverts {
    fn are_none(&self) -> bool {
        self.in_flight == 0 && !self.some_wait
    }
}

/// The one writer of managed objects. Clones share their state. Requests use the agent's permissions, or those of an
/// owner's ServiceAccount ([`acting_for`](Self::acting_for)).
#[derive(Clone)]
pub struct Writer(Arc<Inner>, Cluster);

struct Inner {
    announce: Box<Announce>,
    store: Mutex<Store>,
    locks: ObjectLocks,
    notifiers: Mutex<HashMap<Owner, Arc<Notify>>>,
    autoscalers_known: watch::Sender<bool>,
    /// Whether the wait for the names of inventories is over: they are known, or the watch will not show them.
    inventories_settled: watch::Sender<bool>,
    reverts: watch::Sender<Reverts>,
    /// Number of applies of commits that are in flight or wait for reverts.
    puts: watch::Sender<usize>,
    audits: AuditCounts,
    installation: OnceLock<Installation>,
    follow_ups: FollowUpSender,
    started: Instant,
    liveness: Component,
}

impl Writer {
    /// Returns a writer for a cluster, and the follow-ups of its writes. `liveness` tracks reverts. `announce`
    /// receives each message and must not block.
    pub fn new(
        cluster: Cluster,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> (Self, FollowUps) {
        Self::over(Store::default(), cluster, liveness, announce)
    }

    /// Returns a writer for dry runs. It has no watches and waits for none.
    pub fn for_dry_runs(cluster: Cluster, liveness: Component) -> Self {
        let (writer, _) = Self::new(cluster, liveness, |_| {});
        writer.0.autoscalers_known.send_replace(true);
        writer.0.inventories_settled.send_replace(true);
        writer
    }

    /// Returns a writer for a different cluster, with a separate store. Both stores share one memory limit.
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
            inventories_settled: watch::Sender::new(false),
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

    /// The cluster client, with the permissions of this writer.
    pub fn cluster(&self) -> &Cluster {
        &self.1
    }

    /// Returns this writer with the permissions for an owner's objects: those of its ServiceAccount, or the agent's
    /// own. Returns `None` if the store does not know the owner.
    pub fn acting_for(&self, owner: &Owner) -> Option<Self> {
        let account = self.store().acts_as(owner)?;
        Some(Self(Arc::clone(&self.0), self.1.acting_as(account)))
    }

    /// Returns a writer for reverts. Reverts do not queue behind the requests of commits; a separate limit bounds their
    /// concurrency.
    pub(super) fn urgent(&self) -> Self {
        Self(Arc::clone(&self.0), self.1.urgent())
    }

    /// Locks the store. The caller must not hold the lock across an `await`.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock()
    }

    /// Sets the installation of this agent. Later calls have no effect.
    pub fn set_installation(&self, installation: Installation) {
        let _ = self.0.installation.set(installation);
    }

    /// The installation of this agent; a default one before it is set.
    pub fn installation(&self) -> &Installation {
        static UNKNOWN: LazyLock<Installation> = LazyLock::new(Installation::default);
        self.0.installation.get().unwrap_or(&UNKNOWN)
    }

    pub(super) fn liveness(&self) -> &Component {
        &self.0.liveness
    }

    /// Locks an object. Each write to an object holds the object's lock.
    pub(super) async fn lock_object(&self, key: &Key) -> ObjectLock<'_> {
        self.0.locks.lock(key).await
    }

    /// Returns the objects whose locks are held or waited for.
    pub(super) fn objects_in_use(&self) -> Vec<Key> {
        self.0.locks.used()
    }

    /// Sets the number of reverts in flight, and whether others wait for a permit.
    pub(crate) fn set_reverts(&self, in_flight: usize, some_wait: bool) {
        self.0.reverts.send_if_modified(|reverts| {
            let before = std::mem::replace(reverts, Reverts { in_flight, some_wait, ..*reverts });
            before != *reverts
        });
    }

    /// Sets the time until which the server is overloaded.
    pub(crate) fn set_pause(&self, until: Option<Instant>) {
        self.0.reverts.send_if_modified(|reverts| std::mem::replace(&mut reverts.paused_until, until) != until);
    }

    pub(super) fn reverts_in_flight(&self) -> usize {
        self.0.reverts.borrow().in_flight
    }

    /// Waits up to 50 ms for reverts, which go before applies of commits.
    pub(super) async fn yield_to_reverts(&self) {
        let mut reverts = self.0.reverts.subscribe();
        let none = reverts.wait_for(Reverts::are_none);
        let _ = tokio::time::timeout(YIELD, none).await;
    }

    /// Counts an apply of a commit until the returned guard is dropped.
    pub(super) fn begin_put(&self) -> Putting<'_> {
        self.0.puts.send_modify(|puts| *puts += 1);
        Putting(self)
    }

    /// Waits up to a second for reverts and applies, then until the server is no longer overloaded.
    pub(crate) async fn yield_to_all(&self) {
        let (mut reverts, mut puts) = (self.0.reverts.subscribe(), self.0.puts.subscribe());
        let none = async {
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

    /// Passes the server load that an audit saw to the limit of reverts.
    pub(crate) fn report_load(&self, load: ServerLoad) {
        self.follow_up(FollowUp::Learn(load));
    }

    /// Counts of audits by outcome.
    pub fn audits(&self) -> &AuditCounts {
        &self.0.audits
    }

    /// Seconds on a monotonic clock since the writer was created.
    pub(crate) fn clock(&self) -> f64 {
        self.0.started.elapsed().as_secs_f64()
    }

    #[expect(clippy::unused_self, reason = "the clock is the writer's, wherever it comes from")]
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Returns the notifier of an owner, which fires when its status has to be updated.
    pub fn notifier(&self, owner: &Owner) -> Arc<Notify> {
        let mut notifiers = self.0.notifiers.lock();
        Arc::clone(notifiers.entry(owner.clone()).or_default())
    }

    pub(super) fn remove_notifier(&self, owner: &Owner) {
        self.0.notifiers.lock().remove(owner);
    }

    pub(crate) fn notify(&self, owner: &Owner) {
        let notifiers = self.0.notifiers.lock();
        // The notifier is missing if the owner was removed.
        notifiers.get(owner).inspect(|notifier| notifier.notify_one());
    }

    /// Announces a message, and records the decision that it reports. The caller must not hold the lock of the store.
    pub(super) fn announce(&self, owner: &Owner, object: Option<(&Arc<Desired>, &Value)>, message: &Message) {
        let decision = object.and_then(|(desired, _)| decided::of_message(message, &desired.key, self.now()));
        if let Some(decision) = decision {
            self.store().record_decision(owner, decision);
        }
        let object = object.map(|(desired, live)| Regarding {
            key: desired.key.clone(),
            api_version: desired.kind.api_version(),
            uid: live.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned),
        });
        (self.0.announce)(&Announcement { owner, object, message });
    }

    /// Announces a managed object that cannot be read.
    pub(crate) fn announce_unreadable(&self, key: &Key, live: &Value, error: &Error) {
        let known = self.store().get(key).map(|managed| (managed.owner.clone(), Arc::clone(&managed.desired)));
        let Some((owner, desired)) = known else { return };
        let message =
            Message::Unreadable { subject: owner.clone(), object: Some(key.to_string()), cause: error.cause_text() };
        self.announce(&owner, Some((&desired, live)), &message);
    }

    /// Sends a request to the drift loop.
    pub(super) fn follow_up(&self, follow_up: FollowUp) {
        self.0.follow_ups.send(follow_up);
    }

    /// Carries out the next step that the store returned for an event or a write.
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

    /// Watches one object by name, because the watch of its kind does not show it without its label.
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

    /// Waits up to 10 s for the first list of autoscalers.
    pub(super) async fn know_autoscalers(&self) {
        let mut known = self.0.autoscalers_known.subscribe();
        let _ = tokio::time::timeout(AUTOSCALERS_WITHIN, known.wait_for(|known| *known)).await;
    }

    /// Records an event of the watch of inventory ConfigMaps.
    pub(crate) fn see_inventory(&self, delta: &Delta<Key>) {
        let mut store = self.store();
        store.inventory_maps.see(delta);
        let are_settled = store.inventory_maps.are_settled();
        // Sent under the lock, so that the last value belongs to the last event. All owners may wait for a change.
        self.0.inventories_settled.send_if_modified(|known| std::mem::replace(known, are_settled) != are_settled);
    }

    /// Returns the inventory ConfigMaps with this label in this namespace, and waits up to 30 s until the watch has
    /// listed them; `None` if it has not, or may not.
    pub async fn inventory_maps(&self, namespace: &str, label: &str) -> Option<Vec<String>> {
        let mut settled = self.0.inventories_settled.subscribe();
        let _ = tokio::time::timeout(INVENTORIES_WITHIN, settled.wait_for(|settled| *settled)).await;
        self.store().inventory_maps.names(namespace, label)
    }

    /// Records an inventory ConfigMap that the caller is about to write.
    pub fn note_inventory_map(&self, namespace: &str, label: &str, name: &str) {
        self.store().inventory_maps.note(namespace, label, name);
    }

    /// Whether the autoscaler of a workload may scale it to zero.
    pub fn may_rest(&self, workload: &Key) -> bool {
        self.store().may_rest(workload)
    }

    /// Ends the wait for autoscalers: they are listed, or the watch has failed.
    pub(crate) fn autoscalers_are_known(&self) {
        self.0.autoscalers_known.send_replace(true);
    }
}

/// Counts an apply of a commit that is in flight, until this value is dropped.
pub(super) struct Putting<'w>(&'w Writer);

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        self.0.0.puts.send_modify(|puts| *puts -= 1);
    }
}
