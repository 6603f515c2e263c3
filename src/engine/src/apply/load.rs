//! Server load as shown by the response to a write or dry run.

use std::time::{Duration, Instant};

use mainstay_cluster::{Cause, Error};

/// Server load as shown by a revert or an audit.
#[derive(Clone, Copy, Debug)]
pub enum ServerLoad {
    /// A write succeeded.
    Answered {
        /// When the write was sent.
        sent: Instant,
        /// Reverts in flight at that time, including this one.
        in_flight: usize,
        /// When the response arrived.
        at: Instant,
    },
    /// The server is overloaded.
    Overloaded {
        /// When the first request was sent.
        sent: Instant,
        /// The `Retry-After` of the response.
        retry_after: Option<Duration>,
    },
}

/// Whether a request failed because of overload. A 500 is a sign of overload only at the first failure of an object
/// (`again` is false).
pub(super) fn is_overloaded(error: &Error, again: bool) -> bool {
    match error.code() {
        Some(code) => code == 429 || code > 500 || (code == 500 && !again),
        None => matches!(&*error.cause, Cause::TimedOut(_)),
    }
}
