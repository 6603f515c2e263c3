//! What the agent is told to do: GitSyncs and GitRepositories are watched, and every GitSync has a task.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::announce::Announcer;
use crate::api::{GitRepository, GitSync};
use crate::cluster::{Cluster, Kind, Regarding, Selection, WatchEvent};
use crate::drift::Owner;
use crate::gitsync::{self, Context};
use crate::object::Key;
use crate::source::Repositories;

/// Longest wait for the GitRepositories before the first GitSync is looked at.
const REPOSITORIES_WITHIN: Duration = Duration::from_secs(10);

/// Namespace and name.
pub(super) type Name = (String, String);

/// Follows the GitRepositories until `stop`; `known` is set once all of them were seen.
pub(super) async fn repositories(
    repositories: Arc<Repositories>,
    cluster: Cluster,
    known: watch::Sender<bool>,
    stop: CancellationToken,
) {
    let kind = Arc::new(Kind::custom(
        "serverless.kyma-project.io",
        "v1alpha1",
        "GitRepository",
        "gitrepositories",
        true,
        false,
    ));
    let mut events = cluster.watch(&kind, Selection::default());
    let mut present = Vec::new();
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            WatchEvent::Begin => present.clear(),
            WatchEvent::Initial(value) | WatchEvent::Applied(value) => {
                let Some((namespace, name)) = name_of(&value) else { continue };
                present.push((namespace.clone(), name.clone()));
                repositories.set(&namespace, &name, read::<GitRepository>(value));
            }
            WatchEvent::Deleted(value) => {
                let Some((namespace, name)) = name_of(&value) else { continue };
                repositories.set(&namespace, &name, None);
            }
            WatchEvent::Synced(_) => {
                repositories.replace(std::mem::take(&mut present));
                known.send_replace(true);
            }
            WatchEvent::Trouble(error) => {
                tracing::warn!(why = crate::failure::chain(&error), "GitRepositories cannot be watched");
            }
        }
    }
}

/// One GitSync's task and what feeds it.
struct Running {
    feed: watch::Sender<Option<Arc<GitSync>>>,
    uid: Option<String>,
    /// Cancelled when the task has come to its end.
    over: CancellationToken,
}

/// Follows the GitSyncs until `stop` and runs a task for each.
pub(super) struct Syncs {
    context: Arc<Context>,
    announcer: Announcer,
    running: HashMap<Name, Running>,
    /// Tasks that are coming to their end; a new GitSync of the same name waits for the old one's.
    ended: HashMap<Name, CancellationToken>,
    stop: CancellationToken,
}

impl Syncs {
    pub(super) fn new(context: Arc<Context>, announcer: Announcer, stop: CancellationToken) -> Self {
        Self { context, announcer, running: HashMap::new(), ended: HashMap::new(), stop }
    }

    /// Runs until `stop`, or until a task breaks. `known` is set once all GitSyncs were seen.
    pub(super) async fn run(
        mut self,
        cluster: Cluster,
        mut repositories: watch::Receiver<bool>,
        known: watch::Sender<bool>,
    ) -> Result<(), JoinError> {
        let _ = tokio::time::timeout(REPOSITORIES_WITHIN, repositories.wait_for(|known| *known)).await;
        let kind = Arc::new(Kind::custom("mainstay.dev", "v1alpha1", "GitSync", "gitsyncs", true, true));
        let mut events = cluster.watch(&kind, Selection::default());
        let mut missing: HashSet<Name> = HashSet::new();
        let mut tasks = JoinSet::new();
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => break,
                Some(ended) = tasks.join_next() => {
                    ended?;
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(WatchEvent::Begin) => missing = self.running.keys().cloned().collect(),
                Some(WatchEvent::Initial(value) | WatchEvent::Applied(value)) => {
                    let Some(name) = name_of(&value) else { continue };
                    missing.remove(&name);
                    if let Some(sync) = read::<GitSync>(value) {
                        self.feed(name, sync, &mut tasks);
                    }
                }
                Some(WatchEvent::Deleted(value)) => {
                    if let Some(name) = name_of(&value) {
                        self.end(&name);
                    }
                }
                Some(WatchEvent::Synced(_)) => {
                    for name in std::mem::take(&mut missing) {
                        self.end(&name);
                    }
                    self.context.registry.set_complete();
                    known.send_replace(true);
                }
                Some(WatchEvent::Trouble(error)) => {
                    tracing::warn!(why = crate::failure::chain(&error), "GitSyncs cannot be watched");
                }
                None => break,
            }
        }
        Ok(())
    }

    fn feed(&mut self, name: Name, sync: GitSync, tasks: &mut JoinSet<()>) {
        let owner: Owner = format!("{}/{}", name.0, name.1).into();
        let uid = sync.metadata.uid.clone();
        self.announcer.know(&owner, Some(git_sync(&name, uid.clone())));
        if let Some(running) = self.running.get(&name) {
            if running.uid == uid && !running.over.is_cancelled() {
                running.feed.send_replace(Some(Arc::new(sync)));
                return;
            }
            // Deleted and created again: the old task ends before the new one begins.
            self.end(&name);
            self.announcer.know(&owner, Some(git_sync(&name, uid.clone())));
        }
        // Known to all others before any of them acts.
        self.context.enter(&owner, &name.0, &name.1);
        let (feed, input) = watch::channel(Some(Arc::new(sync)));
        let over = CancellationToken::new();
        let (old, ending) = (self.ended.remove(&name), over.clone().drop_guard());
        let (context, stop) = (Arc::clone(&self.context), self.stop.clone());
        let (namespace, own) = name.clone();
        tasks.spawn(async move {
            let _ending = ending;
            if let Some(old) = old {
                old.cancelled().await;
            }
            gitsync::run(context, namespace, own, input, stop).await;
        });
        self.running.insert(name, Running { feed, uid, over });
    }

    fn end(&mut self, name: &Name) {
        if let Some(running) = self.running.remove(name) {
            running.feed.send_replace(None);
            self.ended.retain(|_, over| !over.is_cancelled());
            self.ended.insert(name.clone(), running.over);
            self.announcer.know(&format!("{}/{}", name.0, name.1).into(), None);
        }
    }
}

fn git_sync((namespace, name): &Name, uid: Option<String>) -> Regarding {
    let key = Key::new("mainstay.dev", "GitSync", Some(namespace), name.as_str());
    Regarding { key, api_version: "mainstay.dev/v1alpha1".to_owned(), uid }
}

pub(super) fn name_of(value: &Value) -> Option<Name> {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}

/// Reads a resource of ours, without its `managedFields`. One that cannot be read is passed over with a warning: its
/// schema keeps that from happening, unless the definition is another than ours.
pub(super) fn read<T: DeserializeOwned>(mut value: Value) -> Option<T> {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let named = value.get("metadata").cloned().and_then(|m| serde_json::from_value::<ObjectMeta>(m).ok());
    match serde_json::from_value(value) {
        Ok(resource) => Some(resource),
        Err(error) => {
            let name = named.and_then(|m| m.name).unwrap_or_default();
            tracing::warn!(name, why = error.to_string(), "a resource cannot be read; is its definition up to date?");
            None
        }
    }
}
