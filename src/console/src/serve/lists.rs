//! The lists of kinds beside the fleet: sources, images, Providers and Alerts; APIRules, Triggers and Subscriptions.
//!
//! Their kinds are watched while one of their pages is open, and shortly afterwards. If no watch is free, they are listed
//! once for a request.
//!
//! Invariant: a list is read by the connection of its session only. Invariant: the number of watches of all lists is
//! limited, and no watch begins without its permit. Invariant: the rows of each list are part of the session's memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::group_permits::GroupPermit;
use super::row_memory::RowMemory;
use super::watched::Watched;
use crate::row::FleetKind;
use mainstay_cluster::Cluster;

/// Time for which a list is watched without an open page.
const KEPT: Duration = Duration::from_secs(20);

/// A list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListName {
    Sources,
    Served,
}

impl ListName {
    const ALL: [Self; 2] = [Self::Sources, Self::Served];

    /// Returns the word for the list in the URL of its stream.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Served => "served",
        }
    }

    /// Returns the list of a word.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.word() == word)
    }

    /// Returns its kinds, in the order of the page.
    pub(super) const fn kinds(self) -> &'static [FleetKind] {
        match self {
            Self::Sources => &FleetKind::LISTED,
            Self::Served => &FleetKind::SERVED,
        }
    }
}

/// A list that is watched. The watches end when it is dropped.
pub(super) struct List {
    pub(super) watched: Arc<Watched>,
    /// Cancelled at the end of the session, or when the session watches another namespace.
    pub(super) stop: CancellationToken,
    /// When a page of it was read.
    used: Mutex<Instant>,
    /// Its part of the watches of the server.
    _watches: GroupPermit,
    _end: DropGuard,
}

/// The lists of a session.
#[derive(Default)]
pub(super) struct Lists {
    watched: Mutex<BTreeMap<ListName, Weak<List>>>,
    /// Lists without watches, each for one request.
    once: Mutex<Vec<Weak<Watched>>>,
}

impl Lists {
    /// Returns a list that is watched. Begins to watch it if no page has used it shortly before. Returns `None` if the
    /// server, or this group of users, has its maximum number of watches.
    pub(super) fn open(
        &self,
        name: ListName,
        cluster: &Cluster,
        namespace: &str,
        (memory, group): (&RowMemory, &str),
        stop: &CancellationToken,
    ) -> Option<Arc<List>> {
        let mut lists = self.watched.lock();
        if let Some(list) = lists.get(&name).and_then(Weak::upgrade) {
            *list.used.lock() = Instant::now();
            return Some(list);
        }
        let watches = memory.try_watch(group, name.kinds().len())?;
        let stop = stop.child_token();
        let list = Arc::new(List {
            watched: Watched::begin(name.kinds(), cluster, namespace, memory.share_of_list(group), &stop),
            used: Mutex::new(Instant::now()),
            _watches: watches,
            _end: stop.clone().drop_guard(),
            stop,
        });
        lists.insert(name, Arc::downgrade(&list));
        tokio::spawn(list.stop.clone().run_until_cancelled_owned(keep(Arc::clone(&list))));
        Some(list)
    }

    /// Lists the kinds of a list once, one after the other. Returns `None` if the server reads too many such lists.
    pub(super) async fn once(
        &self,
        name: ListName,
        cluster: &Cluster,
        namespace: &str,
        (memory, group): (&RowMemory, &str),
    ) -> Option<Arc<Watched>> {
        let _turn = memory.list().await?;
        let rows = Arc::new(Watched::empty(name.kinds(), memory.share_of_list(group)));
        {
            let mut once = self.once.lock();
            once.retain(|other| other.strong_count() > 0);
            once.push(Arc::downgrade(&rows));
        }
        rows.list_once(cluster, namespace).await;
        Some(rows)
    }

    /// Ends all lists, so that the next page of each one begins again.
    pub(super) fn end(&self) {
        let lists = std::mem::take(&mut *self.watched.lock());
        for list in lists.values().filter_map(Weak::upgrade) {
            list.stop.cancel();
        }
    }

    /// Returns their part of the memory of the server, in KiB.
    pub(super) fn memory(&self) -> usize {
        let lists: Vec<Arc<List>> = self.watched.lock().values().filter_map(Weak::upgrade).collect();
        let once: Vec<Arc<Watched>> = self.once.lock().iter().filter_map(Weak::upgrade).collect();
        let watched = lists.iter().map(|list| &list.watched);
        watched.chain(&once).map(|rows| rows.memory()).sum()
    }
}

/// Keeps a list while its pages are read. An open page keeps it, too.
async fn keep(list: Arc<List>) {
    loop {
        let unused_at = *list.used.lock() + KEPT;
        if Instant::now() >= unused_at && Arc::strong_count(&list) == 1 {
            return;
        }
        tokio::time::sleep_until(unused_at.max(Instant::now() + KEPT / 4)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;
    use http::{Request, Response};

    use super::*;

    #[tokio::test]
    async fn a_list_begins_no_watch_without_a_permit() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(503).body(Body::empty()).unwrap()))
        });
        let client = kube::Client::new(service, "default");
        let cluster = Cluster::from_clients(client.clone(), client);
        let (memory, lists, stop) = (RowMemory::default(), Lists::default(), CancellationToken::new());
        let open = |group: &str| lists.open(ListName::Sources, &cluster, "shop", (&memory, group), &stop);
        let held: Vec<_> = std::iter::from_fn(|| memory.try_watch("a", 1)).collect();
        assert!(open("a").is_none() && lists.watched.lock().is_empty());
        // A watch would have had its turn.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(requests.load(Ordering::Relaxed), 0);
        // Another group, and the same one after its lists have ended, begin to watch.
        assert!(open("b").is_some());
        drop(held);
        lists.end();
        lists.watched.lock().clear();
        assert!(open("a").is_some());
    }

    #[test]
    fn each_list_has_a_word_and_kinds_of_its_own() {
        for list in ListName::ALL {
            assert_eq!(ListName::of_word(list.word()), Some(list));
            assert!(list.kinds().iter().all(|kind| !FleetKind::ALL.contains(kind)));
        }
        let all: usize = ListName::ALL.into_iter().map(|list| list.kinds().len()).sum();
        assert_eq!(FleetKind::ALL.len() + all, FleetKind::all().count());
        for word in ["", "fleet", "Sources"] {
            assert_eq!(ListName::of_word(word), None);
        }
    }
}
