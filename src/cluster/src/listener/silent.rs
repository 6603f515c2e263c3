//! Connections that wait for a request: a new client takes the place of the one that has waited longest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Connections without a whole head; the one that has been silent longest is first.
#[derive(Default)]
pub(super) struct Silent {
    pub(super) connections: Mutex<BTreeMap<u64, CancellationToken>>,
    /// How many there have been.
    entered: AtomicU64,
    /// Told when there is one more.
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

/// One of them, until its head is there.
pub(super) struct Entry {
    pub(super) all: Arc<Silent>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.connections.lock().remove(&self.number);
    }
}
