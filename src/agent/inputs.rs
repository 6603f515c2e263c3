//! Watches GitRepositories and GitSyncs, and runs a task for each GitSync.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use super::tasks::{Input, Name, Tasks, Work, identity_of, name_of, read};
use crate::api::{GitRepository, GitSync};
use crate::apply::Announcement;
use crate::cluster::{Cluster, Kind, Regarding, Selection, WatchEvent};
use crate::gitsync::{self, Context};
use crate::notification::Message;
use crate::object::Owner;
use crate::source::{Consumer, ConsumerKind, Repositories};

/// Maximum wait for the GitRepositories before the first GitSync or Function is reconciled.
pub(super) const REPOSITORIES_WITHIN: Duration = Duration::from_secs(10);

/// The kind of GitRepositories.
pub(super) fn git_repositories() -> Kind {
    Kind::custom("serverless.kyma-project.io", "v1alpha1", "GitRepository", "gitrepositories", true, true)
}

/// Watches GitRepositories until `stop`; `known` is set once they are listed.
pub(super) async fn repositories(
    repositories: Arc<Repositories>,
    cluster: Cluster,
    notifier: Notifier,
    known: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let kind = Arc::new(git_repositories());
    let mut events = cluster.watch(&kind, Selection::default());
    let mut listed = Listed::default();
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            WatchEvent::Begin => listed.begin(),
            WatchEvent::Initial(value) | WatchEvent::Applied(value) => {
                let Some((namespace, name)) = name_of(&value) else { continue };
                listed.show(&namespace, &name);
                let identity = identity_of(&value);
                match read::<GitRepository>(value) {
                    Ok(repository) => repositories.set(&namespace, &name, Some(repository)),
                    Err(why) => {
                        announce_unreadable(&notifier, &kind, (&namespace, &name), &identity, why.clone());
                        repositories.set_unreadable(&namespace, &name, why);
                    }
                }
            }
            WatchEvent::Unreadable(value, error) => {
                let Some((namespace, name)) = name_of(&value) else { continue };
                // As one whose spec is not that of a GitRepository.
                listed.show(&namespace, &name);
                announce_unreadable(&notifier, &kind, (&namespace, &name), &value, error.cause_text());
                repositories.set_unreadable(&namespace, &name, error.cause_text());
            }
            WatchEvent::Deleted(value) => {
                let Some((namespace, name)) = name_of(&value) else { continue };
                repositories.set(&namespace, &name, None);
            }
            WatchEvent::Synced(_) => {
                repositories.replace(&listed.end());
                known.send_replace(true);
            }
            WatchEvent::Failed(error) => {
                let why = crate::failure::chain(&error);
                tracing::warn!(why, "GitRepositories cannot be watched");
                if !*known.borrow() {
                    // The last known state is the best there is.
                    repositories.set_unknown(why);
                }
            }
            WatchEvent::Resumed => {}
        }
    }
}

/// Tells of a GitRepository that cannot be read. Who names it says so in its status.
fn announce_unreadable(
    notifier: &Notifier,
    kind: &Kind,
    (namespace, name): (&str, &str),
    value: &Value,
    cause: String,
) {
    let owner = Owner::git_repository(namespace, name);
    let uid = value.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
    let object = Regarding { key: owner.key(), api_version: kind.api_version(), uid };
    let message = Message::Unreadable { subject: owner.clone(), object: None, cause };
    notifier.notify(&Announcement { owner: &owner, object: Some(object), message: &message });
}

/// What a list that is under way has shown so far.
#[derive(Debug, Default)]
struct Listed(Option<HashSet<Name>>);

impl Listed {
    fn begin(&mut self) {
        self.0 = Some(HashSet::new());
    }

    /// What changes after the list counts for nothing.
    fn show(&mut self, namespace: &str, name: &str) {
        if let Some(shown) = &mut self.0 {
            shown.insert((namespace.to_owned(), name.to_owned()));
        }
    }

    fn end(&mut self) -> HashSet<Name> {
        self.0.take().unwrap_or_default()
    }
}

/// Watches GitSyncs until `stop`, or until a task panics, and runs a task for each. `known` is set once they are
/// listed.
pub(super) async fn syncs(
    context: Arc<Context>,
    notifier: Notifier,
    cluster: Cluster,
    mut repositories: watch::Receiver<bool>,
    known: watch::Sender<bool>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let _ = tokio::time::timeout(REPOSITORIES_WITHIN, repositories.wait_for(|known| *known)).await;
    Tasks::new(Syncs { context, known }, notifier, JoinSet::new(), stop).run(&cluster).await
}

struct Syncs {
    context: Arc<Context>,
    known: watch::Sender<bool>,
}

impl Work for Syncs {
    type Object = GitSync;

    fn kind(&self) -> Kind {
        Kind::custom("mainstay.dev", "v1alpha1", "GitSync", "gitsyncs", true, true)
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::git_sync(namespace, name)
    }

    /// Registered before any task begins.
    fn enter(&self, owner: &Owner, (namespace, name): &Name) {
        self.context.enter(owner, namespace, name);
        self.context.source.register(&Consumer::new(ConsumerKind::GitSync, namespace, name));
    }

    /// The last state with a deletionTimestamp and without finalizers.
    fn deleted(&self, mut last: GitSync) -> Option<GitSync> {
        last.metadata.deletion_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
        last.metadata.finalizers = None;
        Some(last)
    }

    fn complete(&self) {
        self.context.source.all_registered(ConsumerKind::GitSync);
        self.context.registry.set_complete();
        self.known.send_replace(true);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<GitSync>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        gitsync::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_leave_nothing_behind() {
        let mut listed = Listed::default();
        listed.begin();
        listed.show("shop", "web");
        assert_eq!(listed.end(), HashSet::from([("shop".to_owned(), "web".to_owned())]));
        for _ in 0..100_000 {
            listed.show("shop", "web");
        }
        assert!(listed.0.is_none(), "nothing is listed");
    }
}
