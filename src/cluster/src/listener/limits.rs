//! Limits of a listener's clients.

use std::time::Duration;

/// Limits of a listener's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections.
    pub connections: usize,
    /// Number of spare connections for new clients while each other one is busy with a request. A spare connection carries
    /// one request; see [`is_spare`](super::is_spare).
    pub spare: usize,
    /// Timeout for the head of a request; `kept` applies if it is longer.
    pub head: Duration,
    /// Maximum time of a connection including its first request, and of each further request.
    pub whole: Duration,
    /// Time for which a connection is kept open for another request, and in which the client has to read 64 KiB of the buffered
    /// end of a response, for at most ten minutes; `None` closes the connection after one request.
    pub kept: Option<Duration>,
    /// Timeout without a byte in either direction during a request; `None` for no such timeout.
    pub idle: Option<Duration>,
    /// Time that requests in flight have after the stop.
    pub farewell: Duration,
}

impl Limits {
    /// Returns the limits of a spare connection: one request, for twice the time of its head.
    pub(super) fn of_spare(self) -> Self {
        Self { kept: None, whole: self.head * 2, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            spare: 0,
            head: Duration::from_secs(5),
            whole: Duration::from_secs(30),
            kept: None,
            idle: Some(Duration::from_secs(60)),
            farewell: Duration::from_secs(5),
        }
    }
}
