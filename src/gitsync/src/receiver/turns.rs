//! Permits for costly parts of deliveries, one for each namespace at a time.
//!
//! A namespace has at most one waiter in the queue of the permits, which is in order of arrival. So with N other waiting
//! namespaces it gets a permit after at most N returned ones, however many deliveries the others have.
//!
//! Invariant: a namespace holds at most one permit, and takes memory here only while it holds one or waits.
//! Not here: the maximum time of a wait. Callers bound it, or hold the permit for work that does not wait.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// The permits.
#[derive(Debug)]
pub(super) struct Turns {
    permits: Arc<Semaphore>,
    /// The namespaces that hold a permit or wait for one.
    namespaces: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

/// A permit, held until this value is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
    _own: OwnedMutexGuard<()>,
}

impl Turns {
    /// Returns this number of permits.
    pub(super) fn new(permits: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), namespaces: Mutex::default() }
    }

    /// Waits until a namespace has a permit.
    pub(super) async fn acquire(&self, namespace: &str) -> Turn {
        let own = self.own(namespace).lock_owned().await;
        // The semaphore is never closed.
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        Turn { _permit: permit, _own: own }
    }

    /// Returns the lock of a namespace. Removes those that are not in use.
    fn own(&self, namespace: &str) -> Arc<AsyncMutex<()>> {
        let mut all = self.namespaces.lock();
        all.retain(|_, own| Arc::strong_count(own) > 1);
        Arc::clone(all.entry(namespace.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_deliveries_leaves_permits_for_others() {
        let turns = Turns::new(2);
        let first = turns.acquire("shop").await;
        let mut second = Box::pin(turns.acquire("shop"));
        assert!(second.as_mut().now_or_never().is_none(), "it has one already");
        let other = turns.acquire("bank").now_or_never().expect("there is one for another namespace");
        let mut third = Box::pin(turns.acquire("farm"));
        assert!(third.as_mut().now_or_never().is_none(), "none is left");
        drop(first);
        assert!(second.as_mut().now_or_never().is_none(), "farm waits longer for a permit");
        let third = third.await;
        drop(other);
        let second = second.await;
        drop((second, third));
        drop(turns.acquire("farm").await);
        assert_eq!(turns.namespaces.lock().len(), 1, "namespaces without a permit are forgotten");
    }

    #[tokio::test]
    async fn a_delivery_that_gives_up_leaves_its_place() {
        let turns = Turns::new(1);
        let first = turns.acquire("shop").await;
        let mut gone = Box::pin(turns.acquire("bank"));
        assert!(gone.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        assert!(turns.acquire("farm").now_or_never().is_some());
    }
}
