//! An object that is in the way of a child: it has the child's name and belongs to somebody else. It is followed until
//! it goes.
//!
//! Such an object need not have our labels, so that the watches of children do not tell of it.
//!
//! Invariant: nothing is watched for a Function that nothing is in the way of.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;

use crate::cluster::{Cluster, Kind, Selection, WatchEvent};
use crate::object::Key;

/// What is in the way.
pub(super) struct InTheWay {
    key: Key,
    events: BoxStream<'static, WatchEvent>,
    is_there: bool,
}

impl InTheWay {
    /// Follows an object. Nothing is asked before [`gone`](Self::gone) is.
    pub(super) fn follow(cluster: &Cluster, kind: &Arc<Kind>, key: Key) -> Self {
        let events = cluster.watch(kind, Selection::named(key.namespace.as_deref(), &key.name));
        Self { key, events, is_there: false }
    }

    /// Whether this is what is in the way.
    pub(super) fn is(&self, key: &Key) -> bool {
        self.key == *key
    }

    /// Waits until it is gone. What was heard is not lost when nobody waits any more.
    pub(super) async fn gone(&mut self) {
        while let Some(event) = self.events.next().await {
            match event {
                WatchEvent::Begin => self.is_there = false,
                WatchEvent::Initial(_) | WatchEvent::Applied(_) | WatchEvent::Unreadable(..) => self.is_there = true,
                WatchEvent::Deleted(_) => return,
                WatchEvent::Synced(_) if !self.is_there => return,
                WatchEvent::Synced(_) | WatchEvent::Trouble(_) | WatchEvent::Resumed => {}
            }
        }
        // The stream of a watch has no end.
        std::future::pending::<()>().await;
    }
}
