//! Where, and with how much memory, the agent is measured.

use std::path::PathBuf;

/// Where, and with how much memory, the agent is measured.
pub(crate) struct Place {
    /// Kubeconfig of another cluster; `None` for an embedded one.
    pub kubeconfig: Option<PathBuf>,
    /// Memory of the agent; `None` for its default.
    pub memory: Option<String>,
}
