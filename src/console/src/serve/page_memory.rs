//! The memory of pages that read many or large objects: trees, differences, networks, Functions, objects, and their forms. The pages of
//! hand edits take memory, too, and so do the lists with which watches begin.
//!
//! Invariant: the memory of all such pages at the same time is limited, and so is that of the sessions of a group of users. A
//! page waits for its part, and is refused after [`PATIENCE`]. It has its part for at most [`LONGEST`], and keeps the part of
//! its response until the client has read it (`held`). Invariant: a session
//! reads few such pages at the same time, so that it does not delay all others. Invariant: work that takes long runs on one
//! thread, which responds to no requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::form_memory::{FormMemory, SessionForms};
use super::group_permits::{GroupPermit, GroupPermits, Most};

/// Maximum memory of all pages at the same time, and of those of a group of users, in MiB.
pub(super) const ALL: usize = 120;
const MOST: Most = Most { server: ALL, group: 80, least: 0 };
/// Maximum memory of all responses of other pages that their clients have not read, and of those of a group of users, in KiB.
/// Groups that read slowly leave a page of the fleet to each other group.
pub(super) const MOST_UNREAD: Most = Most { server: 2560, group: 512, least: 96 };
/// Same as `MOST_UNREAD`, for the results of calls, which have their memory before the call.
const MOST_RESULTS: Most = Most { server: 8 << 10, group: 2 << 10, least: 0 };
/// Memory of a result before its call, in bytes. As many calls as may wait for their responses have it.
const RESULT: u64 = 128 << 10;
#[cfg(test)]
pub(super) const UNREAD: usize = MOST_UNREAD.all() + MOST_RESULTS.all();
/// Maximum number of pages of a session at the same time.
const OF_SESSION: usize = 2;
/// Time for which a page waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time for reading a page, and for a part that the page can be without.
pub(super) const LONGEST: Duration = Duration::from_secs(60);
const PART: Duration = Duration::from_secs(30);

/// Memory of the list of a watch, in MiB. A page of a list has at most 4 MiB, and takes three times its size while it is
/// parsed.
const LIST: usize = 12;
/// Maximum memory of such lists at the same time, and of those of a group of users, in MiB. The rest is for pages.
const MOST_LISTS: Most = Most { server: 60, group: 36, least: 0 };

/// A page that reads many or large objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heavy {
    Tree,
    Differences,
    Network,
    /// An object with its trace, or with a further object.
    Object,
    /// An object alone, or the hand edits of all GitSyncs.
    Single,
}

impl Heavy {
    /// Returns the maximum memory of the page in MiB. An object takes at most 20, and its trace reads it again.
    const fn mebibytes(self) -> usize {
        match self {
            Self::Tree | Self::Single => 20,
            Self::Differences | Self::Network => 24,
            Self::Object => 40,
        }
    }
}

/// The memory of the pages of all sessions. Clones share the same memory.
#[derive(Clone)]
pub(super) struct PageMemory {
    /// `None` without limits.
    limits: Option<Limits>,
    forms: FormMemory,
    /// The permit of the work that takes long.
    work: Arc<Semaphore>,
}

#[derive(Clone)]
struct Limits {
    /// In MiB.
    pages: GroupPermits,
    /// In MiB, a part of `pages`.
    lists: GroupPermits,
    /// In KiB.
    unread: GroupPermits,
    results: GroupPermits,
}

impl Default for PageMemory {
    fn default() -> Self {
        let limits = Limits {
            pages: GroupPermits::new(MOST),
            lists: GroupPermits::new(MOST_LISTS),
            unread: GroupPermits::new(MOST_UNREAD),
            results: GroupPermits::new(MOST_RESULTS),
        };
        Self { limits: Some(limits), ..Self::unlimited() }
    }
}

