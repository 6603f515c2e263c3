//! Idle connections, which wait for a request. A new client may replace the one that has waited longest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Connections without a complete request, in the order of their arrival.
#[derive(Default)]
pub(super) struct Silent {
    pub(super) connections: Mutex<BTreeMap<u64, CancellationToken>>,
    /// The number for the next connection.
    entered: AtomicU64,
    /// Fires when a connection is added.
    pub(super) another: Notify,
}

impl Silent {
    pub(super) fn enter(self: &Arc<Self>, end: CancellationToken) -> Entry {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        self.connections.lock().insert(number, end);
        self.another.notify_one();
        Entry { all: Arc::clone(self), number }
    }
}

/// The entry of a connection, until its request is complete.
pub(super) struct Entry {
    pub(super) all: Arc<Silent>,
    number: u64,
}

impl Entry {
    /// Removes the connection while it does not wait for its client.
    pub(super) fn suspend(&self) {
        self.all.connections.lock().remove(&self.number);
    }

    /// Adds the connection again, at its former place in the order.
    pub(super) fn resume(&self, end: CancellationToken) {
        self.all.connections.lock().insert(self.number, end);
        self.all.another.notify_one();
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.connections.lock().remove(&self.number);
    }
}
