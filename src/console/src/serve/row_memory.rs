//! The memory of the rows of all sessions. Equal rows of several sessions take it once from the server.
//!
//! Invariant: the size of the rows of a session, and of the rows of all sessions, is limited.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::connection_permits::{ConnectionPermits, SessionConnections};
use super::group_permits::{GroupPermit, GroupPermits, WATCHES};
use super::page_memory::{ListMemory, PageMemory, SessionPages};
use super::shared_rows::{SharedRow, SharedRows};
use crate::row::Row;

/// Maximum size of the rows of all sessions, of the fleet of one session, and of a further list of a session, in KiB.
const ALL: usize = 28 << 10;
const OF_SESSION: usize = 8 << 10;
const OF_LIST: usize = 2 << 10;
/// Maximum number of lists without watches that are read at the same time.
const LISTS: usize = 2;
/// Time for which such a list waits.
const LIST_PATIENCE: Duration = Duration::from_secs(8);
/// Time for which a row waits for memory before a further session is closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The memory for rows, that of the pages which read more than rows, and the permits of sessions. Clones share the same.
#[derive(Clone)]
pub(super) struct RowMemory {
    free: Arc<Semaphore>,
    is_wanted: Arc<Notify>,
    rows: SharedRows,
    watches: GroupPermits,
    lists: Arc<Semaphore>,
    pages: PageMemory,
    connections: ConnectionPermits,
}

impl Default for RowMemory {
    fn default() -> Self {
        Self::of(ALL)
    }
}

impl RowMemory {
    fn of(kibibytes: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(kibibytes)),
            is_wanted: Arc::default(),
            rows: SharedRows::default(),
            watches: GroupPermits::new(WATCHES),
            connections: ConnectionPermits::default(),
            lists: Arc::new(Semaphore::new(LISTS)),
            pages: PageMemory::default(),
        }
    }

    /// Returns the memory of the fleet of a new session of a group of users.
    pub(super) fn share(&self, group: &str) -> SessionMemory {
        self.share_of(OF_SESSION, group)
    }

    /// Returns the memory of a further list of a session of a group of users.
    pub(super) fn share_of_list(&self, group: &str) -> SessionMemory {
        self.share_of(OF_LIST, group)
    }

    /// Returns the memory of a command, whose one user reads pages without limits.
    pub(super) fn of_command() -> Self {
        Self { pages: PageMemory::unlimited(), ..Self::default() }
    }

    /// Returns the pages of a new session of a group of users.
    pub(super) fn pages(&self, group: &str) -> SessionPages {
        self.pages.of_session(group)
    }

    /// Returns the permits of a new session of a group of users for requests that keep their connection.
    pub(super) fn connections(&self, group: &str) -> SessionConnections {
        self.connections.of_session(group)
    }

    fn share_of(&self, most: usize, group: &str) -> SessionMemory {
        SessionMemory {
            all: self.clone(),
            free: Arc::new(Semaphore::new(most)),
            most,
            objects: self.pages.lists(group),
        }
    }

    /// Takes so many watches beside those of the fleets for a group of users, if the server and the group have them.
    pub(super) fn try_watch(&self, group: &str, count: usize) -> Option<GroupPermit> {
        self.watches.try_acquire(group, count).ok()
    }

    /// Waits until a list without watches may be read; `None` if others are read for too long.
    pub(super) async fn list(&self) -> Option<OwnedSemaphorePermit> {
        let acquired = tokio::time::timeout(LIST_PATIENCE, Arc::clone(&self.lists).acquire_owned()).await;
        acquired.ok()?.ok()
    }

    /// Waits until there is no memory for a row.
    pub(super) async fn wanted(&self) {
        self.is_wanted.notified().await;
    }
}

/// The memory of the fleet, or of a further list, of a session.
pub(super) struct SessionMemory {
    all: RowMemory,
    free: Arc<Semaphore>,
    /// Its maximum in KiB.
    most: usize,
    /// The memory of the objects that become rows, while they are listed.
    objects: ListMemory,
}

