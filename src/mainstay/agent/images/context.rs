//! The parts of the agent that the kinds of images need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::choices::Choices;
use super::scans::Scans;
use crate::agent::notify::Notifier;
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::Secrets;
use mainstay_git::{Repositories, Source};

/// Maximum number of objects of a kind in a namespace.
pub(super) const MOST: usize = 50;
/// A wait that ends by a change.
pub(super) const FAR: Duration = Duration::from_secs(86_400);
/// Maximum wait after a failure.
pub(super) const AGAIN: Duration = Duration::from_secs(60);

/// The parts of the agent that the kinds of images need.
pub(in crate::agent) struct Context {
    pub(in crate::agent) cluster: Cluster,
    pub(in crate::agent) secrets: Arc<Secrets>,
    pub(in crate::agent) source: Source,
    pub(in crate::agent) repositories: Arc<Repositories>,
    pub(in crate::agent) notifier: Notifier,
    /// The tags of ImageRepositories.
    pub(super) scans: Scans,
    /// The choices of ImagePolicies.
    pub(super) choices: Choices,
    /// The kinds whose objects were all seen.
    pub(super) listed: watch::Sender<BTreeSet<&'static str>>,
}

impl Context {
    pub(in crate::agent) fn new(
        cluster: Cluster,
        secrets: Arc<Secrets>,
        (source, repositories): (Source, Arc<Repositories>),
        notifier: Notifier,
    ) -> Self {
        Self {
            cluster,
            secrets,
            source,
            repositories,
            notifier,
            scans: Scans::default(),
            choices: Choices::default(),
            listed: watch::Sender::default(),
        }
    }
}
