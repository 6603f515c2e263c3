//! Equal rows of several sessions, stored once.
//!
//! Invariant: a session gets a row only after it has read an equal one itself.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;

use crate::row::Row;

/// The rows of all sessions, by a hash of their kind and name. Clones share them.
#[derive(Clone, Default)]
pub(super) struct SharedRows {
    rows: Arc<Mutex<HashMap<u64, Vec<Weak<SharedRow>>>>>,
    hasher: RandomState,
}

/// A row of one or more sessions.
pub(super) struct SharedRow {
    pub(super) row: Arc<Row>,
    /// The memory of the server, which the first session takes that keeps the row.
    pub(super) memory: OnceLock<OwnedSemaphorePermit>,
    hash: u64,
    all: SharedRows,
}

impl SharedRows {
    /// Returns the stored row if it is equal in all its fields. Stores the row otherwise.
    pub(super) fn share(&self, row: Row) -> Arc<SharedRow> {
        let hash = self.hasher.hash_one((row.kind, &row.namespace, &row.name));
        // They are dropped after the lock, which the end of a row takes.
        let stored: Vec<Arc<SharedRow>> =
            self.rows.lock().get(&hash).into_iter().flatten().filter_map(Weak::upgrade).collect();
        if let Some(equal) = stored.iter().find(|stored| *stored.row == row) {
            return Arc::clone(equal);
        }
        let new = Arc::new(SharedRow { row: Arc::new(row), memory: OnceLock::new(), hash, all: self.clone() });
        self.rows.lock().entry(hash).or_default().push(Arc::downgrade(&new));
        new
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rows.lock().values().map(Vec::len).sum()
    }
}

impl Drop for SharedRow {
    fn drop(&mut self) {
        if let Entry::Occupied(mut stored) = self.all.rows.lock().entry(self.hash) {
            stored.get_mut().retain(|one| one.strong_count() > 0);
            if stored.get().is_empty() {
                stored.remove();
            }
        }
    }
}
