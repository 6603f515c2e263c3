//! The state of one connection: whether a request is under way, and its deadline.
//!
//! Invariant: a connection waits for a request, or it is busy with one until the last byte of its answer was written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::limits::Limits;
use super::silent::{Entry, Silent};

/// A connection.
pub(super) struct Connection {
    limits: Limits,
    silent: Arc<Silent>,
    end: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// Its place among the silent connections, while no request is under way.
    entry: Option<Entry>,
    is_busy: bool,
    deadline: Instant,
    /// When a byte last came or went.
    moved: Instant,
}

impl Connection {
    pub(super) fn new(limits: Limits, entry: Entry, end: CancellationToken) -> Arc<Self> {
        let (silent, now) = (Arc::clone(&entry.all), Instant::now());
        let state = State { entry: Some(entry), is_busy: false, deadline: now + limits.whole, moved: now };
        Arc::new(Self { limits, silent, end, state: Mutex::new(state) })
    }

    /// The head of a request is there.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.is_busy = true;
        state.deadline = Instant::now() + self.limits.whole;
        drop(state.entry.take());
    }

    /// The answer is written, or the client has gone.
    fn answered(&self) {
        if let Some(kept) = self.limits.kept {
            let mut state = self.state.lock();
            state.entry = Some(self.silent.enter(self.end.clone()));
            state.deadline = Instant::now() + kept + self.limits.whole;
            state.is_busy = false;
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().is_busy
    }

    /// When it ends, as things are.
    fn until(&self) -> Instant {
        let state = self.state.lock();
        let idle = self.limits.idle.filter(|_| state.is_busy).map(|idle| state.moved + idle);
        idle.map_or(state.deadline, |idle| idle.min(state.deadline))
    }

    /// Waits until it has lasted too long, or a request of it has stood still for too long.
    pub(super) async fn late(&self) {
        loop {
            let until = self.until();
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }

    fn moved(&self) {
        self.state.lock().moved = Instant::now();
    }
}

/// A stream that tells its connection of each byte that comes or goes.
pub(super) struct Moving<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<Connection>,
}

impl<S> Moving<S> {
    fn seen<T>(&self, polled: Poll<T>, has_moved: impl FnOnce(&T) -> bool) -> Poll<T> {
        if let Poll::Ready(outcome) = &polled
            && has_moved(outcome)
        {
            self.connection.moved();
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Moving<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.seen(polled, |_| buffer.filled().len() > before)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Moving<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.seen(polled, |written| matches!(written, Ok(1..)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.seen(polled, |written| matches!(written, Ok(1..)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of an answer. Its connection is busy until it is dropped.
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
