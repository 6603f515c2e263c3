//! Reads the bodies of admission requests within a bounded memory.
//!
//! Invariant: a body takes memory as its bytes arrive, in steps. An announced length takes none. Invariant: all bodies
//! together take at most [`ROOM`] bytes, plus one list of objects. Invariant: the first step of each connection has its
//! own memory, so a review of one step never waits for others. Invariant: a body that is idle for [`IDLE`], takes longer
//! than [`WITHIN`], or waits longer than that for memory, fails and returns its memory.
//!
//! Not here: limits of a single body, which the server checks.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

/// Maximum number of connections. Each one sends one body at a time.
pub(super) const CONNECTIONS: usize = 64;
/// Maximum bytes of a body, except a list: two objects of etcd's maximum size, with space for escapes.
pub(super) const MAX_BODY: usize = 4 << 20;
/// Maximum bytes of all bodies together, except a list.
const ROOM: usize = 8 << 20;
/// Bytes by which the memory of a body grows.
const STEP: usize = 32 << 10;
/// Number of further steps that all bodies share. The rest is for the first steps, and for one whole body.
const SHARED: usize = (ROOM - CONNECTIONS * STEP - MAX_BODY) / STEP;
/// Maximum time between two pieces of a body.
const IDLE: Duration = Duration::from_secs(1);
/// Maximum time for a body, and for its wait for memory. The API server's timeout is 3 s for reviews and 30 s for conversions.
pub(super) const WITHIN: Duration = Duration::from_secs(2);

/// The memory for bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    shared: Semaphore,
    /// Memory for one whole body, and for one whole list.
    review: Semaphore,
    list: Semaphore,
}

/// A complete body. Its memory is reserved until this value is dropped.
#[derive(Debug, Default)]
pub(super) struct Received<'b> {
    bytes: Vec<u8>,
    /// The steps after the first one.
    steps: Vec<SemaphorePermit<'b>>,
    /// The memory for the whole body.
    whole: Option<SemaphorePermit<'b>>,
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The body did not arrive in time, or not as announced.
    Late,
    /// Other bodies took the memory for too long.
    NoMemory,
}

impl Default for Bodies {
    fn default() -> Self {
        Self { shared: Semaphore::new(SHARED), review: Semaphore::new(1), list: Semaphore::new(1) }
    }
}

impl<'b> Received<'b> {
    /// Returns the body.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the reserved bytes for a body of this length.
    fn reserved(&self, length: usize) -> usize {
        let steps = (1 + self.steps.len()) * STEP;
        if self.whole.is_some() { length } else { steps.min(length) }
    }

    /// Takes the memory for the whole body, and returns the steps to others.
    fn take_whole(&mut self, whole: SemaphorePermit<'b>) {
        self.whole = Some(whole);
        self.steps.clear();
    }
}

