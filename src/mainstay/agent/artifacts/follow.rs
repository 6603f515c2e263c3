//! Watches a kind that names artifacts, and runs a task for each object, once the cluster serves the kind.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::context::{Context, MOST};
use super::named::Named;
use super::task::{Task, address};
use crate::agent::functions::is_defined;
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, fits, kind, read, without_room};
use mainstay_api::OciRepositoryStatus;
use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::{Regarding, Selection};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Watches a kind until `stop`, or until a task panics.
pub(in crate::agent) async fn follow<S: Named>(
    context: Arc<Context>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let absent = || {
        context.secrets.set_listed(S::REFERRER);
        context.repositories.set_artifacts(S::SOURCE, HashMap::new());
    };
    if !is_defined(&format!("{}.mainstay.dev", S::PLURAL), &context.cluster, absent, &stop).await {
        return Ok(());
    }
    let kind = kind(S::SOURCE.name(), S::PLURAL);
    let watched = context.cluster.reflect(&kind, Selection::default(), read::<S>);
    Following { context, watched, running: BTreeMap::new(), begun: 0, tasks: JoinSet::new() }.run(stop).await
}

struct Following<S> {
    context: Arc<Context>,
    watched: Reflector<Object<S>>,
    running: BTreeMap<Name, Running<S>>,
    /// The number of tasks so far.
    begun: u64,
    tasks: JoinSet<()>,
}

impl<S: Named> Following<S> {
    async fn run(mut self, stop: CancellationToken) -> Result<(), JoinError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(ended) = self.tasks.join_next() => ended?,
                change = self.watched.next() => self.see(change, &stop),
            }
        }
    }

    fn see(&mut self, change: Change<Object<S>>, stop: &CancellationToken) {
        match change {
            Change::Changed { name, live, before } => {
                let Some(object) = self.watched.cache().get(&name.0, &name.1).cloned() else { return };
                let references = object.spec.secret_references();
                self.context.secrets.set_references(&name.0, (S::REFERRER, &name.1), references);
                let owner = S::owner(&name.0, &name.1);
                self.context.notifier.set_subject(&owner, Some(regarding(&owner, &object)));
                self.context.notifier.set_labels(&owner, Some(&object.labels));
                let is_same = before.is_some_and(|before| before.uid == object.uid);
                match self.running.get(&name).filter(|_| is_same) {
                    Some(running) => {
                        running.feed.send_replace(object);
                    }
                    None => self.begin(name, object, status_of(&live), stop),
                }
                self.publish();
            }
            Change::Gone { name, .. } => {
                self.running.remove(&name);
                let owner = S::owner(&name.0, &name.1);
                self.context.notifier.set_subject(&owner, None);
                self.context.notifier.set_labels(&owner, None);
                self.context.secrets.set_references(&name.0, (S::REFERRER, &name.1), Vec::new());
                if let Some((next, object)) = without_room(&self.running, &name.0) {
                    self.begin(next, object, OciRepositoryStatus::default(), stop);
                }
                self.publish();
            }
            Change::Complete { .. } => {
                self.context.secrets.set_listed(S::REFERRER);
                self.publish();
            }
            Change::Failed(error) => {
                tracing::warn!(kind = S::SOURCE.name(), why = chain(&error), "objects of this kind cannot be watched");
            }
            Change::Unreadable { .. } | Change::Resumed => {}
        }
    }

    /// Publishes the URLs of the artifacts for GitSyncs.
    fn publish(&self) {
        if self.watched.cache().is_complete() {
            let all = self.running.iter().map(|(name, running)| (name.clone(), address(name, &running.feed.borrow())));
            self.context.repositories.set_artifacts(S::SOURCE, all.collect());
        }
    }

    /// Starts the task of an object. The task of an older object with this name ends when its feed is closed.
    fn begin(&mut self, name: Name, object: Object<S>, status: OciRepositoryStatus, stop: &CancellationToken) {
        let fits = fits(&self.running, &name, MOST);
        let (feed, input) = watch::channel(object);
        self.running.insert(name.clone(), Running { feed, fits });
        self.begun += 1;
        let task = Task::new(Arc::clone(&self.context), (name, self.begun), status, fits);
        let stop = stop.clone();
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(Box::pin(task.run(input))).await;
        });
    }
}

fn regarding<S>(owner: &Owner, object: &Object<S>) -> Regarding {
    let (key, api_version) = (owner.key(), "mainstay.dev/v1alpha1".to_owned());
    Regarding { key, api_version, uid: Some(object.uid.clone()) }
}

fn status_of(live: &Value) -> OciRepositoryStatus {
    let status = live.get("status").and_then(|status| serde_json::from_value(status.clone()).ok());
    status.unwrap_or_default()
}
