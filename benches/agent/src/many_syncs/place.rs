//! Where, with how much memory, and with which load the agent is measured.

use std::path::PathBuf;

use super::load::Form;

/// Where, with how much memory, and with which load the agent is measured.
pub(crate) struct Place {
    /// Kubeconfig of another cluster; `None` for an embedded cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Memory of the agent; `None` for its default.
    pub memory: Option<String>,
    /// The form of the objects in the repository.
    pub form: Form,
}
