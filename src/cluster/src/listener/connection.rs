//! The state of a connection: whether a request is in flight, and its deadline.
//!
//! Invariant: a connection waits for a request, [receives](super::receive) its body, or is busy until the last byte of
//! the response is passed on. A new client may replace it in the first two of these phases, while it waits for its client.
//! Invariant: a client that does not read the end of a response loses its connection, and with it the memory of the response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::silent::{Entry, Silent};

/// Number of bytes of a response that a client has to read in the time for which a connection is kept.
const PROGRESS: usize = 64 << 10;
/// Maximum time in which a client has to read the end of a response.
pub(super) const LONGEST_READ: Duration = Duration::from_secs(600);

pub(super) struct Connection {
    limits: Limits,
    silent: Arc<Silent>,
    end: CancellationToken,
    state: Mutex<State>,
    /// Fires when the deadline may be earlier than before.
    changed: Notify,
}

/// The phase of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It waits for the head of a request.
    Waits,
    /// It receives the body of a request, and the handler waits for it.
    Receives,
    /// A part of the body has arrived, and the handler does not wait for more of it yet.
    Pauses,
    /// A request is in flight.
    Busy,
}

struct State {
    /// The entry of the connection among those that a new client may replace: suspended while it pauses, and `None` while
    /// it is busy.
    entry: Option<Entry>,
    phase: Phase,
    deadline: Instant,
    /// The time of the last byte in either direction.
    moved: Instant,
    /// The responses whose end may still be in buffers.
    unread: Option<Unread>,
}

/// Responses that the client reads.
struct Unread {
    /// The bytes that were sent since the deadline was set.
    sent: usize,
    /// The end of the time of the first one.
    latest: Instant,
}

impl Connection {
    pub(super) fn new(limits: Limits, entry: Entry, end: CancellationToken) -> Arc<Self> {
        let (silent, now) = (Arc::clone(&entry.all), Instant::now());
        // A connection that is kept has this time for its first request, too.
        let first = limits.kept.map_or(limits.whole, |kept| kept.max(limits.head));
        let state = State { entry: Some(entry), phase: Phase::Waits, deadline: now + first, moved: now, unread: None };
        Arc::new(Self { limits, silent, end, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Records that the head of a request is complete.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Busy;
        // A further request does not extend the time of an earlier response.
        let deadline = Instant::now() + self.limits.whole;
        state.deadline = state.unread.as_ref().map_or(deadline, |unread| unread.latest.min(deadline));
        drop(state.entry.take());
        self.changed.notify_one();
    }

    /// Records that the handler waits for the body of the request.
    pub(super) fn receives(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Receives;
        state.entry = Some(self.silent.enter(self.end.clone()));
        self.changed.notify_one();
    }

    /// Records that a part of the body has arrived. The handler may wait for memory before it takes more.
    pub(super) fn pauses(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Receives {
            state.phase = Phase::Pauses;
            if let Some(entry) = &state.entry {
                entry.suspend();
            }
        }
    }

    /// Records that the handler waits for more of the body. The order of the connections stays, so that a client that
    /// sends byte by byte is replaced before later ones.
    pub(super) fn receives_more(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Pauses {
            state.phase = Phase::Receives;
            // A connection that gives way already does not give way to another client.
            if let Some(entry) = state.entry.as_ref().filter(|_| !self.end.is_cancelled()) {
                entry.resume(self.end.clone());
            }
        }
    }

    /// Records that the body of the request is complete, or that the handler does not wait for it any more.
    pub(super) fn received(&self) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Receives | Phase::Pauses) {
            state.phase = Phase::Busy;
            drop(state.entry.take());
        }
    }

    /// Records that the response is passed on or was cancelled. Its last bytes may still be in buffers: the client has to
    /// read some of them in each interval for which the connection is kept.
    fn answered(&self) {
        if let Some(kept) = self.limits.kept {
            let (mut state, now) = (self.state.lock(), Instant::now());
            state.entry = Some(self.silent.enter(self.end.clone()));
            let latest = state.unread.take().map_or(now + kept.max(LONGEST_READ), |unread| unread.latest);
            state.deadline = latest.min(now + kept.max(self.limits.head));
            state.unread = Some(Unread { sent: 0, latest });
            state.phase = Phase::Waits;
            self.changed.notify_one();
        }
    }