impl Bodies {
    /// Reads a body of this length.
    ///
    /// # Errors
    /// The body does not arrive in time, or has no memory in time.
    pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
        &self,
        body: &mut B,
        length: usize,
    ) -> Result<Received<'_>, Fault> {
        let (began, mut waited) = (Instant::now(), Duration::ZERO);
        let mut received = Received::default();
        loop {
            // The wait for memory is not the fault of the client.
            let until = (began + WITHIN + waited).min(Instant::now() + IDLE);
            let Some(frame) = timeout_at(until, body.frame()).await.map_err(|_| Fault::Late)? else {
                return Ok(received);
            };
            let Ok(data) = frame.map_err(|_| Fault::Late)?.into_data() else { continue };
            let needed = received.bytes.len() + data.len();
            if needed > length {
                return Err(Fault::Late);
            }
            let waits = Instant::now();
            let grown = timeout_at(waits + WITHIN.saturating_sub(waited), self.grow(&mut received, needed, length));
            grown.await.map_err(|_| Fault::NoMemory)??;
            waited += waits.elapsed();
            received.bytes.extend_from_slice(&data);
        }
    }

    /// Reserves memory for `needed` bytes of a body of this length.
    async fn grow<'b>(&'b self, received: &mut Received<'b>, needed: usize, length: usize) -> Result<(), Fault> {
        if length > MAX_BODY && received.reserved(length) < needed {
            // A list takes no memory from reviews.
            received.take_whole(self.list.acquire().await.map_err(|_| Fault::NoMemory)?);
        }
        while received.reserved(length) < needed {
            // Bodies may hold all steps and wait for more. One of them gets the memory for a whole body. It waits for
            // no more memory, and ends by its deadline. Then the next one gets it, so the wait is never circular.
            tokio::select! {
                biased;
                step = self.shared.acquire() => received.steps.push(step.map_err(|_| Fault::NoMemory)?),
                whole = self.review.acquire() => received.take_whole(whole.map_err(|_| Fault::NoMemory)?),
            }
        }
        let reserved = received.reserved(length);
        if received.bytes.capacity() < reserved {
            received.bytes.reserve_exact(reserved - received.bytes.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::future::join_all;
    use futures::stream::{self, BoxStream};
    use futures::{FutureExt as _, Stream, StreamExt as _};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// Bytes of a frame.
    const PIECE: usize = 16 << 10;

    type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

    /// Returns so many bytes in frames. Other bodies make progress between two frames.
    fn frames(size: usize) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static {
        stream::iter((0..size).step_by(PIECE)).then(move |at| async move {
            tokio::task::yield_now().await;
            Ok(Frame::data(Bytes::from(vec![b'x'; PIECE.min(size - at)])))
        })
    }

    /// Returns a body of so many bytes.
    fn complete(size: usize) -> Frames {
        StreamBody::new(frames(size).boxed())
    }

    /// Returns a body that is idle after so many bytes.
    fn idle(size: usize) -> Frames {
        StreamBody::new(frames(size).chain(stream::pending()).boxed())
    }

    /// Reads a complete body.
    async fn read(bodies: &Bodies, size: usize) -> Result<Received<'_>, Fault> {
        bodies.read(&mut complete(size), size).await
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_arrive_take_no_memory_from_others() {
        let bodies = Bodies::default();
        let mut silent: Vec<Frames> = (0..CONNECTIONS).map(|_| idle(0)).collect();
        let mut reads: Vec<_> = silent.iter_mut().map(|body| Box::pin(bodies.read(body, MAX_BODY))).collect();
        for read in &mut reads {
            assert!(read.as_mut().now_or_never().is_none());
        }
        assert_eq!(read(&bodies, MAX_BODY).await.map(|received| received.bytes().len()), Ok(MAX_BODY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_becomes_idle_fails_and_returns_its_memory() {
        let bodies = Bodies::default();
        assert_eq!(bodies.read(&mut idle(3 * STEP), MAX_BODY).await.map(drop), Err(Fault::Late));
        assert_eq!(bodies.read(&mut idle(MAX_BODY - 1), MAX_BODY).await.map(drop), Err(Fault::Late));
        assert_eq!((bodies.shared.available_permits(), bodies.review.available_permits()), (SHARED, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_hold_all_memory_and_need_more_end_one_after_the_other() {
        let bodies = Bodies::default();
        let ended = join_all((0..CONNECTIONS).map(|_| read(&bodies, MAX_BODY / 2).map(|ended| ended.map(drop)))).await;
        assert_eq!(ended, vec![Ok(()); CONNECTIONS]);
        assert_eq!((bodies.shared.available_permits(), bodies.review.available_permits()), (SHARED, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_cannot_grow_fails_while_others_are_read() {
        let bodies = Bodies::default();
        let whole = read(&bodies, MAX_BODY).await.unwrap();
        let shared = read(&bodies, (1 + SHARED) * STEP).await.unwrap();
        assert!(whole.whole.is_some() && shared.whole.is_none());
        assert_eq!(read(&bodies, MAX_BODY).await.map(drop), Err(Fault::NoMemory));
        assert!(read(&bodies, STEP).await.is_ok(), "a small review");
        assert!(read(&bodies, 2 * MAX_BODY).await.is_ok(), "a list");
        drop(whole);
        assert!(read(&bodies, MAX_BODY).await.is_ok());
        drop(shared);
        assert_eq!((bodies.shared.available_permits(), bodies.review.available_permits()), (SHARED, 1));
    }
}
