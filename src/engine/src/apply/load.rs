//! What a write, or a dry run, says about the server: how fast it answers, and whether it has too much to do.

use std::time::{Duration, Instant};

use mainstay_cluster::{Cause, Error};

/// What a revert or an audit says about the server.
#[derive(Clone, Copy, Debug)]
pub enum ServerLoad {
    /// A write was answered as it should be.
    Answered {
        /// When it was sent.
        sent: Instant,
        /// How many reverts were in flight then, this one among them.
        in_flight: usize,
        /// When it was answered.
        at: Instant,
    },
    /// The server has too much to do.
    Overloaded {
        /// When the first request was sent.
        sent: Instant,
        /// For how long the server wants to be left alone, if it says so.
        retry_after: Option<Duration>,
    },
}

/// Whether a request failed because the server has too much to do. `again`: that the object is refused is nothing new.
pub(super) fn is_overloaded(error: &Error, again: bool) -> bool {
    match error.code() {
        Some(code) => code == 429 || code > 500 || (code == 500 && !again),
        None => matches!(&*error.cause, Cause::TimedOut(_)),
    }
}