impl PageMemory {
    /// Returns memory without limits, for the one user of a command.
    pub(super) fn unlimited() -> Self {
        Self { limits: None, forms: FormMemory::default(), work: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the memory of the lists of a group of users.
    pub(super) fn lists(&self, group: &str) -> ListMemory {
        ListMemory { limits: self.limits.as_ref().map(|limits| (limits.clone(), group.to_owned())) }
    }

    /// Returns the pages of a new session of a group of users.
    pub(super) fn of_session(&self, group: &str) -> SessionPages {
        let limits = self.limits.as_ref().map(|limits| SessionLimits {
            all: limits.clone(),
            group: group.to_owned(),
            own: Arc::new(Semaphore::new(OF_SESSION)),
        });
        SessionPages { limits, forms: self.forms.of_session(group), work: Arc::clone(&self.work) }
    }
}

/// The memory of the lists with which the watches of a group of users begin.
#[derive(Clone)]
pub(super) struct ListMemory {
    /// `None` without limits.
    limits: Option<(Limits, String)>,
}

/// The memory of a list until it is complete or has failed.
pub(super) struct ListPermit {
    _held: [Option<GroupPermit>; 2],
}

impl ListMemory {
    /// Waits for the memory of a list.
    pub(super) async fn acquire(&self) -> ListPermit {
        let Some((Limits { pages, lists, .. }, group)) = &self.limits else {
            return ListPermit { _held: [None, None] };
        };
        let list = lists.acquire(group, LIST).await;
        ListPermit { _held: [list, pages.acquire(group, LIST).await] }
    }

    /// Takes the memory of a list if it is free.
    pub(super) fn try_acquire(&self) -> Option<ListPermit> {
        let Some((Limits { pages, lists, .. }, group)) = &self.limits else {
            return Some(ListPermit { _held: [None, None] });
        };
        let list = lists.try_acquire(group, LIST).ok()?;
        Some(ListPermit { _held: [Some(list), Some(pages.try_acquire(group, LIST).ok()?)] })
    }
}

/// The pages of a session.
pub(super) struct SessionPages {
    /// `None` without limits.
    limits: Option<SessionLimits>,
    pub(super) forms: SessionForms,
    work: Arc<Semaphore>,
}

struct SessionLimits {
    all: Limits,
    group: String,
    own: Arc<Semaphore>,
}

/// The memory of a page while it is read and rendered, and that of its response afterwards.
pub(super) struct PagePermit {
    held: Option<Held>,
}

struct Held {
    _own: OwnedSemaphorePermit,
    memory: GroupPermit,
}

/// The memory of a response of another page until its client has read it.
pub(super) struct UnreadPermit {
    /// `None` without limits.
    held: Option<GroupPermit>,
}

impl PagePermit {
    /// Keeps only the memory of a response of so many bytes, whose buffer may have twice its size.
    pub(super) fn shrink_to(&mut self, bytes: u64) {
        let Some(held) = &mut self.held else { return };
        let mebibytes = bytes.saturating_mul(2).div_ceil(1 << 20).max(1);
        held.memory.shrink_to(usize::try_from(mebibytes).unwrap_or(usize::MAX));
    }
}

impl UnreadPermit {
    /// Changes the memory of a response to its size in bytes. Returns whether the response has enough.
    pub(super) fn try_resize(&mut self, bytes: Option<u64>) -> bool {
        let Some(held) = &mut self.held else { return true };
        let wanted = kibibytes(bytes).min(held.most());
        let missing = wanted.saturating_sub(held.count());
        held.shrink_to(wanted);
        missing == 0 || held.try_grow(missing)
    }
}

impl SessionPages {
    /// Waits for the memory of a page; `None` if there is none in time.
    pub(super) async fn acquire(&self, page: Heavy) -> Option<PagePermit> {
        let Some(limits) = &self.limits else { return Some(PagePermit { held: None }) };
        let acquired = async {
            let own = Arc::clone(&limits.own).acquire_owned().await.ok()?;
            let memory = limits.all.pages.acquire(&limits.group, page.mebibytes()).await?;
            Some(PagePermit { held: Some(Held { _own: own, memory }) })
        };
        tokio::time::timeout(PATIENCE, acquired).await.ok().flatten()
    }

    /// Takes the memory of a page if it is free.
    pub(super) fn try_acquire(&self, page: Heavy) -> Option<PagePermit> {
        let Some(limits) = &self.limits else { return Some(PagePermit { held: None }) };
        let own = Arc::clone(&limits.own).try_acquire_owned().ok()?;
        let memory = limits.all.pages.try_acquire(&limits.group, page.mebibytes()).ok()?;
        Some(PagePermit { held: Some(Held { _own: own, memory }) })
    }

    /// Takes the memory of a response of so many bytes, if it is free. A response of unknown size takes the most.
    pub(super) fn try_unread(&self, bytes: Option<u64>) -> Option<UnreadPermit> {
        let Some(limits) = &self.limits else { return Some(UnreadPermit { held: None }) };
        let held = limits.all.unread.try_acquire(&limits.group, kibibytes(bytes).min(MOST_UNREAD.group)).ok()?;
        Some(UnreadPermit { held: Some(held) })
    }

    /// Takes the memory of the result of a call, if it is free.
    pub(super) fn try_result(&self) -> Option<UnreadPermit> {
        let Some(limits) = &self.limits else { return Some(UnreadPermit { held: None }) };
        let held = limits.all.results.try_acquire(&limits.group, kibibytes(Some(RESULT))).ok()?;
        Some(UnreadPermit { held: Some(held) })
    }

    /// Reads a page, or a part of one, within this time; `None` if it takes longer.
    pub(super) async fn within<T>(&self, time: Duration, read: impl Future<Output = T>) -> Option<T> {
        if self.limits.is_none() {
            return Some(read.await);
        }
        tokio::time::timeout(time, read).await.ok()
    }

    /// Reads a part that the page can be without. Returns an error after half of the time of the page.
    pub(super) async fn part<T>(&self, read: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let late = || Err(format!("it takes longer than {} s", PART.as_secs()));
        self.within(PART, read).await.unwrap_or_else(late)
    }

    /// Runs work that takes long, after that of other pages. Returns `None` if it panicked.
    pub(super) async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let permit = Arc::clone(&self.work).acquire_owned().await.ok()?;
        let computed = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        computed.await.ok()
    }
}

/// Returns the memory of a response in KiB. A response that is larger than the memory of its group is sent alone.
fn kibibytes(bytes: Option<u64>) -> usize {
    let kibibytes = bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(1 << 10));
    usize::try_from(kibibytes).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::{Filter, PER_PAGE, listing};
    use crate::lookup::Lookups;
    use crate::page::{self, Fleet, Live, Page, Visitor};
    use crate::row::{FleetKind, row};

