//! The parts of the agent that notifications need.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

use crate::agent::notify::Notifier;
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::Secrets;
use mainstay_git::Source;

/// Maximum number of Providers, and of Alerts, in a namespace.
pub(super) const MOST: usize = 50;

/// The parts of the agent that notifications need.
pub(in crate::agent) struct Context {
    pub(in crate::agent) cluster: Cluster,
    pub(in crate::agent) secrets: Arc<Secrets>,
    pub(in crate::agent) source: Source,
    pub(in crate::agent) notifier: Notifier,
    /// The namespaces whose Alerts may select objects of other namespaces.
    pub(in crate::agent) trusted: BTreeSet<String>,
    /// Whether this agent leads. Only the leader writes the statuses.
    pub(in crate::agent) leads: watch::Receiver<bool>,
}
