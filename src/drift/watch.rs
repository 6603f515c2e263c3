//! The watches of the backward loop: one per kind that is managed, one of the autoscalers, and one by name for each
//! object under break glass that lost our label.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Drift;
use super::watching::Watching;
use crate::api::names::SYNC_LABEL;
use crate::cluster::{Kind, Scope, Selection, WatchEvent};
use crate::managed::autoscaler::Autoscaler;
use crate::managed::object::{Managed, Next, Watched};
use crate::managed::verdict::{break_glass_of, is_terminating, resource_version};
use crate::object::Key;

/// How long requests for a fresh list are gathered before it begins.
const GATHER: Duration = Duration::from_millis(100);

impl Drift {
    /// Follows the managed objects of one kind.
    pub(super) async fn follow(self, kind: Arc<Kind>, watching: Arc<Watching>, stop: CancellationToken) {
        let mut shown = HashSet::new();
        loop {
            // Several GitSyncs begin to expect objects of a kind at the same time: one list serves them all, and whoever
            // asked for one until it begins.
            tokio::time::sleep(GATHER).await;
            let _ = watching.relist.notified().now_or_never();
            let mut events = self.cluster().watch(&kind, Selection::with_label(SYNC_LABEL));
            loop {
                let event = tokio::select! {
                    () = stop.cancelled() => return,
                    () = watching.stop.cancelled() => return,
                    () = watching.relist.notified() => break,
                    event = events.next() => event,
                };
                let Some(event) = event else { return };
                if watching.heard(&event) {
                    self.changed_for_kind(&kind);
                }
                self.note(&kind, Watched::ByUs, event, &mut shown);
            }
        }
    }

    /// Takes in what the owner's own watch of a kind tells, for objects that are marked by their controller. `shown` is
    /// kept from one event of a watch to the next: it is what the account that is under way has shown so far.
    pub fn hear(&self, kind: &Arc<Kind>, event: WatchEvent, shown: &mut HashSet<Key>) {
        self.note(kind, Watched::ByOwner, event, shown);
    }

    fn note(&self, kind: &Arc<Kind>, watched: Watched, event: WatchEvent, shown: &mut HashSet<Key>) {
        match event {
            WatchEvent::Begin => *shown = HashSet::new(),
            WatchEvent::Initial(live) => {
                let Some(key) = key_of(kind, &live) else { return };
                let kept = self.store().get(&key).map(|managed| managed.desired.key.clone());
                self.see(kind, &key, live);
                // The texts of a key that is kept are there already.
                shown.insert(kept.unwrap_or(key));
            }
            WatchEvent::Applied(live) => {
                let Some(key) = key_of(kind, &live) else { return };
                self.see(kind, &key, live);
            }
            WatchEvent::Unreadable(live, error) => {
                // Nothing can be decided about it but that it is there.
                tracing::warn!(error = crate::failure::chain(&error), "a managed object cannot be read");
                let Some(key) = key_of(kind, &live) else { return };
                let kept = self.store().get(&key).map(|managed| managed.desired.key.clone());
                shown.insert(kept.unwrap_or(key));
            }
            WatchEvent::Synced(version) => {
                let missing = self.store().missing(kind, watched, &std::mem::take(shown), &version);
                for key in missing {
                    self.miss(kind, &key, &version);
                }
            }
            WatchEvent::Deleted(live) => {
                let Some(key) = key_of(kind, &live) else { return };
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
            let mut store = self.store();
            let shown = |managed: &Managed| (managed.health.clone(), managed.failure().is_some());
            let before = store.get(key).map(shown);
            let next = store.see(kind, key, live, Instant::now(), self.now());
            let changed = store.get(key).filter(|managed| Some(shown(managed)) != before);
            (next, changed.map(|managed| managed.owner.clone()))
        };
        if let Some(owner) = owner {
            self.changed(&owner);
        }
        self.carry_out(key, next);
    }

    fn miss(&self, kind: &Kind, key: &Key, version: &str) {
        let next = self.store().miss(kind, key, Some(version), Instant::now());
        self.carry_out(key, next);
    }

    /// Follows one object that lost our label until it may be touched again, is gone, or carries our label again.
    pub(super) async fn follow_by_name(
        self,
        kind: Arc<Kind>,
        key: Key,
        over: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut events = self.cluster().watch(&kind, Selection::named(key.namespace.as_deref(), &key.name));
        let mut is_there = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                // It is no longer kept, or kept anew by somebody who sees to it.
                () = over.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                // Whether it may be touched is said by its metadata.
                Some(WatchEvent::Initial(live) | WatchEvent::Applied(live) | WatchEvent::Unreadable(live, _)) => {
                    is_there = true;
                    let untouchable = break_glass_of(&live, self.now()).is_some() || is_terminating(&live);
                    let seen_otherwise = self
                        .store()
                        .get(&key)
                        .is_none_or(|m| m.phase.is_leaving() || (m.desired.mark.is_on(&live) && m.is_applied()));
                    if untouchable && !seen_otherwise {
                        continue;
                    }
                }
                Some(WatchEvent::Begin) => {
                    is_there = false;
                    continue;
                }
                Some(WatchEvent::Synced(_)) if is_there => continue,
                Some(WatchEvent::Failed(_) | WatchEvent::Resumed) => continue,
                Some(WatchEvent::Deleted(_) | WatchEvent::Synced(_)) | None => {}
            }
            break;
        }
        let resumed = self.store().get_mut(&key).is_some_and(|mut managed| {
            // Nothing waits for the guard by now.
            managed.followed = None;
            managed.phase.end_pause()
        });
        if resumed {
            self.carry_out(&key, Next::Resumed);
        }
        self.look_now(&key);
    }

    /// Follows which workloads an autoscaler scales.
    pub(super) async fn follow_autoscalers(self, stop: CancellationToken) {
        let (version, plural) = ("autoscaling/v2", "horizontalpodautoscalers");
        let kind = Arc::new(Kind::fixed(version, "HorizontalPodAutoscaler", plural, Scope::Namespaced));
        let mut events = self.cluster().watch(&kind, Selection::default());
        let mut targets: HashMap<Key, (Key, Autoscaler)> = HashMap::new();
        let mut synced = false;
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = events.next() => event,
            };
            match event {
                Some(WatchEvent::Begin) => {
                    targets.clear();
                    synced = false;
                }
                Some(WatchEvent::Initial(live) | WatchEvent::Applied(live)) => {
                    if let (Some(key), Some(target)) = (key_of(&kind, &live), Autoscaler::read(&live)) {
                        targets.insert(key, target);
                    }
                }
                Some(WatchEvent::Deleted(live)) => {
                    if let Some(key) = key_of(&kind, &live) {
                        targets.remove(&key);
                    }
                }
                Some(WatchEvent::Synced(_)) => synced = true,
                // A cluster that does not let us see its autoscalers is treated as having none.
                Some(WatchEvent::Failed(_) | WatchEvent::Unreadable(..) | WatchEvent::Resumed) => {
                    self.autoscalers_are_known();
                }
                None => return,
            }
            if synced {
                let changed = self.store().set_autoscaled(targets.values().cloned().collect());
                for (key, is_outdated) in changed {
                    if is_outdated {
                        self.store().mark_outdated(&key);
                    }
                    self.look_now(&key);
                }
                self.autoscalers_are_known();
            }
        }
    }
}

fn key_of(kind: &Kind, live: &Value) -> Option<Key> {
    let text = |path: &str| live.pointer(path).and_then(Value::as_str);
    Some(kind.key(text("/metadata/namespace"), text("/metadata/name")?))
}
