//! The events of a kind for a session. A list of its objects waits for memory, because its pages may be large.
//!
//! Invariant: while a new list waits for memory, it has sent no request and no page of it is in memory. A list that fails returns
//! its memory. Its next attempt may read one page before it has memory again.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::page_memory::{ListMemory, ListPermit};
use mainstay_cluster::reflector::{Cache, Change};
use mainstay_cluster::{Cluster, Kind, Selection, WatchEvent};

/// A known object. Each of its events counts as a change, so it equals no other one.
pub(super) struct Known;

impl PartialEq for Known {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

/// The state of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    /// The watch has its last list.
    Done,
    /// A list begins as soon as it has memory.
    Waits,
    /// A list is read, or is tried again.
    Runs,
}

/// A watch of a kind, with the names of its objects.
pub(super) struct KindEvents {
    cluster: Cluster,
    kind: Arc<Kind>,
    selection: Selection,
    events: BoxStream<'static, WatchEvent>,
    names: Cache<Known>,
    pending: VecDeque<Change<Known>>,
    memory: ListMemory,
    listing: Listing,
    /// The memory of the list, unless its last attempt has failed.
    permit: Option<ListPermit>,
}

impl KindEvents {
    /// Watches the selected objects. No request is sent before [`next`](Self::next) is polled.
    pub(super) fn new(cluster: &Cluster, kind: &Arc<Kind>, selection: Selection, memory: ListMemory) -> Self {
        Self {
            cluster: cluster.clone(),
            kind: Arc::clone(kind),
            events: cluster.watch(kind, selection.clone()),
            selection,
            names: Cache::default(),
            pending: VecDeque::new(),
            memory,
            listing: Listing::Done,
            permit: None,
        }
    }

    /// Waits for the next change. Cancel-safe.
    pub(super) async fn next(&mut self) -> Change<Known> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                if matches!(change, Change::Complete { .. }) {
                    (self.listing, self.permit) = (Listing::Done, None);
                }
                return change;
            }
            if self.listing == Listing::Waits {
                if self.permit.is_none() {
                    self.permit = Some(self.memory.acquire().await);
                }
                self.listing = Listing::Runs;
            }
            // A watch never ends.
            let Some(event) = self.events.next().await else { return std::future::pending().await };
            if event.is_begin() {
                self.listing = Listing::Waits;
            } else if event.failure().is_some() {
                self.permit = None;
            } else if self.listing == Listing::Runs && self.permit.is_none() {
                // A list that has failed goes on with a page.
                self.permit = self.memory.try_acquire();
                if self.permit.is_none() {
                    // A new watch begins with a list, which waits without a page.
                    self.events = self.cluster.watch(&self.kind, self.selection.clone());
                    continue;
                }
            }
            self.pending.extend(self.names.take(event, |_| Ok(Some(Known))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use futures::FutureExt as _;
    use http::{Request, Response};

    use super::*;
    use crate::serve::page_memory::{Heavy, PageMemory};
    use mainstay_cluster::Scope;

    /// Returns the events of a kind whose lists fail, and the number of requests for them.
    fn failing(memory: ListMemory) -> (KindEvents, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(403_u16).body(Body::empty()).unwrap()))
        });
        let client = kube::Client::new(service, "default");
        let cluster = Cluster::from_clients(client.clone(), client);
        let kind = Arc::new(Kind::fixed("mainstay.dev/v1alpha1", "GitSync", "gitsyncs", Scope::Namespaced));
        (KindEvents::new(&cluster, &kind, Selection::default(), memory), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_a_watch_waits_for_the_memory_of_pages_and_returns_it_after_a_failure() {
        let memory = PageMemory::default();
        let pages = memory.of_session("a");
        let held = [pages.acquire(Heavy::Object).await, pages.acquire(Heavy::Object).await];
        assert!(held.iter().all(Option::is_some));
        let (mut events, requests) = failing(memory.lists("a"));
        for _ in 0..10 {
            assert!(events.next().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        assert_eq!(requests.load(Ordering::Relaxed), 0);
        let (mut other, _) = failing(memory.lists("b"));
        assert!(matches!(other.next().await, Change::Failed(_)), "another group has memory");
        drop(held);
        assert!(matches!(events.next().await, Change::Failed(_)));
        assert!(requests.load(Ordering::Relaxed) > 0);
        let whole = [pages.try_acquire(Heavy::Object), pages.try_acquire(Heavy::Object)];
        assert!(whole.iter().all(Option::is_some), "the backoff needs no memory");
    }
}
