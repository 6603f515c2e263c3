//! Turns of requests: a bounded number is in flight, and the others wait in order.
//!
//! Invariant: at most [`IN_FLIGHT`] requests are in flight, in addition to slow and urgent ones.

use std::time::Duration;

use tokio::sync::Semaphore;

/// Maximum number of requests in flight, without watches and urgent requests. Each request takes a connection, which
/// costs the agent about 70 KiB with TLS. Otherwise thousands of GitSyncs that follow one commit would open thousands
/// of connections.
pub(super) const IN_FLIGHT: usize = 64;
/// Time after which a request in flight is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Whether a request waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The request waits.
    Waits,
    /// The request is sent immediately. The caller limits the number of such requests.
    AtOnce,
}

/// The slots for requests in flight.
#[derive(Debug)]
pub(super) struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(IN_FLIGHT))
    }
}

impl Turns {
    /// Runs a request once there is a free slot. A slow request gives up its slot, so that a slow webhook for one kind
    /// does not block the others.
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
