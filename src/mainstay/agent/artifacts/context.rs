//! The parts of the agent that artifacts need, and the kinds that name them.

use std::sync::Arc;

use crate::agent::notify::Notifier;
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::Secrets;
use mainstay_git::{Repositories, Source};

/// Maximum number of objects of a kind in a namespace.
pub(super) const MOST: usize = 50;

/// The parts of the agent that artifacts need.
pub(in crate::agent) struct Context {
    pub(in crate::agent) cluster: Cluster,
    pub(in crate::agent) secrets: Arc<Secrets>,
    pub(in crate::agent) source: Source,
    pub(in crate::agent) repositories: Arc<Repositories>,
    pub(in crate::agent) notifier: Notifier,
}
