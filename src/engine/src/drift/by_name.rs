//! Watches one object by name. The object lacks Mainstay's label, so the watch of its kind does not show it. No revert
//! sets the label, because the object is paused or terminating, or because its drift is only reported.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::apply::AFTER_PAUSE;
use crate::managed::PauseEnd;
use crate::managed::object::Managed;
use crate::managed::pending::Next;
use crate::managed::store::Store;
use crate::managed::verdict::{break_glass_of, is_terminating};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Kind, Selection};
use mainstay_object::Key;

impl Drift {
    /// Watches one object until it may be reverted, is gone, or carries Mainstay's label again.
    pub(super) async fn follow_by_name(
        self,
        kind: Arc<Kind>,
        key: Key,
        over: CancellationToken,
        stop: CancellationToken,
    ) {
        let selection = Selection::named(key.namespace.as_deref(), &key.name);
        let mut reflector = self.writer.cluster().states(&kind, selection);
        let mut resumes = None;
        let is_paused = loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                // The object left the store, or another watch shows it.
                () = over.cancelled() => return,
                // The end of a pause by the clock changes nothing in the object, so the watch does not show it.
                () = at(resumes) => break false,
                change = reflector.next() => change,
            };
            match change {
                // The metadata shows whether the object may be reverted.
                Change::Changed { live, .. } | Change::Unreadable { live, .. } => {
                    let pause = break_glass_of(&live, self.writer.now());
                    resumes = pause.filter(|_| !is_terminating(&live)).and_then(|until| self.end_of(until));
                    if !self.stays_followed(&key, &live, pause.is_some()) {
                        break pause.is_some();
                    }
                }
                Change::Gone { last: Some(_), .. } => break false,
                Change::Complete { .. } => {
                    let is_there = reflector.cache().iter().next().is_some();
                    if !is_there && !self.is_reported_absent(&key) {
                        break false;
                    }
                }
                // An object that is missing in a list is handled when the list is complete.
                Change::Gone { last: None, .. } | Change::Failed(_) | Change::Resumed => {}
            }
        };
        let resumed = {
            let mut store = self.writer.store();
            if let Some(mut managed) = store.get_mut(&key) {
                // This watch ends, so its guard is not needed any more.
                managed.followed = None;
            }
            // The watch of its kind shows the end of a pause that goes on.
            !is_paused && store.end_pause(&key, self.writer.now())
        };
        if resumed {
            self.writer.carry_out(&key, Next::Resumed);
        }
        self.look_now(&key);
    }

    /// Whether an object is still watched by name: it may not be reverted, or its drift is only reported. The first one is
    /// checked.
    fn stays_followed(&self, key: &Key, live: &Value, is_paused: bool) -> bool {
        let untouchable = is_paused || is_terminating(live);
        let seen_otherwise = self
            .writer
            .store()
            .get(key)
            .is_none_or(|m| m.phase.is_leaving() || (m.desired.mark.is_on(live) && m.is_applied()));
        if untouchable && !seen_otherwise {
            self.judge_followed(key, live);
            return true;
        }
        self.writer.store().get(key).is_some_and(|managed| managed.is_reported_as(live))
    }

    /// Returns when an object with a pause may be checked again; `None` if the pause has no end.
    fn end_of(&self, until: PauseEnd) -> Option<Instant> {
        let left = Duration::try_from(until.time()? - self.writer.now()).unwrap_or_default();
        Instant::now().checked_add(left + AFTER_PAUSE)
    }

    /// Whether the policy is only to report the absence of the object.
    fn is_reported_absent(&self, key: &Key) -> bool {
        self.writer.store().get(key).is_some_and(Managed::is_reported_absent)
    }

    /// Checks an object that may not be reverted, and notifies its owner if the drift or the pause changed.
    fn judge_followed(&self, key: &Key, live: &Value) {
        let owner = {
            let mut store = self.writer.store();
            let state = |store: &Store| store.get(key).map(|m| (m.drift().cloned(), m.phase.pause()));
            let before = state(&store);
            store.judge(key, live, self.writer.now());
            let is_new = state(&store) != before;
            store.get(key).filter(|_| is_new).map(|managed| managed.owner.clone())
        };
        if let Some(owner) = owner {
            self.writer.notify(&owner);
        }
    }
}

/// Waits until a time; forever without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