/// A row with its memory.
pub(super) struct KeptRow {
    shared: Arc<SharedRow>,
    _memory: OwnedSemaphorePermit,
}

impl KeptRow {
    /// Returns the row.
    pub(super) fn row(&self) -> Arc<Row> {
        Arc::clone(&self.shared.row)
    }

    /// Returns its part of the memory of the server in bytes. The sessions that keep the row have equal parts.
    pub(super) fn part(&self) -> usize {
        self.shared.row.bytes() / Arc::strong_count(&self.shared)
    }

    /// Returns whether it is this row.
    pub(super) fn is(&self, row: &Arc<SharedRow>) -> bool {
        Arc::ptr_eq(&self.shared, row)
    }
}

impl SessionMemory {
    /// Returns the row that other sessions have, if it is equal.
    pub(super) fn shared(&self, row: Row) -> Arc<SharedRow> {
        self.all.rows.share(row)
    }

    /// Returns the memory of the objects that become rows, while they are listed.
    pub(super) fn objects(&self) -> &ListMemory {
        &self.objects
    }

    /// Returns the maximum size of its rows, in MiB.
    pub(super) fn mebibytes(&self) -> usize {
        self.most >> 10
    }

    /// Returns the size of the session's rows, in KiB.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.most - self.free.available_permits()
    }

    /// Takes memory for a row, if the session and the server have some.
    pub(super) fn try_keep(&self, row: &Arc<SharedRow>) -> Option<KeptRow> {
        let size = kibibytes(&row.row)?;
        let own = Arc::clone(&self.free).try_acquire_many_owned(size).ok()?;
        if row.memory.get().is_none() {
            let all = Arc::clone(&self.all.free).try_acquire_many_owned(size).ok()?;
            // Another session may have taken it meanwhile.
            let _ = row.memory.set(all);
        }
        Some(KeptRow { shared: Arc::clone(row), _memory: own })
    }

    /// Takes memory for a row; `None` if the session has its maximum. If the server has its maximum, it waits until
    /// another session has ended.
    pub(super) async fn keep(&self, row: Arc<SharedRow>) -> Option<KeptRow> {
        let size = kibibytes(&row.row)?;
        let own = Arc::clone(&self.free).try_acquire_many_owned(size).ok()?;
        while row.memory.get().is_none() {
            if self.all.free.available_permits() < size as usize {
                self.all.is_wanted.notify_one();
            }
            let all = Arc::clone(&self.all.free).acquire_many_owned(size);
            if let Ok(Ok(all)) = tokio::time::timeout(PATIENCE, all).await {
                let _ = row.memory.set(all);
            }
        }
        Some(KeptRow { shared: row, _memory: own })
    }
}

