//! The times within which a change must end.

use std::time::Duration;

/// Duration of a Lease: others leave the share of a dead agent alone for this time.
const LEASE: Duration = Duration::from_secs(15);
/// Time that a new agent may take until it protects a share: to get the Lease, and to read its objects.
const START: Duration = Duration::from_secs(5);
/// Further time for each GitSync of the share.
const START_EACH: Duration = Duration::from_millis(5);

/// The bounds of the time of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// From the change, while the agents that are responsible for the object run.
    pub runs: Duration,
    /// From the death of an agent that was responsible for the object.
    pub died: Duration,
}

impl Bounds {
    /// Returns the bounds for agents with this many GitSyncs each.
    pub(super) fn of(share: usize) -> Self {
        let start = START + START_EACH.saturating_mul(u32::try_from(share).unwrap_or(u32::MAX));
        Self { runs: LEASE, died: LEASE + start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_after_a_death_includes_a_start() {
        let bounds = Bounds::of(300);
        assert_eq!((bounds.runs.as_secs_f64(), bounds.died.as_secs_f64()), (15.0, 21.5));
    }
}
