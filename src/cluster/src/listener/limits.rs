//! The limits of a listener's clients.

use std::time::Duration;

/// The limits of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Until the head of a request is complete; as long as `kept` where that is longer.
    pub head: Duration,
    /// From the beginning of a connection, or of a further request, to its end.
    pub whole: Duration,
    /// How long a connection waits for another request; `None` for one request only.
    pub kept: Option<Duration>,
    /// How long nothing of a request may come, and nothing of its answer may go; `None` for as long as `whole`.
    pub idle: Option<Duration>,
    /// How long a request that has begun may go on after the end.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            head: Duration::from_secs(5),
            whole: Duration::from_secs(30),
            kept: None,
            idle: Some(Duration::from_secs(60)),
            farewell: Duration::from_secs(5),
        }
    }
}
