//! Turns of requests: a bounded number is in flight, and the others wait in order.
//!
//! Invariant: at most [`IN_FLIGHT`] requests are in flight, in addition to slow and urgent ones.

use std::time::Duration;

use tokio::sync::Semaphore;

/// Maximum number of requests in flight, without watches and urgent requests. Each takes a connection, which costs the
/// agent about 70 KiB with TLS. Thousands of GitSyncs that follow one commit would otherwise open thousands.
pub(super) const IN_FLIGHT: usize = 64;
/// Time after which a request in flight is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Whether a request waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The request waits.
    Waits,
    /// The request is sent at once. Its caller limits the number.
    AtOnce,
}

/// The places for requests in flight.
#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(IN_FLIGHT))
    }
}

impl Turns {
    /// Runs a request once it has a place. A request that becomes slow gives its place up, so that a slow webhook of
    /// one kind does not block the others.
    pub(super) async fn run<T>(&self, turn: Turn, mut request: impl Future<Output = T> + Unpin) -> T {
        let place = match turn {
            // The semaphore is never closed.
            Turn::Waits => self.0.acquire().await.ok(),
            Turn::AtOnce => None,
        };
        if place.is_some()
            && let Ok(answer) = tokio::time::timeout(SLOW, &mut request).await
        {
            return answer;
        }
        drop(place);
        request.await
    }
}
