//! Connection pool: after one login, a connection is used for many lookups and fetches, concurrently and one after the
//! other.
//!
//! Invariant: a connection is shared only by remotes with the same host, port, user, key, known host keys and proxy.
//! Invariant: a connection is closed with the last remote that may use it, after some idle time, and when the known
//! host keys change. It is also closed at the age of [`AGE`], so that a withdrawn key does not work longer.
//! Invariant: a connection with an aborted conversation is not used again.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::Connection;
use crate::error::Fault;

/// Maximum concurrent conversations per connection. OpenSSH's default limit is ten.
const CHANNELS: usize = 8;
/// How long a caller waits for a conversation to end before it logs in again. A server ends a conversation in
/// milliseconds, or in seconds while it is busy. In that case, a further login would add load.
const ENDING: Duration = Duration::from_secs(5);
/// The age at which a connection is replaced.
const AGE: Duration = Duration::from_secs(300);

/// Storage for a remote's lane.
pub(crate) type LanePlace = Arc<Mutex<Option<Arc<Lane>>>>;

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Lanes by the digest of their connection parameters.
    known: Mutex<HashMap<[u8; 32], Weak<Lane>>>,
    logins: Arc<AtomicU64>,
    idle: Duration,
}

/// The connections with the same parameters.
#[derive(Debug)]
pub(crate) struct Lane {
    kept: Mutex<Kept>,
    /// Notified when a login has succeeded or failed.
    ended: Notify,
    /// Notified when an ending conversation has ended.
    freed: Notify,
    /// Number of ending conversations.
    ending: AtomicUsize,
    /// Maximum concurrent conversations per connection.
    room: AtomicUsize,
    logins: Arc<AtomicU64>,
    idle: Duration,
}

#[derive(Debug, Default)]
struct Kept {
    connections: Vec<(Arc<SharedConnection>, Instant)>,
    /// Number of logins in progress.
    logins: usize,
    /// Number of callers that wait for these logins.
    waiting: usize,
    /// Number of failed logins.
    failures: u64,
}

/// A connection and its state.
#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) connection: Connection,
    since: Instant,
    spent: AtomicBool,
    /// Whether a conversation on the connection has begun.
    has_served: AtomicBool,
    lane: Weak<Lane>,
}

impl SharedConnection {
    /// Refuses further conversations. The connection is closed after its last conversation.
    pub(super) fn spend(&self) {
        self.spent.store(true, Ordering::Relaxed);
        if let Some(lane) = self.lane.upgrade() {
            lane.kept.lock().connections.retain(|(kept, _)| !kept.spent.load(Ordering::Relaxed));
        }
    }

    /// Records that a conversation has begun, so the server allows at least one.
    pub(super) fn serve(&self) {
        self.has_served.store(true, Ordering::Release);
    }

    /// Records that a conversation is ending; `None` if the lane is no longer used.
    pub(super) fn ending(&self) -> Option<Ending> {
        let lane = self.lane.upgrade()?;
        lane.ending.fetch_add(1, Ordering::AcqRel);
        Some(Ending(lane))
    }

    fn is_usable(&self, now: Instant) -> bool {
        !self.spent.load(Ordering::Relaxed)
            && !self.connection.is_closed()
            && now.saturating_duration_since(self.since) < AGE
    }
}

/// An ending conversation. Dropping this value records that it has ended.
pub(super) struct Ending(Arc<Lane>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}

/// The next step of a caller without a connection.
enum Next<'l> {
    Take(Arc<SharedConnection>),
    Wait(tokio::sync::futures::Notified<'l>, Waiter<'l>),
    LogIn(Login<'l>),
}

/// A waiting caller. Dropping it does not wake other waiters, because they would wake each other endlessly.
struct Waiter<'l>(&'l Lane);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.kept.lock().waiting -= 1;
    }
}

/// A login in progress. If it is dropped without success, it counts as failed, even if it was aborted.
struct Login<'l> {
    lane: &'l Lane,
    has_succeeded: bool,
}

impl Drop for Login<'_> {
    fn drop(&mut self) {
        let mut kept = self.lane.kept.lock();
        kept.logins -= 1;
        kept.failures += u64::from(!self.has_succeeded);
        drop(kept);
        self.lane.ended.notify_waiters();
    }
}

impl Lanes {
    pub(super) fn new(idle: Duration) -> Self {
        Self { known: Mutex::default(), logins: Arc::default(), idle }
    }

    /// Returns the number of successful logins since the start.
    pub(super) fn logins(&self) -> u64 {
        self.logins.load(Ordering::Relaxed)
    }

    /// Returns the lane with this digest. `place` keeps it alive.
    pub(super) fn get(&self, digest: [u8; 32], place: &LanePlace) -> Arc<Lane> {
        let mut known = self.known.lock();
        let lane = known.get(&digest).and_then(Weak::upgrade).unwrap_or_else(|| {
            known.retain(|_, lane| lane.strong_count() > 0);
            let lane = Arc::new(Lane::new(Arc::clone(&self.logins), self.idle));
            known.insert(digest, Arc::downgrade(&lane));
            lane
        });
        *place.lock() = Some(Arc::clone(&lane));
        lane
    }

    /// Closes all connections, each after its last conversation.
    pub(super) fn close(&self) {
        for lane in self.known.lock().values().filter_map(Weak::upgrade) {
            lane.kept.lock().connections.clear();
        }
    }
}

