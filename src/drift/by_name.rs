//! The watch of one object under break glass that lost our label: the watch of its kind does not show it.

use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::cluster::{Kind, Selection, WatchEvent};
use crate::managed::pending::Next;
use crate::managed::verdict::{break_glass_of, is_terminating};
use crate::object::Key;

impl Drift {
    /// Follows one object that lost our label until it may be touched again, is gone, or carries our label again.
    pub(super) async fn follow_by_name(
        self,
        kind: Arc<Kind>,
        key: Key,
        over: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut events = self.writer.cluster().watch(&kind, Selection::named(key.namespace.as_deref(), &key.name));
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
                    let untouchable = break_glass_of(&live, self.writer.now()).is_some() || is_terminating(&live);
                    let seen_otherwise = self
                        .writer
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
}
