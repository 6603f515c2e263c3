//! The parameters of the measurement, and the promised times.

use std::time::Duration;

/// Promised time until a process is ready after it was started again.
pub(super) const RECOVERY: Duration = Duration::from_mins(2);
/// Promised time after the last event until each is delivered or a dead letter.
pub(super) const SETTLED: Duration = Duration::from_mins(5);
/// Time for all that is not planned: a slow machine is no error.
const SLACK: Duration = Duration::from_mins(11);
/// Planned time of a kill, with the time until the servers of NATS are healthy again.
const KILL: Duration = Duration::from_secs(20);

/// The parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Minimum number of accepted events.
    pub events: u32,
    /// Number of kills.
    pub kills: u32,
    /// Number of events per second.
    pub rate: u32,
    /// Seed of the kills.
    pub seed: u64,
}

impl Plan {
    /// Returns the time after which the measurement ends, with the findings so far.
    pub(super) fn longest(self) -> Duration {
        SLACK + KILL * self.kills + Duration::from_secs(1) * self.events / self.rate
    }
}
