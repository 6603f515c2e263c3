//! The cluster that has the objects of a GitSync.
//!
//! Invariant: an object of a remote cluster has no link. Its page would show an object of the same name in this cluster.

use serde_json::Value;

/// The cluster that has the objects of a GitSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectsCluster {
    /// The cluster of the page.
    This,
    /// The cluster in `spec.kubeConfig`.
    Remote,
}

impl ObjectsCluster {
    /// Returns the cluster of the objects of a GitSync.
    pub(crate) fn of(git_sync: &Value) -> Self {
        let is_remote = git_sync.pointer("/spec/kubeConfig").is_some_and(|config| !config.is_null());
        if is_remote { Self::Remote } else { Self::This }
    }
}
