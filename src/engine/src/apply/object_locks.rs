//! Locks of objects: one write at a time per object.
//!
//! Invariant: a write never waits for a write to another object.
//! Invariant: a lock exists only while it is held or waited for.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use mainstay_object::Key;

#[derive(Debug, Default)]
pub(super) struct ObjectLocks(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>);

#[derive(Debug)]
pub(super) struct ObjectLock<'l> {
    #[expect(dead_code, reason = "the lock is held for as long as this is; it is given back before it is forgotten")]
    guard: OwnedMutexGuard<()>,
    #[expect(dead_code, reason = "the lock is forgotten with its last user")]
    user: User<'l>,
}

/// A holder of a lock, or a task that waits for it.
#[derive(Debug)]
struct User<'l> {
    locks: &'l ObjectLocks,
    key: Key,
}

impl ObjectLocks {
    /// Waits for the lock of an object.
    pub(super) async fn lock(&self, key: &Key) -> ObjectLock<'_> {
        let lock = Arc::clone(self.0.lock().entry(key.clone()).or_default());
        let user = User { locks: self, key: key.clone() };
        ObjectLock { guard: lock.lock_owned().await, user }
    }

    /// Returns the objects whose locks are held or waited for.
    pub(super) fn used(&self) -> Vec<Key> {
        self.0.lock().keys().cloned().collect()
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.0.lock();
        // Other users of the lock have a clone of it.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(number: usize) -> Key {
        Key::new("", "ConfigMap", Some("shop"), format!("o{number}"))
    }

    #[test]
    fn writes_wait_only_for_others_to_the_same_object() {
        let locks = ObjectLocks::default();
        let held = (0..10_000).map(|number| locks.lock(&key(number)).now_or_never().unwrap()).collect::<Vec<_>>();
        let seven = key(7);
        let mut waiting = Box::pin(locks.lock(&seven));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(locks.lock(&key(8)).now_or_never().is_none(), "who gives up waits no longer");
        drop(held);
        assert_eq!(locks.0.lock().len(), 1);
        let next = waiting.as_mut().now_or_never();
        assert!(next.is_some() && locks.lock(&key(7)).now_or_never().is_none());
        drop(next);
        assert!(locks.0.lock().is_empty());
    }
}
