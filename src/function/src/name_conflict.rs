//! Name conflicts: watches an object of another owner that has the name of a child, until it is deleted.
//!
//! The conflicting object may lack Mainstay's labels, so the watches of children may not see it.
//!
//! Invariant: a Function without a name conflict has no such watch.

use std::sync::Arc;

use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_object::Key;

/// The conflicting object.
pub(super) struct NameConflict {
    key: Key,
    reflector: Reflector<()>,
}

impl NameConflict {
    /// Watches an object. No request is sent before [`gone`](Self::gone) is polled.
    pub(super) fn follow(cluster: &Cluster, kind: &Arc<Kind>, key: Key) -> Self {
        let reflector = cluster.states(kind, Selection::named(key.namespace.as_deref(), &key.name));
        Self { key, reflector }
    }

    /// Whether the conflicting object has this key.
    pub(super) fn is(&self, key: &Key) -> bool {
        self.key == *key
    }

    /// Waits until the conflicting object is deleted. Cancel-safe.
    pub(super) async fn gone(&mut self) {
        loop {
            match self.reflector.next().await {
                Change::Gone { .. } => return,
                Change::Complete { .. } if self.reflector.cache().iter().next().is_none() => return,
                _ => {}
            }
        }
    }
}
