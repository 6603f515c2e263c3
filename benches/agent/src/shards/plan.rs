//! The parameters of the measurement.

use std::{path::PathBuf, time::Duration};

use super::deaths::Deaths;

/// The parameters.
pub(crate) struct Plan {
    /// Kubeconfig of another cluster; `None` for an embedded one.
    pub kubeconfig: Option<PathBuf>,
    /// The audit log of the API server, if there is one.
    pub audit: Option<PathBuf>,
    /// Number of agents.
    pub shards: u8,
    /// Number of GitSyncs.
    pub syncs: usize,
    /// Memory of each agent; its default when not given.
    pub memory: Option<String>,
    /// The parts of agents that are killed.
    pub deaths: Deaths,
    /// Time for which agents are killed.
    pub length: Duration,
}
