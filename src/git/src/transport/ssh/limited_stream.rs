//! The stream of an SSH connection. It is closed when the connection is dropped, whatever its state. It limits the
//! bytes from an unauthenticated server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::error::Fault;

/// Maximum bytes from the server before authentication succeeds: host keys, algorithms and a banner.
const BEFORE_LOGIN: u64 = 128 << 10;

/// The number of bytes received, shared with the code that opened the connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Received(Arc<State>);

#[derive(Debug, Default)]
struct State {
    received: AtomicU64,
    is_in: AtomicBool,
    is_over: AtomicBool,
}

impl Received {
    /// Records that authentication succeeded. From then on, responses have their own limits.
    pub(super) fn set_authenticated(&self) {
        self.0.is_in.store(true, Ordering::Relaxed);
    }

    /// Returns the error if the limit was exceeded.
    pub(super) fn fault(&self) -> Option<Fault> {
        let is_over = self.0.is_over.load(Ordering::Relaxed);
        is_over.then_some(Fault::TooLarge {
            what: "the number of bytes that the server sends before authentication",
            limit: BEFORE_LOGIN,
        })
    }

    /// Counts received bytes. Returns whether they are within the limit.
    fn admits(&self, bytes: usize) -> bool {
        let before = self.0.received.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.0.is_in.load(Ordering::Relaxed) || before.saturating_add(bytes as u64) <= BEFORE_LOGIN {
            return true;
        }
        self.0.is_over.store(true, Ordering::Relaxed);
        false
    }
}

/// The stream.
pub(super) struct LimitedStream {
    stream: TcpStream,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    received: Received,
}

impl LimitedStream {
    pub(super) fn new(stream: TcpStream, stop: &CancellationToken, received: Received) -> Self {
        Self { stream, stopped: Box::pin(stop.clone().cancelled_owned()), received }
    }

    fn poll_stopped(&mut self, context: &mut Context<'_>) -> bool {
        self.stopped.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_stopped(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if !self.received.admits(into.filled().len() - before) {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        read
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.poll_stopped(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
