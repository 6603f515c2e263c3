//! Makes room for a pack: mirrors that were used longest ago and are not in use are removed. Everything here blocks.
//!
//! Invariant: the mirrors and the packs that are being received have no more bytes than the budget.
//! Invariant: a mirror is removed only while nobody fetches into it or reads from it; it is renamed first, so that a process
//! killed at any time leaves nothing that is taken for a mirror.

use std::path::Path;

use super::error::Fault;
use super::mirror::{self, Mirror};
use super::remotes::Source;
use super::storage::UNREAD;

/// Bytes that are reserved at a time.
const STEP: u64 = 4 << 20;

/// Room for a pack that is being received.
pub(super) struct Room {
    source: Source,
    /// What is reserved.
    reserved: u64,
    /// What is used of it.
    used: u64,
}

impl Source {
    /// Room for nothing yet.
    pub(super) fn room(&self) -> Room {
        Room { source: self.clone(), reserved: 0, used: 0 }
    }

    fn reserve(&self, bytes: u64) -> Result<(), Fault> {
        let storage = &self.inner.storage;
        if storage.reserve(bytes) {
            return Ok(());
        }
        for mirror in storage.oldest_first() {
            if self.evict(&mirror) && storage.reserve(bytes) {
                return Ok(());
            }
        }
        Err(Fault::NoRoom { budget: storage.budget() })
    }

    /// Removes a mirror unless it is in use; whether it is gone.
    fn evict(&self, root: &Path) -> bool {
        let storage = &self.inner.storage;
        if root.extension().is_some_and(|end| end == UNREAD) {
            return storage.remove_unread(root).is_ok();
        }
        let Ok(salt) = mirror::salt(&self.inner.settings.directory) else { return false };
        // Locked until it is renamed: a new consumer of the remote starts with an empty mirror.
        let remotes = self.inner.remotes.lock();
        let state = remotes.iter().find(|(identity, _)| root.ends_with(mirror::name(&salt, identity)));
        let mut held = None;
        if let Some((_, state)) = state {
            let Ok(guard) = state.mirror.try_lock() else { return false };
            held = Some(guard);
        }
        let own = held.as_ref().and_then(|held| held.as_ref()).and_then(Mirror::unread);
        if storage.has_open(root, own.as_deref()) {
            return false;
        }
        let Ok(unread) = storage.set_unread(root) else { return false };
        if let Some(held) = &mut held {
            **held = None;
        }
        drop(held);
        drop(remotes);
        tracing::info!("removed the Git mirror that was used longest ago, to make room for another one");
        storage.remove_unread(&unread).is_ok()
    }
}

impl Room {
    /// Takes room for more bytes.
    pub(super) fn take(&mut self, bytes: u64) -> Result<(), Fault> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.reserved {
            let missing = self.used - self.reserved;
            let step = missing.max(STEP);
            // Near the limit, a step may be too much and the bytes themselves may fit.
            if self.source.inner.storage.reserve(step) {
                self.reserved += step;
            } else {
                self.source.reserve(missing)?;
                self.reserved += missing;
            }
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.source.inner.storage.release(self.reserved);
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("reserved", &self.reserved).finish_non_exhaustive()
    }
}
