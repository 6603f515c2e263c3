//! The durations of leader election.

use std::time::Duration;

/// The durations of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Lease duration: the time for which other candidates respect the Lease after its last change. Whole seconds.
    pub lease: Duration,
    /// Renew deadline: the time for which a leader continues without a renewal. Shorter than `lease`.
    pub deadline: Duration,
    /// Retry period: the interval of renewals by the holder and of reads by other candidates. Shorter than `deadline`.
    pub retry: Duration,
}

impl Default for Timing {
    /// Returns 15 s, 10 s and 2 s, as in Kubernetes' own controllers.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}