fn kibibytes(row: &Row) -> Option<u32> {
    u32::try_from(row.bytes().div_ceil(1 << 10)).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::{FleetKind, row};
    use crate::serve::{anonymous_bodies, form_memory, page_memory};
    use crate::session;
    use mainstay_cluster::ApiServer;

    /// A row of about this size.
    fn row_of(name: &str, bytes: usize) -> Row {
        let labels: serde_json::Map<_, _> =
            (0..bytes / 512).map(|number| (format!("{number:04}"), "x".repeat(508).into())).collect();
        row(FleetKind::GitSync, &json!({"metadata": {"name": name, "namespace": "b", "labels": labels}}))
    }

    #[tokio::test]
    async fn a_session_keeps_rows_up_to_its_share() {
        let memory = RowMemory::default();
        let (first, second) = (memory.share("a"), memory.share("b"));
        let mut kept = Vec::new();
        while kept.len() <= 8 << 10 >> 5
            && let Some(row) = first.keep(first.shared(row_of(&kept.len().to_string(), 40 << 10))).await
        {
            kept.push(row);
        }
        assert!(kept.len() <= 8 << 10 >> 5 && kept.len() > 100, "{}", kept.len());
        assert!(first.used() > OF_SESSION - 64 && second.used() == 0);
        assert!(second.keep(second.shared(row_of("a", 40 << 10))).await.is_some());
        drop(kept);
        assert_eq!(first.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_waits_for_the_end_of_another_session_if_the_server_is_full() {
        let memory = RowMemory::of(64);
        let (first, second) = (memory.share("a"), memory.share("b"));
        let held = first.keep(first.shared(row_of("a", 40 << 10))).await.unwrap();
        let other = second.shared(row_of("b", 40 << 10));
        assert!(second.try_keep(&other).is_none());
        let ended = async {
            memory.wanted().await;
            drop(held);
        };
        let both = async { tokio::join!(second.keep(other), ended) };
        let (kept, ()) = tokio::time::timeout(PATIENCE * 10, both).await.expect("a session is ended");
        assert!(kept.is_some() && first.used() == 0);
    }

    #[tokio::test]
    async fn equal_rows_of_sessions_take_the_memory_of_the_server_once() {
        let memory = RowMemory::of(64);
        let sessions: Vec<SessionMemory> = (0..20).map(|_| memory.share("a")).collect();
        let keep = |session: &SessionMemory, bytes| session.try_keep(&session.shared(row_of("a", bytes)));
        let kept: Vec<KeptRow> = sessions.iter().map(|session| keep(session, 40 << 10).unwrap()).collect();
        assert!(kept.iter().all(|row| row.is(&kept[0].shared)) && memory.rows.len() == 1);
        assert!((40 << 10) / 20 <= kept[0].part() && kept[0].part() < 3 << 10, "{}", kept[0].part());
        assert!(sessions.iter().all(|session| session.used() >= 40));
        // Another content of the same object is another row.
        assert!(keep(&sessions[0], 30 << 10).is_none());
        let small = keep(&sessions[0], 1 << 10).unwrap();
        assert!(!small.is(&kept[0].shared) && memory.rows.len() == 2);
        drop((kept, small));
        assert_eq!((memory.rows.len(), memory.free.available_permits()), (0, 64));
    }

    #[test]
    fn a_list_has_a_smaller_share() {
        let memory = RowMemory::default();
        let list = memory.share_of_list("a");
        assert_eq!((list.mebibytes(), memory.share("a").mebibytes()), (2, 8));
        let mut kept = Vec::new();
        while let Some(row) = list.try_keep(&list.shared(row_of(&kept.len().to_string(), 40 << 10))) {
            kept.push(row);
        }
        assert!(kept.len() < 2 << 10 >> 5 && kept.len() > 20, "{}", kept.len());
    }

    /// The memory of a session without its rows, and of a further watch, in KiB. The buffers of watches are as large as
    /// their largest objects.
    const WITHOUT_ROWS: usize = 576;
    const OF_WATCH: usize = WITHOUT_ROWS / 4;
    /// The memory of the process without sessions, in KiB.
    const WITHOUT_SESSIONS: usize = 10 << 10;

    #[test]
    fn all_sessions_with_all_rows_and_pages_fit_into_the_memory_of_the_pod() {
        let pod = include_str!("../../../../manifests/console/deployment.yaml");
        let (_, limits) = pod.split_once("limits:").unwrap();
        let (_, limit) = limits.split_once("memory: ").unwrap();
        let (limit, _) = limit.split_once("Mi").unwrap();
        let pages = (page_memory::ALL << 10) + page_memory::UNREAD;
        let forms = form_memory::ALL + anonymous_bodies::ALL;
        let watches = session::ALL * WITHOUT_ROWS + WATCHES.server * OF_WATCH + (ApiServer::EVENT_MEMORY >> 10);
        let all = WITHOUT_SESSIONS + ALL + watches + pages + forms;
        assert!(all <= limit.parse::<usize>().unwrap() << 10, "{all} KiB of {limit} MiB");
    }
}
