//! The queue of renders, fair between namespaces.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The queue. Only one render runs at a time, since each takes a CPU core and memory. Each namespace has at most one
/// render in the queue, so a namespace with many slow renders delays other namespaces by only one of these renders.
#[derive(Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Weak<Semaphore>>>,
    taken: AtomicU64,
}

/// A turn to render. It ends when the value is dropped.
pub(super) struct Turn(#[expect(dead_code, reason = "they are held")] [Option<OwnedSemaphorePermit>; 2]);

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(1)), namespaces: Mutex::default(), taken: AtomicU64::new(0) }
    }
}

impl Turns {
    pub(super) async fn next(&self, namespace: &str) -> Turn {
        let own = {
            let mut namespaces = self.namespaces.lock();
            namespaces.retain(|_, own| own.strong_count() > 0);
            let known = namespaces.get(namespace).and_then(Weak::upgrade);
            let own = known.unwrap_or_else(|| Arc::new(Semaphore::new(1)));
            namespaces.insert(namespace.to_owned(), Arc::downgrade(&own));
            own
        };
        // The semaphores are never closed. A permit keeps its semaphore in memory.
        let own = own.acquire_owned().await.ok();
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        self.taken.fetch_add(1, Ordering::Relaxed);
        Turn([own, all])
    }

    /// Returns the number of turns taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_of_them_delays_another_one_by_one() {
        let turns = Arc::new(Turns::default());
        let first = turns.next("greedy").await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for namespace in ["greedy", "greedy", "greedy", "modest"] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.spawn(async move {
                let turn = turns.next(namespace).await;
                order.lock().push(namespace);
                tokio::task::yield_now().await;
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while waiting.join_next().await.is_some() {}
        let order = order.lock().clone();
        assert!(order.iter().position(|namespace| *namespace == "modest") <= Some(1), "{order:?}");
        turns.next("modest").await;
        assert_eq!(turns.namespaces.lock().len(), 1, "who has none is forgotten");
    }
}
