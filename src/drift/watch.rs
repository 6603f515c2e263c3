//! The watches of managed objects: one per kind. Their events, and those of the watches of Functions' children, are
//! judged by the store, and what follows is handed to the writer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::watch_failures::WatchFailures;
use crate::api::names::SYNC_LABEL;
use crate::apply::Writer;
use crate::cluster::{Kind, Selection, WatchEvent};
use crate::managed::object::{Managed, Watched};
use crate::managed::verdict::resource_version;
use crate::object::Key;

/// How long requests for a fresh list are gathered before it begins.
const GATHER: Duration = Duration::from_millis(100);

/// The drift loop. Clones are the same.
#[derive(Clone)]
pub struct Drift {
    pub(super) writer: Writer,
}

/// How a running watch of one kind is told to list anew, and to end.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) list: Notify,
    pub(super) end: CancellationToken,
}

impl Drift {
    /// Over the objects that a writer manages.
    pub fn new(writer: Writer) -> Self {
        Self { writer }
    }

    /// Follows the managed objects of one kind.
    pub(super) async fn follow(self, kind: Arc<Kind>, control: Arc<Control>, stop: CancellationToken) {
        let (mut shown, mut failures) = (HashSet::new(), WatchFailures::default());
        loop {
            // Several GitSyncs begin to expect objects of a kind at the same time: one list serves them all, and whoever
            // asked for one until it begins.
            tokio::time::sleep(GATHER).await;
            let _ = control.list.notified().now_or_never();
            let mut events = self.writer.cluster().watch(&kind, Selection::with_label(SYNC_LABEL));
            loop {
                let event = tokio::select! {
                    () = stop.cancelled() => return,
                    () = control.end.cancelled() => return,
                    () = control.list.notified() => break,
                    event = events.next() => event,
                };
                let Some(event) = event else { return };
                let is_of_object =
                    matches!(event, WatchEvent::Initial(_) | WatchEvent::Applied(_) | WatchEvent::Deleted(_));
                if !is_of_object && failures.update(&event) {
                    let why = failures.remarkable().map(str::to_owned);
                    let owners = self.writer.store().set_watch_failure(&kind, why);
                    for owner in &owners {
                        self.writer.notify(owner);
                    }
                }
                self.judge(&kind, Watched::ByUs, event, &mut shown);
            }
        }
    }

    /// Takes in an event of the owner's own watch of a kind, for objects that are marked by their controller. `shown` is
    /// kept from one event of a watch to the next: it is what the list that is under way has shown so far.
    pub fn see_child(&self, kind: &Arc<Kind>, event: WatchEvent, shown: &mut HashSet<Key>) {
        self.judge(kind, Watched::ByOwner, event, shown);
    }

    fn judge(&self, kind: &Arc<Kind>, watched: Watched, event: WatchEvent, shown: &mut HashSet<Key>) {
        match event {
            WatchEvent::Begin => *shown = HashSet::new(),
            WatchEvent::Initial(live) => {
                let Some(key) = kind.key_of(&live) else { return };
                let kept = self.writer.store().get(&key).map(|managed| managed.desired.key.clone());
                self.see(kind, &key, live);
                // The texts of a key that is kept are there already.
                shown.insert(kept.unwrap_or(key));
            }
            WatchEvent::Applied(live) => {
                let Some(key) = kind.key_of(&live) else { return };
                self.see(kind, &key, live);
            }
            WatchEvent::Unreadable(live, error) => {
                // Nothing can be decided about it but that it is there.
                tracing::warn!(error = crate::failure::chain(&error), "a managed object cannot be read");
                let Some(key) = kind.key_of(&live) else { return };
                let kept = self.writer.store().get(&key).map(|managed| managed.desired.key.clone());
                shown.insert(kept.unwrap_or(key));
            }
            WatchEvent::Synced(version) => {
                let missing = self.writer.store().missing(kind, watched, &std::mem::take(shown), &version);
                for key in missing {
                    self.miss(kind, &key, &version);
                }
            }
            WatchEvent::Deleted(live) => {
                let Some(key) = kind.key_of(&live) else { return };
                self.miss(kind, &key, resource_version(&live));
            }
            WatchEvent::Failed(error) => {
                tracing::debug!(resource = &*kind.resource, error = crate::failure::chain(&error), "watch failed");
            }
            WatchEvent::Resumed => {}
        }
    }

    fn see(&self, kind: &Kind, key: &Key, live: Value) {
        let (next, owner) = {
            let mut store = self.writer.store();
            let shown = |managed: &Managed| (managed.health.clone(), managed.failure().is_some());
            let before = store.get(key).map(shown);
            let next = store.see(kind, key, live, Instant::now(), self.writer.now());
            let changed = store.get(key).filter(|managed| Some(shown(managed)) != before);
            (next, changed.map(|managed| managed.owner.clone()))
        };
        if let Some(owner) = owner {
            self.writer.notify(&owner);
        }
        self.writer.carry_out(key, next);
    }

    fn miss(&self, kind: &Kind, key: &Key, version: &str) {
        let next = self.writer.store().miss(kind, key, Some(version), Instant::now());
        self.writer.carry_out(key, next);
    }

    /// Looks at an object, whatever its last event said.
    pub(super) fn look_now(&self, key: &Key) {
        let next = self.writer.store().look_now(key, Instant::now());
        self.writer.carry_out(key, next);
    }
}
