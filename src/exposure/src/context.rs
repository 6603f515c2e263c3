//! The state that all APIRules share: the known state of the cluster, and the tasks to notify of changes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use super::child::{ChildKind, Place};
use super::known::{Facts, Full, Known};
use super::listed::{Name, Watched};
use super::no_target::NoTargets;
use super::seen::Seen;
use super::served::Served;
use super::settings::Settings;
use mainstay_cluster::liveness::Component;
use mainstay_cluster::reflector::List;
use mainstay_engine::apply::Writer;
use mainstay_engine::notification::Message;
use mainstay_object::Owner;

/// Maximum number of concurrent writes.
const AT_ONCE: usize = 8;

type Emit = dyn Fn(&Owner, &Message) + Send + Sync;

/// The state that all APIRules of an agent share.
pub struct Context {
    pub(super) writer: Writer,
    pub(super) settings: Settings,
    pub(super) liveness: Component,
    pub(super) permits: Semaphore,
    emit: Box<Emit>,
    /// Whether an APIRule has ever existed.
    is_used: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Known,
    /// The notifiers of the APIRules' tasks.
    tasks: HashMap<Owner, Arc<Notify>>,
}

impl Context {
    /// Returns a context in which no state is known yet. `emit` must not block.
    pub fn new(
        writer: Writer,
        settings: Settings,
        liveness: Component,
        emit: impl Fn(&Owner, &Message) + Send + Sync + 'static,
    ) -> Self {
        let (is_used, state) = (watch::Sender::new(false), Mutex::default());
        Self { writer, settings, liveness, permits: Semaphore::new(AT_ONCE), emit: Box::new(emit), is_used, state }
    }

    /// Returns the writer of the children.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Adds an APIRule. The returned notifier fires when the APIRule has to be reconciled.
    pub(super) fn enter(&self, owner: &Owner) -> Arc<Notify> {
        self.is_used.send_replace(true);
        let notify = Arc::clone(self.state.lock().tasks.entry(owner.clone()).or_default());
        self.change(|known| known.enter(owner.clone()));
        notify
    }

    /// Removes an APIRule.
    pub(super) fn leave(&self, owner: &Owner) {
        self.state.lock().tasks.remove(owner);
        self.change(|known| known.leave(owner));
    }

    /// Subscribes to whether an APIRule has ever existed.
    pub(super) fn is_used(&self) -> watch::Receiver<bool> {
        self.is_used.subscribe()
    }

    pub(super) fn emit(&self, owner: &Owner, message: &Message) {
        (self.emit)(owner, message);
    }

    /// Returns the known facts about the cluster.
    pub(super) fn facts(&self) -> Facts {
        self.state.lock().known.facts()
    }

    /// Returns the served version of a kind.
    pub(super) fn served(&self, kind: ChildKind) -> Option<Served> {
        self.state.lock().known.served(kind)
    }

    /// Returns an existing object.
    pub(super) fn seen(&self, place: &Place) -> Option<Seen> {
        self.state.lock().known.seen(place)
    }

    /// Returns the objects of an APIRule.
    pub(super) fn children(&self, owner: &Owner, uid: &str) -> Vec<(Place, Seen)> {
        self.state.lock().known.children(owner, uid)
    }

    /// Returns which of these Services of a namespace are not valid targets. The APIRule is notified when one of them
    /// changes.
    pub(super) fn no_targets(&self, owner: &Owner, services: BTreeSet<String>) -> NoTargets {
        let may_be_written = self.settings.has_written_endpoints(owner.resource().namespace());
        self.change(|known| known.no_targets(owner, services, may_be_written))
    }

    /// Whether a namespace has Services.
    pub(super) fn has_services(&self, namespace: &str) -> bool {
        self.state.lock().known.has_services(namespace)
    }

    /// Returns the version of an existing Service.
    pub(super) fn service_version(&self, namespace: &str, name: &str) -> Option<Box<str>> {
        self.state.lock().known.service_version(namespace, name)
    }

    /// Whether pods of a namespace have Istio's proxy.
    pub(super) fn have_proxies(&self, namespace: &str) -> bool {
        self.state.lock().known.have_proxies(namespace)
    }

    /// Whether another owner uses a host or is the next candidate for it. Registers the caller as a candidate for the
    /// host.
    pub(super) fn is_occupied(&self, owner: &Owner, uid: &str, created: Option<Timestamp>, host: &str) -> bool {
        self.change(|known| known.is_occupied(owner, uid, created, host))
    }

    /// Takes a host, and room for this many paths that Oathkeeper guards.
    pub(super) fn take(&self, owner: &Owner, uid: &str, host: &str, guarded: usize) -> Result<(), Full> {
        self.change(|known| known.take(owner, uid, host, guarded))
    }

    /// Releases the room for paths of an APIRule that is not served.
    pub(super) fn release(&self, owner: &Owner) {
        self.change(|known| known.release(owner));
    }

    /// Releases all hosts except one.
    pub(super) fn keep_only(&self, owner: &Owner, host: Option<&str>) {
        self.change(|known| known.keep_only(owner, host));
    }

    /// Removes the APIRule as a candidate for hosts.
    pub(super) fn withdraw(&self, owner: &Owner) {
        self.change(|known| known.withdraw(owner));
    }

    /// Sets the served version of a kind. Returns whether it changed.
    pub(super) fn set_served(&self, kind: ChildKind, served: Option<Served>) -> bool {
        self.change(|known| known.set_served(kind, served))
    }

    /// Completes a list: removes the objects that the list lacks.
    pub(super) fn complete(&self, watched: Watched, list: &List<Name>) {
        self.change(|known| known.complete(watched, list));
    }

    /// Records a failed watch.
    pub(super) fn failed(&self, watched: Watched, why: String) {
        self.change(|known| known.failed(watched, why));
    }

    /// Records an existing object.
    pub(super) fn see(&self, kind: ChildKind, live: &Value) {
        self.change(|known| known.see(kind, live));
    }

    /// Records a written object. Returns its state; `None` if the object may already be deleted.
    pub(super) fn wrote(&self, kind: ChildKind, live: &Value) -> Option<Seen> {
        self.change(|known| known.wrote(kind, live))
    }

    /// Records a deleted object.
    pub(super) fn gone(&self, kind: ChildKind, live: &Value) {
        self.change(|known| known.gone(kind, live));
    }

    /// Records an existing or deleted Service.
    pub(super) fn set_service(&self, live: &Value, is_there: bool) {
        self.change(|known| known.set_service(live, is_there));
    }

    /// Records an existing or deleted EndpointSlice that a user wrote.
    pub(super) fn set_written(&self, live: &Value, is_there: bool) {
        self.change(|known| known.set_written(live, is_there));
    }

    /// Records an existing or deleted namespace.
    pub(super) fn set_namespace(&self, live: &Value, is_there: bool) {
        self.change(|known| known.set_namespace(live, is_there));
    }

    /// Changes the state and notifies the affected tasks.
    fn change<T>(&self, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut state = self.state.lock();
        let done = change(&mut state.known);
        for owner in state.known.take_woken() {
            state.tasks.get(&owner).into_iter().for_each(|notify| notify.notify_one());
        }
        done
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("settings", &self.settings).finish_non_exhaustive()
    }
}
