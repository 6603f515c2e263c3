//! The parts of the agent that artifacts need, and the kinds that name them.

use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::notify::Notifier;
use crate::agent::own_tasks::Parts;
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::Secrets;
use mainstay_git::{Repositories, Source};

/// The parts of the agent that artifacts need.
pub(in crate::agent) struct Context {
    pub(in crate::agent) cluster: Cluster,
    pub(in crate::agent) secrets: Arc<Secrets>,
    pub(in crate::agent) source: Source,
    pub(in crate::agent) repositories: Arc<Repositories>,
    pub(in crate::agent) notifier: Notifier,
    /// Whether this agent leads. Only the leader writes the statuses.
    pub(in crate::agent) leads: watch::Receiver<bool>,
}

impl Parts for Context {
    fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn notifier(&self) -> &Notifier {
        &self.notifier
    }
}
