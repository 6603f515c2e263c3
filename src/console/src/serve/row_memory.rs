//! The memory of the rows of all sessions.
//!
//! Invariant: the rows of a session, and those of all sessions, have a maximum size.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::row::Row;

/// Maximum size of the rows of all sessions and of one, in KiB.
const ALL: usize = 40 << 10;
const OF_SESSION: usize = 8 << 10;
/// After this time without memory, a further session is ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// The memory for rows. Clones share it.
#[derive(Clone)]
pub(super) struct RowMemory {
    free: Arc<Semaphore>,
    is_wanted: Arc<Notify>,
}

impl Default for RowMemory {
    fn default() -> Self {
        Self::of(ALL)
    }
}

impl RowMemory {
    fn of(kibibytes: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(kibibytes)), is_wanted: Arc::default() }
    }

    /// Returns the share of a session.
    pub(super) fn share(&self) -> SessionMemory {
        SessionMemory { all: self.clone(), free: Arc::new(Semaphore::new(OF_SESSION)) }
    }

    /// Waits until a row found no memory.
    pub(super) async fn wanted(&self) {
        self.is_wanted.notified().await;
    }
}

/// The memory of a session.
pub(super) struct SessionMemory {
    all: RowMemory,
    free: Arc<Semaphore>,
}

/// A row with its memory.
pub(super) struct KeptRow {
    pub(super) row: Arc<Row>,
    _memory: [OwnedSemaphorePermit; 2],
}

impl SessionMemory {
    /// Returns the size of the session's rows, in KiB.
    pub(super) fn used(&self) -> usize {
        OF_SESSION - self.free.available_permits()
    }

    /// Takes memory for a row, if the session and the server have some.
    pub(super) fn try_keep(&self, row: &Arc<Row>) -> Option<KeptRow> {
        let size = kibibytes(row)?;
        let own = Arc::clone(&self.free).try_acquire_many_owned(size).ok()?;
        let all = Arc::clone(&self.all.free).try_acquire_many_owned(size).ok()?;
        Some(KeptRow { row: Arc::clone(row), _memory: [own, all] })
    }

    /// Takes memory for a row; `None` if the session has its maximum. If the server has its maximum, it waits until
    /// another session has ended.
    pub(super) async fn keep(&self, row: Arc<Row>) -> Option<KeptRow> {
        let size = kibibytes(&row)?;
        let own = Arc::clone(&self.free).try_acquire_many_owned(size).ok()?;
        loop {
            if self.all.free.available_permits() < size as usize {
                self.all.is_wanted.notify_one();
            }
            let all = Arc::clone(&self.all.free).acquire_many_owned(size);
            let taken = tokio::time::timeout(PATIENCE, all).await;
            if let Ok(Ok(all)) = taken {
                return Some(KeptRow { row, _memory: [own, all] });
            }
        }
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
    use crate::session;

    fn row_of(bytes: usize) -> Arc<Row> {
        let labels: serde_json::Map<_, _> =
            (0..bytes / 512).map(|number| (format!("{number:04}"), "x".repeat(508).into())).collect();
        Arc::new(row(FleetKind::GitSync, &json!({"metadata": {"name": "a", "namespace": "b", "labels": labels}})))
    }

    #[tokio::test]
    async fn a_session_keeps_rows_up_to_its_share() {
        let memory = RowMemory::default();
        let (first, second) = (memory.share(), memory.share());
        let mut kept = Vec::new();
        while kept.len() <= 8 << 10 >> 5
            && let Some(row) = first.keep(row_of(40 << 10)).await
        {
            kept.push(row);
        }
        assert!(kept.len() <= 8 << 10 >> 5 && kept.len() > 100, "{}", kept.len());
        assert!(first.used() > OF_SESSION - 64 && second.used() == 0);
        assert!(second.keep(row_of(40 << 10)).await.is_some());
        drop(kept);
        assert_eq!(first.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_waits_for_the_end_of_another_session_if_the_server_is_full() {
        let memory = RowMemory::of(64);
        let (first, second) = (memory.share(), memory.share());
        let held = first.keep(row_of(40 << 10)).await.unwrap();
        let ended = async {
            memory.wanted().await;
            drop(held);
        };
        let both = async { tokio::join!(second.keep(row_of(40 << 10)), ended) };
        let (kept, ()) = tokio::time::timeout(PATIENCE * 10, both).await.expect("a session is ended");
        assert!(kept.is_some() && first.used() == 0);
    }

    /// The memory of a session without its rows, in KiB. The buffers of its watches are as large as their largest objects.
    const WITHOUT_ROWS: usize = 576;
    /// The memory of the process without sessions, in KiB.
    const WITHOUT_SESSIONS: usize = 10 << 10;

    #[test]
    fn all_sessions_with_all_rows_fit_into_the_memory_of_the_pod() {
        let pod = include_str!("../../../../manifests/console/deployment.yaml");
        let (_, limits) = pod.split_once("limits:").unwrap();
        let (_, limit) = limits.split_once("memory: ").unwrap();
        let (limit, _) = limit.split_once("Mi").unwrap();
        let all = WITHOUT_SESSIONS + ALL + session::ALL * WITHOUT_ROWS;
        assert!(all <= limit.parse::<usize>().unwrap() << 10, "{all} KiB of {limit} MiB");
    }
}
