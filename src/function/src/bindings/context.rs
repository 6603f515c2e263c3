//! The state that all usages share: the known objects, and the tasks to notify of changes.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::bound::{Bound, Name, Taken};
use super::known::Known;
use super::listed::{Defined, Watched};
use super::task::Task;
use mainstay_api::names::USE_LABEL_PREFIX;
use mainstay_cluster::Kind;
use mainstay_cluster::liveness::Component;
use mainstay_cluster::reflector::List;

/// The state that all usages share.
pub struct Bindings {
    pub(super) liveness: Component,
    state: Mutex<State>,
    /// Whether the bindings are known.
    known: watch::Sender<bool>,
    /// Fires when there are usages to reconcile.
    pub(super) changed: Notify,
}

#[derive(Default)]
struct State {
    known: Known,
    /// The notifiers of the Functions' tasks.
    tasks: HashMap<Name, Arc<Notify>>,
}

impl Bindings {
    /// Returns an empty state.
    pub fn new(liveness: Component) -> Self {
        Self { liveness, state: Mutex::default(), known: watch::Sender::new(false), changed: Notify::new() }
    }

    /// Adds a Function. The returned notifier fires when its bindings may have changed.
    pub fn enter(&self, namespace: &str, name: &str) -> Arc<Notify> {
        let key = (namespace.to_owned(), name.to_owned());
        self.change(|state| {
            state.known.enter(key.clone());
            Arc::clone(state.tasks.entry(key).or_default())
        })
    }

    /// Removes a Function.
    pub fn leave(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.change(|state| {
            state.tasks.remove(&key);
            state.known.leave(&key);
        });
    }

    /// Waits until the bindings are known.
    pub async fn known(&self) {
        // The channel stays open as long as `self` exists.
        let _ = self.known.subscribe().wait_for(|known| *known).await;
    }

    /// Returns the bindings of a Function with these pod labels, by the names of their usages.
    pub fn of<'l>(&self, namespace: &str, name: &str, labels: impl Iterator<Item = &'l String>) -> Vec<Bound> {
        let key = (namespace.to_owned(), name.to_owned());
        let labels = labels.filter_map(|label| label.strip_prefix(USE_LABEL_PREFIX)).map(str::to_owned).collect();
        self.change(|state| state.known.of(&key, labels))
    }

    /// Sets which bindings the Function accepted or refused.
    pub fn taken(&self, namespace: &str, name: &str, taken: Vec<(Bound, Taken)>) {
        let key = (namespace.to_owned(), name.to_owned());
        self.change(|state| state.known.taken(&key, taken));
    }

    /// Returns the kind of usages, if it is served.
    pub(super) fn kind(&self) -> Option<Arc<Kind>> {
        self.state.lock().known.kind()
    }

    /// Sets whether a CRD exists. `kind` is the kind of usages, if it is served.
    pub(super) fn set_defined(&self, defined: Defined, is_there: bool, kind: Option<Arc<Kind>>) {
        self.change(|state| state.known.set_defined(defined, is_there, kind));
    }

    /// Completes a list: removes the objects that the list lacks.
    pub(super) fn complete(&self, watched: Watched, list: &List<Name>) {
        self.change(|state| state.known.complete(watched, list));
    }

    /// Records that the agent lacks the permission to list a kind. Functions continue without the bindings of that
    /// kind.
    pub(super) fn denied(&self, watched: Watched) {
        let state = self.state.lock();
        if !state.known.listed.is_complete(watched) {
            self.known.send_replace(true);
        }
    }

    /// Sets or removes a usage or binding.
    pub(super) fn see(&self, watched: Watched, live: &Value, is_there: bool) {
        self.change(|state| state.known.see(watched, live, is_there));
    }

    /// Returns the usages to reconcile, and removes them from the state.
    pub(super) fn take_dirty(&self) -> BTreeSet<Name> {
        self.state.lock().known.take_dirty()
    }

    /// Returns the task for a usage.
    pub(super) fn task(&self, key: &Name, now: Timestamp) -> Task {
        self.change(|state| state.known.task(key, now))
    }

    /// Changes the state and notifies the affected tasks.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = change(&mut state);
        if state.known.listed.is_enough() {
            self.known.send_if_modified(|known| !std::mem::replace(known, true));
        }
        for function in state.known.take_woken() {
            state.tasks.get(&function).into_iter().for_each(|notify| notify.notify_one());
        }
        if state.known.is_dirty() {
            self.changed.notify_one();
        }
        done
    }
}

impl fmt::Debug for Bindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bindings").finish_non_exhaustive()
    }
}