    #[tokio::test(start_paused = true)]
    async fn a_page_waits_for_the_memory_of_other_pages_and_not_for_ever() {
        let memory = PageMemory::default();
        let sessions: Vec<SessionPages> = (0..5).map(|at| memory.of_session(&at.to_string())).collect();
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
        let pages = PageMemory::default().of_session("a");
        let (sender, receiver) = std::sync::mpsc::channel();
        let work = pages.compute(move || receiver.recv().is_ok());
        let (computed, ()) = tokio::join!(work, async move { sender.send(()).unwrap() });
        assert_eq!(computed, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_does_not_take_the_memory_of_all_others() {
        let memory = PageMemory::default();
        let (greedy, other) = (memory.of_session("a"), memory.of_session("b"));
        let held = [greedy.acquire(Heavy::Object).await, greedy.acquire(Heavy::Object).await];
        assert!(held.iter().all(Option::is_some));
        let (third, of_other) = tokio::join!(greedy.acquire(Heavy::Object), other.acquire(Heavy::Object));
        assert!(third.is_none() && of_other.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_sessions_of_a_group_leave_memory_to_others() {
        let memory = PageMemory::default();
        let group: Vec<SessionPages> = (0..3).map(|_| memory.of_session("namespace a")).collect();
        let held = [group[0].acquire(Heavy::Object).await, group[1].acquire(Heavy::Object).await];
        assert!(held.iter().all(Option::is_some));
        assert!(group[2].acquire(Heavy::Single).await.is_none());
        assert!(memory.of_session("namespace b").acquire(Heavy::Object).await.is_some());
        drop(held);
        assert!(group[2].acquire(Heavy::Single).await.is_some());
    }

    #[tokio::test]
    async fn memory_that_is_not_free_is_not_taken() {
        let memory = PageMemory::default();
        let pages = memory.of_session("a");
        let held = [pages.try_acquire(Heavy::Object), pages.try_acquire(Heavy::Single)];
        assert!(held.iter().all(Option::is_some) && pages.try_acquire(Heavy::Single).is_none());
        let other = memory.of_session("a");
        assert!(other.try_acquire(Heavy::Object).is_none() && other.try_acquire(Heavy::Single).is_some());
        drop(held);
        assert!(other.try_acquire(Heavy::Object).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_keeps_its_own_size_of_the_memory_of_its_page() {
        let memory = PageMemory::default();
        let pages = memory.of_session("a");
        let free = || memory.limits.as_ref().map(|limits| ALL - limits.pages.taken());
        let mut permit = pages.acquire(Heavy::Object).await.unwrap();
        permit.shrink_to(100 << 20);
        assert_eq!(free(), Some(ALL - 40));
        for (bytes, kept) in [(3 << 20, 6), (1, 1), (0, 1)] {
            permit.shrink_to(bytes);
            assert_eq!(free(), Some(ALL - kept), "{bytes}");
        }
        let other = pages.acquire(Heavy::Single).await;
        assert!(other.is_some() && pages.acquire(Heavy::Single).await.is_none(), "two pages are not read");
        drop((permit, other));
        assert_eq!(free(), Some(ALL));
    }

    #[test]
    fn responses_that_are_not_read_have_a_maximum() {
        let memory = PageMemory::default();
        let groups: Vec<SessionPages> = (0..6).map(|at| memory.of_session(&at.to_string())).collect();
        let take = |at: usize| std::iter::from_fn(|| groups[at].try_unread(Some(100 << 10))).collect::<Vec<_>>();
        let held = [0, 1, 2, 3, 4, 5].map(take);
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 5, 5, 5, 0]);
        drop(held);
        let unknown = groups[0].try_unread(None);
        assert!(unknown.is_some() && groups[0].try_unread(Some(0)).is_none());
        assert!(groups[1].try_unread(Some(0)).is_some());
    }

    /// Returns the number of bytes of a full page of the fleet, with as many namespaces as it lists.
    fn fleet_page() -> u64 {
        let object = |at: usize| {
            let commit = format!("{at:040x}");
            let message = format!("main@sha1:{commit}: 12 unchanged");
            let ready = json!({
                "type": "Ready", "status": "True", "reason": "Applied", "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            json!({
                "metadata": {"namespace": format!("team-{at:03}"), "name": format!("shop-web-{at:03}")},
                "spec": {"gitRepository": "repo"},
                "status": {"objects": 12, "healthy": 12, "appliedCommit": commit, "conditions": [ready]},
            })
        };
        let rows = (0..200).map(|at| Arc::new(row(FleetKind::GitSync, &object(at)))).collect();
        let (filter, now) = (Filter { page: 1, ..Filter::default() }, jiff::Timestamp::UNIX_EPOCH);
        let listing = listing(rows, &filter);
        assert_eq!(listing.rows.len(), PER_PAGE);
        let body = page::fleet(&Fleet {
            title: "Fleet",
            path: "/",
            kinds: &FleetKind::ALL,
            listing: &listing,
            filter: &filter,
            lookups: &Lookups::new(),
            notes: &[],
            within: None,
            now,
        });
        let visitor = Visitor { user: "alice@example.com", cluster: "production", csrf: "", end: None, now };
        let live = Some(Live { url: "/events".to_owned(), seen: 1 });
        page::render(Page { title: "Fleet", visitor: Some(visitor), live, body }).len() as u64
    }

    #[test]
    fn groups_that_read_slowly_leave_a_page_of_the_fleet_to_each_other_group() {
        let memory = PageMemory::default();
        let take =
            |group: &SessionPages, bytes: u64| std::iter::from_fn(|| group.try_unread(Some(bytes))).collect::<Vec<_>>();
        let slow: Vec<SessionPages> = (0..5).map(|at| memory.of_session(&at.to_string())).collect();
        let _held: Vec<_> = slow.iter().map(|group| take(group, 1 << 10)).collect();
        let size = fleet_page();
        assert!(size > 50 << 10, "{size}");
        for group in ["a", "b", "c"] {
            let pages = memory.of_session(group);
            assert!(pages.try_unread(Some(97 << 10)).is_none());
            assert_eq!(take(&pages, 48 << 10).len(), 2, "{group}");
            assert!(pages.try_unread(Some(size)).is_some(), "{size}");
        }
    }

    #[test]
    fn a_response_takes_more_memory_if_it_is_larger_than_expected() {
        let memory = PageMemory::default();
        let pages = memory.of_session("a");
        let taken = || memory.limits.as_ref().map(|limits| limits.unread.taken());
        let mut permit = pages.try_unread(Some(8 << 10)).unwrap();
        for (bytes, kept) in [(100 << 10, 100), (20 << 10, 20), (0, 1), (8 << 20, 512)] {
            assert!(permit.try_resize(Some(bytes)));
            assert_eq!(taken(), Some(kept));
        }
        assert!(permit.try_resize(Some(300 << 10)));
        let other = pages.try_unread(Some(200 << 10)).unwrap();
        assert!(!permit.try_resize(Some(400 << 10)));
        assert_eq!(taken(), Some(500), "it keeps what it has");
        drop((permit, other));
        assert_eq!(taken(), Some(0));
    }

    #[test]
    fn the_result_of_a_call_has_memory_although_pages_are_not_read() {
        let memory = PageMemory::default();
        let pages = memory.of_session("a");
        let _unread = pages.try_unread(None);
        assert!(pages.try_unread(Some(0)).is_none());
        let taken = || memory.limits.as_ref().map(|limits| limits.results.taken());
        let mut results: Vec<UnreadPermit> = std::iter::from_fn(|| pages.try_result()).collect();
        assert_eq!((results.len(), taken()), (16, Some(2 << 10)));
        assert!(!results[0].try_resize(Some(200 << 10)));
        assert!(results[1].try_resize(Some(2 << 10)) && results[0].try_resize(Some(200 << 10)));
        assert_eq!(taken(), Some(14 * 128 + 2 + 200));
        assert!(memory.of_session("b").try_result().is_some());
        drop(results);
        assert_eq!(taken(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_keeps_its_memory_for_a_limited_time() {
        let pages = PageMemory::default().of_session("a");
        assert_eq!(pages.within(LONGEST, std::future::pending::<()>()).await, None);
        assert_eq!(pages.within(LONGEST, std::future::ready(1)).await, Some(1));
        let part = pages.part(std::future::pending::<Result<(), String>>()).await;
        assert_eq!(part, Err("it takes longer than 30 s".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_user_of_a_command_has_no_limits() {
        let pages = PageMemory::unlimited().of_session("a");
        let held = [
            pages.acquire(Heavy::Object).await,
            pages.acquire(Heavy::Object).await,
            pages.acquire(Heavy::Object).await,
        ];
        assert!(held.iter().all(Option::is_some) && pages.acquire(Heavy::Object).await.is_some());
        let late = pages.within(LONGEST, tokio::time::sleep(LONGEST * 2)).await;
        assert_eq!(late, Some(()));
    }
}