impl Lane {
    fn new(logins: Arc<AtomicU64>, idle: Duration) -> Self {
        Self {
            kept: Mutex::default(),
            ended: Notify::new(),
            freed: Notify::new(),
            ending: AtomicUsize::new(0),
            room: AtomicUsize::new(CHANNELS),
            logins,
            idle,
        }
    }

    /// Returns an open connection with a free slot.
    pub(super) fn kept(&self) -> Option<Arc<SharedConnection>> {
        self.take(&mut self.kept.lock())
    }

    /// Returns a connection from another caller's login, or from `log_in`.
    pub(super) async fn connect(
        self: &Arc<Self>,
        log_in: impl Future<Output = Result<Connection, Fault>>,
    ) -> Result<Arc<SharedConnection>, Fault> {
        let failures = self.kept.lock().failures;
        if let Ok(Some(connection)) = tokio::time::timeout(ENDING, self.freed()).await {
            return Ok(connection);
        }
        loop {
            match self.next(failures) {
                Next::Take(connection) => return Ok(connection),
                Next::Wait(ended, _waiting) => ended.await,
                Next::LogIn(mut login) => {
                    let connection = log_in.await?;
                    login.has_succeeded = true;
                    self.logins.fetch_add(1, Ordering::Relaxed);
                    let now = Instant::now();
                    let lane = Arc::downgrade(self);
                    let connection = SharedConnection {
                        connection,
                        since: now,
                        spent: AtomicBool::new(false),
                        has_served: AtomicBool::new(false),
                        lane,
                    };
                    let connection = Arc::new(connection);
                    self.kept.lock().connections.push((Arc::clone(&connection), now));
                    tokio::spawn(close_when_idle(Arc::downgrade(self)));
                    drop(login);
                    return Ok(connection);
                }
            }
        }
    }

    /// Waits for a free slot on an open connection while conversations are ending; `None` once none is ending.
    async fn freed(&self) -> Option<Arc<SharedConnection>> {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(connection) = self.kept() {
                return Some(connection);
            }
            if self.ending.load(Ordering::Acquire) == 0 {
                return None;
            }
            freed.await;
        }
    }

    /// Chooses the next step. `failures` is the count when the caller arrived. After a failed login, all callers that
    /// waited for it log in immediately, not one after the other.
    fn next(&self, failures: u64) -> Next<'_> {
        let mut kept = self.kept.lock();
        if let Some(connection) = self.take(&mut kept) {
            return Next::Take(connection);
        }
        // Each login in progress will provide a slot for its own caller and for further callers.
        if kept.failures == failures && kept.waiting < kept.logins * (self.room() - 1) {
            kept.waiting += 1;
            Next::Wait(self.ended.notified(), Waiter(self))
        } else {
            kept.logins += 1;
            Next::LogIn(Login { lane: self, has_succeeded: false })
        }
    }

    /// Records that the server allows no further conversation on this connection. Returns whether the connection has or
    /// had any conversation, because other callers may have used it before the caller that logged in. A connection
    /// without conversations is closed.
    pub(super) fn set_full(&self, connection: &Arc<SharedConnection>) -> bool {
        // The list and the caller have one reference each.
        let others = Arc::strong_count(connection).saturating_sub(2);
        self.room.fetch_min(others.max(1), Ordering::Relaxed);
        if others == 0 {
            connection.spend();
        }
        others > 0 || connection.has_served.load(Ordering::Acquire)
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    /// Returns the connection with the fewest free slots, so that others become idle. Drops unusable connections.
    fn take(&self, kept: &mut Kept) -> Option<Arc<SharedConnection>> {
        let now = Instant::now();
        kept.connections.retain(|(connection, _)| connection.is_usable(now));
        // The list has one reference.
        let users = |connection: &Arc<SharedConnection>| Arc::strong_count(connection) - 1;
        let with_room = kept.connections.iter_mut().filter(|(connection, _)| users(connection) < self.room());
        let (connection, used) = with_room.max_by_key(|(connection, _)| users(connection))?;
        *used = now;
        Some(Arc::clone(connection))
    }
}

/// Closes idle connections of the lane while it has any.
async fn close_when_idle(lane: Weak<Lane>) {
    loop {
        let Some(idle) = lane.upgrade().map(|lane| lane.idle) else { return };
        tokio::time::sleep(idle / 4).await;
        let Some(lane) = lane.upgrade() else { return };
        let now = Instant::now();
        let mut kept = lane.kept.lock();
        kept.connections.retain(|(connection, used)| {
            let is_used = Arc::strong_count(connection) > 1 || now.saturating_duration_since(*used) < idle;
            is_used && connection.is_usable(now)
        });
        if kept.connections.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use super::*;

    #[tokio::test]
    async fn callers_that_wait_for_a_login_do_not_wake_each_other() {
        let lane = Arc::new(Lane::new(Arc::default(), Duration::from_secs(1)));
        let polls = Arc::new(AtomicUsize::new(0));
        let caller = || {
            let (lane, polls) = (Arc::clone(&lane), Arc::clone(&polls));
            tokio::spawn(async move {
                let mut connecting = pin!(lane.connect(pending()));
                poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    connecting.as_mut().poll(cx).map(drop)
                })
                .await;
            })
        };
        let callers = (0..5).map(|_| caller()).collect::<Vec<_>>();
        let settle = async || {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            polls.load(Ordering::Relaxed)
        };
        assert_eq!(settle().await, 5);
        callers[1].abort();
        assert_eq!(settle().await, 5, "the other ones that wait have no reason to look");
        // After the aborted login, all callers log in themselves.
        callers[0].abort();
        assert_eq!(settle().await, 8);
    }
}