    /// Records that the last response is written, and that the client may still be sending. The connection may be
    /// replaced by a new client.
    pub(super) fn drains(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Waits;
        drop(state.entry.take());
        state.entry = Some(self.silent.enter(self.end.clone()));
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Busy | Phase::Pauses)
    }

    /// The deadline in the current state.
    fn until(&self) -> Instant {
        let state = self.state.lock();
        let idle = self.limits.idle.filter(|_| state.phase != Phase::Waits).map(|idle| state.moved + idle);
        idle.map_or(state.deadline, |idle| idle.min(state.deadline))
    }

    /// Waits until the connection or a request exceeds its limit.
    pub(super) async fn late(&self) {
        loop {
            let until = self.until();
            if until <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    fn moved(&self) {
        self.state.lock().moved = Instant::now();
    }

    /// Records that all bytes of responses so far are written.
    fn flushed(&self) {
        let mut state = self.state.lock();
        if state.unread.take().is_some() && state.phase != Phase::Waits {
            state.deadline = Instant::now() + self.limits.whole;
        }
    }

    /// Records bytes of a response.
    fn sent(&self, bytes: usize) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.moved = now;
        let State { unread, deadline, .. } = &mut *state;
        let (Some(unread), Some(kept)) = (unread, self.limits.kept) else { return };
        unread.sent += bytes;
        if unread.sent >= PROGRESS {
            unread.sent = 0;
            *deadline = (now + kept.max(self.limits.head)).min(unread.latest);
        }
    }
}

/// A stream that reports its progress to its connection.
pub(super) struct Moving<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<Connection>,
}

impl<S> Moving<S> {
    fn written(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes @ 1..)) = &polled {
            self.connection.sent(*bytes);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if polled.is_ready() && buffer.filled().len() > before {
            self.connection.moved();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.written(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.connection.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of a response. The connection is busy until the body is dropped.
pub(super) struct Answered<B> {
    body: Pin<Box<B>>,
    connection: Arc<Connection>,
}

impl<B> Answered<B> {
    pub(super) fn new(body: B, connection: Arc<Connection>) -> Self {
        Self { body: Box::pin(body), connection }
    }
}

impl<B> Drop for Answered<B> {
    fn drop(&mut self) {
        self.connection.answered();
    }
}

impl<B: Body> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const KEPT: Duration = Duration::from_secs(60);

    /// Returns a connection whose response is passed on.
    fn answered() -> Arc<Connection> {
        let (silent, end) = (Arc::<Silent>::default(), CancellationToken::new());
        let limits = Limits { kept: Some(KEPT), whole: LONGEST_READ * 10, ..Limits::default() };
        let connection = Connection::new(limits, silent.enter(end.clone()), end);
        connection.begin();
        connection.answered();
        connection
    }

    fn is_late(connection: &Connection) -> bool {
        connection.late().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_steadily_has_ten_minutes() {
        let (connection, begun) = (answered(), Instant::now());
        while !is_late(&connection) {
            tokio::time::advance(KEPT / 2).await;
            connection.sent(PROGRESS / 2);
            connection.sent(PROGRESS / 2);
        }
        assert_eq!(begun.elapsed(), LONGEST_READ);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_hardly_reads_has_the_time_of_an_idle_one() {
        let (connection, begun) = (answered(), Instant::now());
        while !is_late(&connection) {
            tokio::time::advance(KEPT / 10).await;
            connection.sent(PROGRESS / 20);
        }
        assert_eq!(begun.elapsed(), KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn further_requests_do_not_extend_the_time_of_a_response() {
        let (connection, begun) = (answered(), Instant::now());
        while !is_late(&connection) {
            tokio::time::advance(KEPT / 2).await;
            connection.begin();
            connection.answered();
        }
        assert_eq!(begun.elapsed(), LONGEST_READ);
        let connection = answered();
        for _ in 0..30 {
            connection.flushed();
            tokio::time::advance(KEPT / 2).await;
            connection.begin();
            connection.answered();
            assert!(!is_late(&connection), "the client reads each response");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_pauses_gives_way_to_no_client_and_keeps_its_order() {
        let silent = Arc::<Silent>::default();
        let [first, second] = [(); 2].map(|()| {
            let end = CancellationToken::new();
            let connection = Connection::new(Limits::default(), silent.enter(end.clone()), end);
            connection.begin();
            connection.receives();
            connection
        });
        let order = || silent.connections.lock().keys().copied().collect::<Vec<_>>();
        let both = order();
        assert_eq!(both.len(), 2);
        first.pauses();
        assert_eq!(order(), both[1..]);
        assert!(first.is_busy() && !second.is_busy());
        first.receives_more();
        assert_eq!((order(), first.is_busy()), (both.clone(), false));
        second.pauses();
        second.received();
        second.receives_more();
        assert_eq!(order(), both[..1], "the body is complete");
        first.pauses();
        first.end.cancel();
        first.receives_more();
        assert!(order().is_empty(), "it has given way already");
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_has_a_limited_time_for_its_first_request() {
        let (silent, end) = (Arc::<Silent>::default(), CancellationToken::new());
        let limits = Limits { kept: Some(KEPT), whole: LONGEST_READ * 10, ..Limits::default() };
        let connection = Connection::new(limits, silent.enter(end.clone()), end);
        assert!(!is_late(&connection));
        tokio::time::advance(KEPT).await;
        assert!(is_late(&connection));
    }
}
