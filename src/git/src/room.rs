//! Frees space for a pack by removing unused mirrors, least recently used first. Everything here blocks.
//!
//! Invariant: mirrors and packs in transfer together never exceed the budget.
//! Invariant: a mirror is removed only while it has no fetch and no reader. It is renamed first, so that a process
//! which is killed at any time leaves no incomplete mirror.

use std::path::Path;
use std::sync::Arc;

use super::budget::UNREAD;
use super::error::Fault;
use super::mirror::Mirror;
use super::remotes::{Source, State};
use super::spool::Space;

/// Bytes per reservation.
const STEP: u64 = 4 << 20;

/// Reserved space for a pack being received.
pub(super) struct Room {
    source: Source,
    /// Reserved bytes.
    reserved: u64,
    /// Used bytes of the reservation.
    used: u64,
}

impl Source {
    /// Returns an empty reservation for the mirror with this generation. Assigns the mirror to this namespace, unless
    /// it already belongs to one.
    pub(super) fn room(&self, generation: &Path) -> Room {
        if let Some(mirror) = generation.parent() {
            self.inner.storage.set_owner(mirror, &self.tenant);
        }
        Room { source: self.clone(), reserved: 0, used: 0 }
    }

    fn reserve(&self, bytes: u64) -> Result<(), Fault> {
        let storage = &self.inner.storage;
        let _removing = storage.removing();
        if storage.reserve(&self.tenant, bytes) {
            return Ok(());
        }
        let budget = storage.budget();
        for mirror in budget.plan(&self.tenant, bytes, |mirror| self.is_idle(mirror)).unwrap_or_default() {
            self.evict(&mirror);
            if storage.reserve(&self.tenant, bytes) {
                return Ok(());
            }
        }
        // In the meantime, another pack may have released its space.
        if storage.reserve(&self.tenant, bytes) {
            return Ok(());
        }
        storage.set_refused(&self.tenant);
        Err(Fault::NoRoom { budget: budget.limit() })
    }

    /// Removes mirrors to free this many bytes on a full volume. Returns whether it removed any.
    fn relieve(&self, bytes: u64) -> bool {
        let _removing = self.inner.storage.removing();
        let budget = self.inner.storage.budget();
        let plan = budget.plan_on_full_volume(&self.tenant, bytes, |mirror| self.is_idle(mirror));
        plan.unwrap_or_default().iter().filter(|mirror| self.evict(mirror)).count() > 0
    }

    /// If the budget was lowered while no agent ran, removes the mirrors that exceed it. Returns how many mirrors were
    /// removed.
    pub(super) fn shrink(&self) -> usize {
        let _removing = self.inner.storage.removing();
        let plan = self.inner.storage.budget().plan_to_limit(|mirror| self.is_idle(mirror));
        plan.iter().filter(|mirror| self.evict(mirror)).count()
    }

    /// Returns the state of the remote whose mirror has this directory. A fetch holds the lock of the mirror.
    fn mirror_at(&self, root: &Path) -> Option<Arc<State>> {
        let remotes = self.inner.remotes.lock();
        remotes.values().find(|state| state.root.get().is_some_and(|own| own == root)).cloned()
    }

    /// Returns whether a mirror has no fetch and no reader.
    fn is_idle(&self, root: &Path) -> bool {
        if is_unread(root) {
            return true;
        }
        let state = self.mirror_at(root);
        let Ok(held) = state.as_ref().map(|state| state.mirror.try_lock()).transpose() else { return false };
        let own = held.as_ref().and_then(|held| held.as_ref()).and_then(Mirror::unread);
        !self.inner.storage.has_open(root, own.as_deref())
    }

    /// Removes a mirror unless it is in use. Returns whether it is gone.
    fn evict(&self, root: &Path) -> bool {
        let storage = &self.inner.storage;
        if is_unread(root) {
            return storage.remove_unread(root).is_ok();
        }
        let state = self.mirror_at(root);
        // The lock is held until the mirror is renamed, so that no new reader can start.
        let Ok(mut held) = state.as_ref().map(|state| state.mirror.try_lock()).transpose() else { return false };
        let own = held.as_ref().and_then(|held| held.as_ref()).and_then(Mirror::unread);
        let Ok(Some(unread)) = storage.set_unread(root, own.as_deref()) else { return false };
        if let Some(held) = &mut held {
            **held = None;
        }
        drop(held);
        tracing::info!("removed the least recently used Git mirror to free space");
        storage.remove_unread(&unread).is_ok()
    }
}

fn is_unread(root: &Path) -> bool {
    root.extension().is_some_and(|end| end == UNREAD)
}

impl Space for Room {
    fn take(&mut self, bytes: u64) -> Result<(), Fault> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.reserved {
            let missing = self.used - self.reserved;
            let step = missing.max(STEP);
            // Near the limit, a whole step may not fit, but the missing bytes may.
            if self.source.inner.storage.reserve(&self.source.tenant, step) {
                self.reserved += step;
            } else {
                self.source.reserve(missing)?;
                self.reserved += missing;
            }
        }
        Ok(())
    }

    fn relieve(&mut self, bytes: u64) -> bool {
        self.source.relieve(bytes)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.source.inner.storage.release(&self.source.tenant, self.reserved);
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("reserved", &self.reserved).finish_non_exhaustive()
    }
}
