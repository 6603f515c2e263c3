//! The watch of one object that lost our label and is left as it is, for it is paused, is being deleted, or is
//! only reported: the watch of its kind does not show it.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::managed::object::Managed;
use crate::managed::pending::Next;
use crate::managed::store::Store;
use crate::managed::verdict::{break_glass_of, is_terminating};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Kind, Selection};
use mainstay_object::Key;

impl Drift {
    /// Follows one object that lost our label until it may be touched again, is gone or back, or carries our label
    /// again.
    pub(super) async fn follow_by_name(
        self,
        kind: Arc<Kind>,
        key: Key,
        over: CancellationToken,
        stop: CancellationToken,
    ) {
        let selection = Selection::named(key.namespace.as_deref(), &key.name);
        let mut reflector = self.writer.cluster().states(&kind, selection);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                // It is no longer kept, or kept anew by somebody who sees to it.
                () = over.cancelled() => return,
                change = reflector.next() => change,
            };
            match change {
                // Whether it may be touched is said by its metadata.
                Change::Changed { live, .. } | Change::Unreadable { live, .. } => {
                    let untouchable = break_glass_of(&live, self.writer.now()).is_some() || is_terminating(&live);
                    let seen_otherwise = self
                        .writer
                        .store()
                        .get(&key)
                        .is_none_or(|m| m.phase.is_leaving() || (m.desired.mark.is_on(&live) && m.is_applied()));
                    if untouchable && !seen_otherwise {
                        self.judge_followed(&key, &live);
                        continue;
                    }
                    if self.writer.store().get(&key).is_some_and(|managed| managed.is_reported_as(&live)) {
                        continue;
                    }
                }
                Change::Gone { last: Some(_), .. } => {}
                Change::Complete { .. } => {
                    let is_there = reflector.cache().iter().next().is_some();
                    if is_there || self.is_reported_absent(&key) {
                        continue;
                    }
                }
                // What a list lacks is looked at when the list is complete.
                Change::Gone { last: None, .. } | Change::Failed(_) | Change::Resumed => continue,
            }
            break;
        }
        let resumed = self.writer.store().get_mut(&key).is_some_and(|mut managed| {
            // Nothing waits for the guard by now.
            managed.followed = None;
            managed.phase.end_pause()
        });
        if resumed {
            self.writer.carry_out(&key, Next::Resumed);
        }
        self.look_now(&key);
    }

    /// Whether it is left as it is that an object is not there.
    fn is_reported_absent(&self, key: &Key) -> bool {
        self.writer.store().get(key).is_some_and(Managed::is_reported_absent)
    }

    /// Takes in how an object is that may not be touched.
    fn judge_followed(&self, key: &Key, live: &Value) {
        let owner = {
            let mut store = self.writer.store();
            let drift = |store: &Store| store.get(key).and_then(|managed| managed.drift().cloned());
            let before = drift(&store);
            store.judge(key, live, self.writer.now());
            let is_new = drift(&store) != before;
            store.get(key).filter(|_| is_new).map(|managed| managed.owner.clone())
        };
        if let Some(owner) = owner {
            self.writer.notify(&owner);
        }
    }
}
