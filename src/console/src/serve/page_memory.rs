//! The memory of pages that read many or large objects: trees, differences, Functions, objects, and their forms.
//!
//! Invariant: the memory of all such pages at the same time is limited. A page waits for its part, and is refused after
//! [`PATIENCE`]. Invariant: a session reads few such pages at the same time, so that it does not delay all others.
//! Invariant: work that takes long runs on one thread, which responds to no requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum memory of all pages at the same time, in MiB.
pub(super) const ALL: usize = 120;
/// Maximum number of pages of a session at the same time.
const OF_SESSION: usize = 2;
/// Time for which a page waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// A page that reads many or large objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heavy {
    Tree,
    Differences,
    /// An object with its trace, or with a further object.
    Object,
    /// An object alone.
    Single,
}

impl Heavy {
    /// Returns the maximum memory of the page in MiB. An object takes at most 20, and its trace reads it again.
    const fn mebibytes(self) -> u32 {
        match self {
            Self::Tree | Self::Single => 20,
            Self::Differences => 24,
            Self::Object => 40,
        }
    }
}

/// The memory of the pages of all sessions. Clones share the same memory.
#[derive(Clone)]
pub(super) struct PageMemory {
    free: Arc<Semaphore>,
    /// The permit of the work that takes long.
    work: Arc<Semaphore>,
}

impl Default for PageMemory {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(ALL)), work: Arc::new(Semaphore::new(1)) }
    }
}

impl PageMemory {
    /// Returns the pages of a new session.
    pub(super) fn of_session(&self) -> SessionPages {
        SessionPages { all: self.clone(), own: Arc::new(Semaphore::new(OF_SESSION)) }
    }
}

/// The pages of a session.
pub(super) struct SessionPages {
    all: PageMemory,
    own: Arc<Semaphore>,
}

/// The memory of a page while it is read and rendered.
pub(super) struct PagePermit {
    _own: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
}

impl SessionPages {
    /// Waits for the memory of a page; `None` if there is none in time.
    pub(super) async fn acquire(&self, page: Heavy) -> Option<PagePermit> {
        let acquired = async {
            let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
            let memory = Arc::clone(&self.all.free).acquire_many_owned(page.mebibytes()).await.ok()?;
            Some(PagePermit { _own: own, _memory: memory })
        };
        tokio::time::timeout(PATIENCE, acquired).await.ok().flatten()
    }

    /// Runs work that takes long, after that of other pages. Returns `None` if it panicked.
    pub(super) async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let permit = Arc::clone(&self.all.work).acquire_owned().await.ok()?;
        let computed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        computed.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_page_waits_for_the_memory_of_other_pages_and_not_for_ever() {
        let memory = PageMemory::default();
        let sessions: Vec<SessionPages> = (0..5).map(|_| memory.of_session()).collect();
        let mut held = Vec::new();
        for session in &sessions[..3] {
            held.extend(session.acquire(Heavy::Object).await);
        }
        assert_eq!(held.len(), 3);
        assert!(sessions[3].acquire(Heavy::Tree).await.is_none());
        let (page, ()) = tokio::join!(sessions[4].acquire(Heavy::Differences), async { held.truncate(2) });
        assert!(page.is_some());
    }

    #[tokio::test]
    async fn work_of_a_page_does_not_hold_the_thread_of_requests() {
        let pages = PageMemory::default().of_session();
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = pages.compute(move || receiver.recv().is_ok());
        let (computed, ()) = tokio::join!(work, async move { sender.send(()).unwrap() });
        assert_eq!(computed, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_does_not_take_the_memory_of_all_others() {
        let memory = PageMemory::default();
        let (greedy, other) = (memory.of_session(), memory.of_session());
        let held = [greedy.acquire(Heavy::Object).await, greedy.acquire(Heavy::Object).await];
        assert!(held.iter().all(Option::is_some));
        let (third, of_other) = tokio::join!(greedy.acquire(Heavy::Object), other.acquire(Heavy::Object));
        assert!(third.is_none() && of_other.is_some());
    }
}
