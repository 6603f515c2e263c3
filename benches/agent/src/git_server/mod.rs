//! Git servers on loopback that count requests, over HTTP and SSH.
//!
//! Shared parts: a listener that ends with its server, the counters, and a reader that counts bytes.

mod http;
mod ssh;

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpListener,
    task::JoinHandle,
};

use super::{Error, process, stand};

pub(super) use http::HttpServer;
pub(super) use ssh::SshServer;

/// Requests and bytes since the start of a server. HTTP does not count connections and commands; SSH does not count
/// lookups and fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Connections.
    pub connections: u64,
    /// Reference lookups.
    pub lookups: u64,
    /// Object requests.
    pub fetches: u64,
    /// Executions of `git-upload-pack`.
    pub commands: u64,
    /// Sent bytes: bodies over HTTP, all bytes over SSH.
    pub bytes: u64,
}

impl Counts {
    /// Returns the difference to `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            connections: self.connections - earlier.connections,
            lookups: self.lookups - earlier.lookups,
            fetches: self.fetches - earlier.fetches,
            commands: self.commands - earlier.commands,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let (lookups, fetches) = (plural(self.lookups, "lookup", "lookups"), plural(self.fetches, "fetch", "fetches"));
        write!(f, "{lookups} and {fetches} at the Git server")
    }
}

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    lookups: AtomicU64,
    fetches: AtomicU64,
    bytes: AtomicU64,
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A listener on a free port, served until this is dropped.
struct Listening {
    address: SocketAddr,
    counters: Arc<Counters>,
    serving: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Listening {
    async fn start<F>(serve: impl FnOnce(TcpListener, Arc<Counters>) -> F) -> Result<Self, Error>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let address = listener.local_addr().map_err(Error::Start)?;
        let counters = Arc::new(Counters::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&counters)));
        Ok(Self { address, counters, serving })
    }

    /// Returns the counts, without commands.
    fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            connections: read(&self.counters.connections),
            lookups: read(&self.counters.lookups),
            fetches: read(&self.counters.fetches),
            commands: 0,
            bytes: read(&self.counters.bytes),
        }
    }
}

/// A reader that counts bytes.
struct CountedReader<R> {
    reader: R,
    counters: Arc<Counters>,
}

impl<R: AsyncRead + Unpin> AsyncRead for CountedReader<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.reader).poll_read(cx, buffer))?;
        let length = buffer.filled().len() - before;
        self.counters.bytes.fetch_add(length as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}
