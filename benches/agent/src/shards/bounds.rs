//! The times within which a change must end.

use std::time::Duration;

use super::deaths::Lost;

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
    runs: Duration,
    /// From the death of an agent that was responsible for the object and whose container restarts. It takes its Lease
    /// immediately, so this time includes its start.
    restarted: Duration,
    /// From the death of an agent that was responsible for the object and whose pod is replaced.
    replaced: Duration,
}

impl Bounds {
    /// Returns the bounds for agents with this many GitSyncs each.
    pub(super) fn of(share: usize) -> Self {
        let start = START + START_EACH.saturating_mul(u32::try_from(share).unwrap_or(u32::MAX));
        Self { runs: LEASE, restarted: LEASE, replaced: LEASE + start }
    }

    /// Returns the bound after the death of this part; for `None`, the bound while each responsible agent runs.
    pub(super) fn after(self, lost: Option<Lost>) -> Duration {
        match lost {
            None => self.runs,
            Some(Lost::Container) => self.restarted,
            Some(Lost::Pod) => self.replaced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_after_the_death_of_a_pod_adds_a_start_to_the_lease() {
        let bounds = Bounds::of(300);
        for (lost, seconds) in [(None, 15.0), (Some(Lost::Container), 15.0), (Some(Lost::Pod), 21.5)] {
            assert_eq!(bounds.after(lost), Duration::from_secs_f64(seconds), "{lost:?}");
        }
    }
}
