//! Connections that are kept: one login serves many lookups and fetches, one after the other and at once.
//!
//! Invariant: a connection is shared only by remotes with the same host, port, user, key, known host keys and proxy.
//! Invariant: a connection ends with the last remote that may use it, when nobody used it for a while, at
//! the age of [`AGE`] (a key that was withdrawn does not let in for longer), and when the known host keys change.
//! Invariant: a connection with a conversation that was broken off carries no further one.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::Connection;
use crate::error::Fault;

/// Conversations on a connection at the same time: OpenSSH allows ten unless its operator says otherwise.
const CHANNELS: usize = 8;
/// How long a caller waits for a conversation that is ending, rather than log in. Ending takes a server some milliseconds, or
/// seconds while it is busy, when a login is the last thing that it needs.
const ENDING: Duration = Duration::from_secs(5);
/// The age at which a connection is replaced.
const AGE: Duration = Duration::from_secs(300);

/// Where a remote keeps its lane.
pub(crate) type LanePlace = Arc<Mutex<Option<Arc<Lane>>>>;

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    /// By the digest of what their connections are made with.
    known: Mutex<HashMap<[u8; 32], Weak<Lane>>>,
    logins: Arc<AtomicU64>,
    idle: Duration,
}

/// The connections that are made with the same things.
#[derive(Debug)]
pub(crate) struct Lane {
    kept: Mutex<Kept>,
    /// A login has ended, well or badly.
    ended: Notify,
    /// A conversation that was ending has ended.
    freed: Notify,
    /// Conversations that are ending.
    ending: AtomicUsize,
    /// Conversations that a connection carries at the same time.
    room: AtomicUsize,
    logins: Arc<AtomicU64>,
    idle: Duration,
}

#[derive(Debug, Default)]
struct Kept {
    connections: Vec<(Arc<SharedConnection>, Instant)>,
    /// Logins under way.
    logins: usize,
    /// Callers that wait for those.
    waiting: usize,
    /// Logins that failed.
    failures: u64,
}

/// A connection and its state.
#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) connection: Connection,
    since: Instant,
    spent: AtomicBool,
    /// A conversation on it has begun.
    has_served: AtomicBool,
    lane: Weak<Lane>,
}

impl SharedConnection {
    /// Carries no further conversation; it is closed with its last one.
    pub(super) fn spend(&self) {
        self.spent.store(true, Ordering::Relaxed);
        if let Some(lane) = self.lane.upgrade() {
            lane.kept.lock().connections.retain(|(kept, _)| !kept.spent.load(Ordering::Relaxed));
        }
    }

    /// A conversation on it has begun, so the server allows some.
    pub(super) fn serve(&self) {
        self.has_served.store(true, Ordering::Release);
    }

    /// A conversation on it is ending; `None` if nobody may use the connection any more.
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

/// A conversation that is ending, until it is dropped.
pub(super) struct Ending(Arc<Lane>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ending.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}

/// What a caller without a connection does.
enum Next<'l> {
    Take(Arc<SharedConnection>),
    Wait(tokio::sync::futures::Notified<'l>, Waiter<'l>),
    LogIn(Login<'l>),
}

/// A caller that waits, until it is dropped. That wakes nobody: the others would wake each other without end.
struct Waiter<'l>(&'l Lane);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.kept.lock().waiting -= 1;
    }
}

/// A login under way, until it is dropped. One that is broken off has failed, too.
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

    /// How many logins succeeded since the start.
    pub(super) fn logins(&self) -> u64 {
        self.logins.load(Ordering::Relaxed)
    }

    /// The lane with this digest, which the remote keeps in its place.
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

    /// Closes all connections, each with its last conversation.
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

    /// A kept connection with room, if there is one.
    pub(super) fn kept(&self) -> Option<Arc<SharedConnection>> {
        self.take(&mut self.kept.lock())
    }

    /// A connection that somebody else is making or has just made, or one made by `log_in`.
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

    /// A kept connection with room, as soon as conversations that are ending leave some; `None` once none is ending.
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

    /// `failures` are those until the caller came: whoever waited for a login that failed tries it at once, and not one
    /// after the other.
    fn next(&self, failures: u64) -> Next<'_> {
        let mut kept = self.kept.lock();
        if let Some(connection) = self.take(&mut kept) {
            return Next::Take(connection);
        }
        // Each login under way makes room for its caller and some more.
        if kept.failures == failures && kept.waiting < kept.logins * (self.room() - 1) {
            kept.waiting += 1;
            Next::Wait(self.ended.notified(), Waiter(self))
        } else {
            kept.logins += 1;
            Next::LogIn(Login { lane: self, has_succeeded: false })
        }
    }

    /// The server allows no more conversations on this connection than there are. Returns whether there are or were any:
    /// others may have begun theirs before whoever logged in. A connection that has none is of no use any more.
    pub(super) fn set_full(&self, connection: &Arc<SharedConnection>) -> bool {
        // One reference is the list's, one the caller's.
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

    /// The fullest connection with room, so that others become idle. Connections that carry no further conversation go.
    fn take(&self, kept: &mut Kept) -> Option<Arc<SharedConnection>> {
        let now = Instant::now();
        kept.connections.retain(|(connection, _)| connection.is_usable(now));
        // One reference is the list's.
        let users = |connection: &Arc<SharedConnection>| Arc::strong_count(connection) - 1;
        let with_room = kept.connections.iter_mut().filter(|(connection, _)| users(connection) < self.room());
        let (connection, used) = with_room.max_by_key(|(connection, _)| users(connection))?;
        *used = now;
        Some(Arc::clone(connection))
    }
}

/// Closes the lane's idle connections, as long as it has any.
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
        // With the login that is broken off, all of them try for themselves.
        callers[0].abort();
        assert_eq!(settle().await, 8);
    }
}
