//! Name conflicts: watches an object of another owner that has the name of a child, until it is deleted.
//!
//! Such an object need not have our labels, so the watches of children may not see it.
//!
//! Invariant: a Function without a name conflict has no such watch.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;

use mainstay_cluster::{Cluster, Kind, Selection, WatchEvent};
use mainstay_object::Key;

/// The conflicting object.
pub(super) struct NameConflict {
    key: Key,
    events: BoxStream<'static, WatchEvent>,
    is_there: bool,
}

impl NameConflict {
    /// Watches an object. No request is sent before [`gone`](Self::gone) is polled.
    pub(super) fn follow(cluster: &Cluster, kind: &Arc<Kind>, key: Key) -> Self {
        let events = cluster.watch(kind, Selection::named(key.namespace.as_deref(), &key.name));
        Self { key, events, is_there: false }
    }

    /// Whether this is the object with this key.
    pub(super) fn is(&self, key: &Key) -> bool {
        self.key == *key
    }

    /// Waits until it is deleted. Cancel-safe.
    pub(super) async fn gone(&mut self) {
        while let Some(event) = self.events.next().await {
            match event {
                WatchEvent::Begin => self.is_there = false,
                WatchEvent::Initial(_) | WatchEvent::Applied(_) | WatchEvent::Unreadable(..) => self.is_there = true,
                WatchEvent::Deleted(_) => return,
                WatchEvent::Synced(_) if !self.is_there => return,
                WatchEvent::Synced(_) | WatchEvent::Failed(_) | WatchEvent::Resumed => {}
            }
        }
        // A watch never ends.
        std::future::pending::<()>().await;
    }
}
