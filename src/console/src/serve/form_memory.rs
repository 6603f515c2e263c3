//! Reads forms of sessions within the memory for forms.
//!
//! Invariant: the forms of all sessions take a bounded memory until their response is composed, and so do those of a group of
//! users. A form takes its memory before its first byte is read. Invariant: a session sends few forms at the same time, each
//! for a bounded time. A form that waits for memory delays only forms of its own group.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use tokio::sync::Semaphore;

use super::group_permits::{GroupPermit, GroupPermits, Most};
use mainstay_cluster::body::{self, BodyFault};

/// The memory for the forms of all sessions, and for those of a group of users, in KiB.
pub(super) const ALL: usize = 8 << 10;
const MOST: Most = Most { server: ALL, group: 3 << 10, least: 0 };
/// Maximum number of forms that a session sends at the same time.
const OF_SESSION: usize = 2;
/// Time for which a form waits for its memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// The memory for the forms of all sessions. Clones share the same memory.
#[derive(Clone)]
pub(super) struct FormMemory {
    all: GroupPermits,
}

impl Default for FormMemory {
    fn default() -> Self {
        Self { all: GroupPermits::new(MOST) }
    }
}

impl FormMemory {
    /// Returns the forms of a new session of a group of users.
    pub(super) fn of_session(&self, group: &str) -> SessionForms {
        SessionForms { all: self.all.clone(), group: group.to_owned(), own: Arc::new(Semaphore::new(OF_SESSION)) }
    }
}

/// The forms of a session.
pub(super) struct SessionForms {
    all: GroupPermits,
    group: String,
    own: Arc<Semaphore>,
}

/// The memory of a form.
pub(super) struct FormPermit {
    _held: GroupPermit,
}

impl SessionForms {
    /// Reads a form of at most `most` bytes, which arrives `within` this time once it has its memory.
    ///
    /// # Errors
    /// The form is too large, has no memory in time, or does not arrive.
    pub(super) async fn read(
        &self,
        body: &mut Body,
        most: usize,
        within: Duration,
    ) -> Result<(Vec<u8>, FormPermit), BodyFault> {
        let size = body.size_hint();
        if size.lower() > most as u64 {
            return Err(BodyFault::TooLarge);
        }
        let length = size.upper().and_then(|upper| usize::try_from(upper).ok()).map_or(most, |upper| upper.min(most));
        let kibibytes = length.div_ceil(1 << 10).max(1);
        let acquired = async {
            // The semaphore is never closed.
            let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
            Some((own, FormPermit { _held: self.all.acquire(&self.group, kibibytes).await? }))
        };
        let acquired = tokio::time::timeout(PATIENCE, acquired).await.ok().flatten();
        let (_own, permit) = acquired.ok_or(BodyFault::NoRoom)?;
        let read = tokio::time::timeout(within, body::read(body, most, |_| true)).await;
        read.unwrap_or(Err(BodyFault::Broken)).map(|bytes| (bytes, permit))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::stream;

    use super::*;

    const LARGE: usize = 2 << 20;
    const WITHIN: Duration = Duration::from_secs(20);

    async fn read(session: &SessionForms, size: usize) -> Result<FormPermit, BodyFault> {
        let read = session.read(&mut Body::from(vec![b'x'; size]), LARGE, WITHIN).await;
        read.map(|(bytes, permit)| {
            assert_eq!(bytes.len(), size);
            permit
        })
    }

    /// Reads a form that does not arrive, of unknown size.
    async fn slow(session: &SessionForms) -> Option<BodyFault> {
        let mut body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        session.read(&mut body, LARGE, WITHIN).await.err()
    }

    #[tokio::test(start_paused = true)]
    async fn the_forms_of_all_sessions_take_a_bounded_memory() {
        let memory = FormMemory::default();
        let sessions: Vec<SessionForms> = (0..5).map(|at| memory.of_session(&at.to_string())).collect();
        let mut held = Vec::new();
        for session in &sessions[..4] {
            held.push(read(session, LARGE).await.unwrap());
        }
        assert_eq!(memory.all.taken(), ALL);
        assert_eq!(read(&sessions[4], 1).await.err(), Some(BodyFault::NoRoom));
        drop(held);
        assert_eq!(memory.all.taken(), 0);
        assert_eq!(read(&sessions[4], LARGE + 1).await.err(), Some(BodyFault::TooLarge));
        assert!(read(&sessions[4], 1).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_group_that_sends_slowly_blocks_only_its_own_forms() {
        let memory = FormMemory::default();
        let (slow_one, same, other) = (memory.of_session("a"), memory.of_session("a"), memory.of_session("b"));
        let (first, second, of_other) = tokio::join!(slow(&slow_one), read(&same, LARGE), read(&other, LARGE));
        assert_eq!((first, second.err()), (Some(BodyFault::Broken), Some(BodyFault::NoRoom)));
        assert!(of_other.is_ok());
        drop(of_other);
        assert_eq!(memory.all.taken(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_form_that_waits_delays_no_small_forms_of_others() {
        let memory = FormMemory::default();
        let sessions: Vec<SessionForms> = (0..6).map(|at| memory.of_session(&at.to_string())).collect();
        let mut held = Vec::new();
        for session in &sessions[..3] {
            held.push(read(session, LARGE).await.unwrap());
        }
        held.push(read(&sessions[3], LARGE / 2).await.unwrap());
        let small = async {
            tokio::task::yield_now().await;
            read(&sessions[5], 1).await
        };
        let (large, small) = tokio::join!(read(&sessions[4], LARGE), small);
        assert_eq!((large.err(), small.is_ok()), (Some(BodyFault::NoRoom), true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_sends_two_forms_at_the_same_time() {
        let memory = FormMemory::default();
        let session = memory.of_session("a");
        let mut bodies = [(); 3].map(|()| Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()));
        let [first, second, third] = &mut bodies;
        let read = async |body: &mut Body| session.read(body, 1 << 10, WITHIN).await.err();
        let faults = tokio::join!(read(first), read(second), read(third));
        let (broken, no_room) = (Some(BodyFault::Broken), Some(BodyFault::NoRoom));
        assert_eq!(faults, (broken, broken, no_room));
    }
}
