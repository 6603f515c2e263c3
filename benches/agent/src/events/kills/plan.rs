//! The parameters of the measurement.

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
