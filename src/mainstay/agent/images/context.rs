//! The parts of the agent that the kinds of images need.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::choices::Choices;
use super::scans::Scans;
use crate::agent::notify::Notifier;
use crate::agent::own_tasks::{Followed, Parts};
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::Secrets;
use mainstay_git::{Repositories, Source};

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
    listed: watch::Sender<BTreeSet<Arc<str>>>,
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

    /// Records that all objects of a kind were seen.
    pub(super) fn set_listed<S: Followed>(&self) {
        self.listed.send_if_modified(|listed| listed.insert(S::kind().kind));
    }

    /// Waits until all objects of a kind were seen. Returns false if the feed of the waiting task was closed.
    pub(super) async fn are_listed<S: Followed, I>(&self, input: &mut watch::Receiver<I>) -> bool {
        let (mut listed, kind) = (self.listed.subscribe(), S::kind().kind);
        loop {
            tokio::select! {
                known = listed.wait_for(|listed| listed.contains(&kind)) => return known.is_ok(),
                changed = input.changed() => if changed.is_err() { return false },
            }
        }
    }
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
