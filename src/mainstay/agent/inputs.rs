//! Watches GitSyncs, and runs a task for each.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::kept::{self, Labels, Name};
use super::notify::Notifier;
use super::share::Share;
use super::tasks::{COPIES, EACH, Input, Tasks, Work};
use mainstay_api::GitSync;
use mainstay_cluster::secrets::{Referrer, SecretReferences as _};
use mainstay_cluster::{Cluster, Kind};
use mainstay_engine::apply::Writer;
use mainstay_git::{Consumer, ConsumerKind};
use mainstay_gitsync::Context;
use mainstay_object::Owner;

/// Maximum wait for the GitRepositories before the first GitSync or Function is reconciled.
pub(super) const REPOSITORIES_WITHIN: Duration = Duration::from_secs(10);

/// Watches GitSyncs until `stop`, or until a task panics, and runs a task for each in the share of this agent. `known`
/// is set once they are listed.
pub(super) async fn syncs(
    context: Arc<Context>,
    notifier: Notifier,
    cluster: Cluster,
    mut repositories: watch::Receiver<bool>,
    (known, mut share): (watch::Sender<bool>, Option<Share>),
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let repositories_known = async {
        let _ = tokio::time::timeout(REPOSITORIES_WITHIN, repositories.wait_for(|known| *known)).await;
    };
    match &mut share {
        Some(share) => {
            context.share();
            // The other agents wait until this agent has published its set. They need not wait for its repositories.
            tokio::join!(repositories_known, share.begin());
        }
        None => repositories_known.await,
    }
    Tasks::new(Syncs { context, known }, notifier, JoinSet::new(), stop).sharing(share).run(&cluster).await
}

/// Expected number of objects of a new GitSync, and the expected memory of each object, in bytes.
const NEW: usize = 4;
const OBJECT: usize = 1280;
/// Minimum memory of a GitSync, in bytes. The status takes most of this memory.
const WITH_STATUS: usize = 4608;
/// Counted memory of a GitSync without its objects, in bytes.
#[cfg(test)]
pub(super) const COUNTED: usize = kept::counted(EACH, COPIES, WITH_STATUS);

struct Syncs {
    context: Arc<Context>,
    known: watch::Sender<bool>,
}

impl Work for Syncs {
    type Object = GitSync;

    fn kind(&self) -> Kind {
        Kind::of::<GitSync>()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::git_sync(namespace, name)
    }

    fn writer(&self) -> &Writer {
        &self.context.writer
    }

    /// Includes the memory of a status, which a new GitSync does not have yet.
    fn counted(&self, bytes: usize) -> usize {
        kept::counted(EACH, COPIES, bytes.max(WITH_STATUS))
    }

    /// Returns the memory of as many objects as the status counts, or of [`NEW`] objects if there is no count. The size
    /// of each object is a low estimate, so that the same GitSyncs fit after a restart.
    fn expected(&self, sync: &GitSync) -> usize {
        if sync.spec.suspend || sync.metadata.deletion_timestamp.is_some() {
            return 0;
        }
        let before = sync.status.as_ref().and_then(|status| usize::try_from(status.objects).ok());
        before.filter(|objects| *objects > 0).unwrap_or(NEW).saturating_mul(OBJECT)
    }

    /// The desired objects of a refused GitSync are unknown, so no object that it may manage is deleted.
    fn set_refused(&self, owner: &Owner, (namespace, name): &Name, is_there: bool) {
        if is_there {
            self.context.refuse(owner, namespace, name);
        } else {
            self.context.leave(owner);
        }
    }

    /// Labels are kept, because expressions of dependants read them.
    const LABELS: Labels = Labels::Kept;

    fn see(&self, (namespace, name): &Name, sync: Option<&GitSync>) {
        let references = sync.map(|sync| sync.spec.secret_references()).unwrap_or_default();
        self.context.secrets.set_references(namespace, (Referrer::GitSync, name), references);
    }

    /// Returns the memory of the object, once, with its row. The row is about as large as a small status.
    fn counted_of_other_agent(&self, bytes: usize) -> usize {
        kept::counted(0, 1, bytes.max(WITH_STATUS))
    }

    fn refuse_of_other_agent(&self, owner: &Owner, sync: Option<&GitSync>) {
        self.context.refuse_of_other_agent(owner, sync);
    }

    fn is_remote(&self, sync: &GitSync) -> bool {
        sync.spec.kube_config.is_some() || sync.status.as_ref().is_some_and(|status| status.cluster.is_some())
    }

    fn see_of_other_agent(&self, owner: &Owner, sync: Option<GitSync>) {
        match sync {
            Some(sync) => self.context.see_of_other_agent(owner, &Arc::new(sync)),
            None => self.context.forget_of_other_agent(owner),
        }
    }

    fn sources(&self) -> Option<watch::Receiver<u64>> {
        Some(self.context.repositories.listen())
    }

    fn see_sources_of_other_agents(&self) {
        self.context.see_sources_of_other_agents();
    }

    /// Called before any task starts.
    fn enter(&self, owner: &Owner, (namespace, name): &Name) {
        self.context.enter(owner, namespace, name);
        self.context.source.register(&Consumer::new(ConsumerKind::GitSync, namespace, name));
    }

    /// Returns the last state with a deletionTimestamp and without finalizers.
    fn deleted(&self, mut last: GitSync) -> Option<GitSync> {
        last.metadata.deletion_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
        last.metadata.finalizers = None;
        Some(last)
    }

    fn complete(&self) {
        self.context.source.all_registered(ConsumerKind::GitSync);
        self.context.secrets.set_listed(Referrer::GitSync);
        self.context.set_complete();
        self.known.send_replace(true);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<GitSync>,
        ends: (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        mainstay_gitsync::run(Arc::clone(&self.context), namespace, name, input, ends)
    }
}
