//! Watches a kind, and runs a task for each object, once the cluster serves the kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::context::{Context, MOST};
use crate::agent::functions::is_defined;
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, fits, kind, read, without_room};
use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::secrets::{Purpose, Referrer};
use mainstay_cluster::{Regarding, Selection};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// The spec of a kind whose objects have a task each.
pub(in crate::agent) trait Followed:
    DeserializeOwned + Clone + PartialEq + Send + Sync + 'static
{
    const KIND: &'static str;
    /// Its plural in the API.
    const PLURAL: &'static str;
    /// The kind in the register of Secrets; `None` if it names no Secret.
    const REFERRER: Option<Referrer>;

    /// Returns the object as the subject of messages.
    fn owner(namespace: &str, name: &str) -> Owner;

    /// Returns the names of the Secrets, each with its purpose.
    fn secrets(&self) -> Vec<(String, Purpose)>;

    /// Returns the task of an object, which ends when its feed is closed.
    fn run(
        context: Arc<Context>,
        begun: Begun,
        input: watch::Receiver<Object<Self>>,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The start of a task.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Begun {
    pub(super) name: Name,
    /// The number of the task. A newer task has a higher number.
    pub(super) number: u64,
    /// The last status of the object.
    pub(super) status: Value,
    /// Whether the object is within the maximum number of objects of its namespace.
    pub(super) fits: bool,
}

/// Watches a kind until `stop`, or until a task panics.
pub(in crate::agent) async fn follow<S: Followed>(
    context: Arc<Context>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    let absent = || {
        if let Some(referrer) = S::REFERRER {
            context.secrets.set_listed(referrer);
        }
        set_listed::<S>(&context);
    };
    if !is_defined(&format!("{}.mainstay.dev", S::PLURAL), &context.cluster, absent, &stop).await {
        return Ok(());
    }
    let watched = context.cluster.reflect(&kind(S::KIND, S::PLURAL), Selection::default(), read::<S>);
    Following { context, watched, running: BTreeMap::new(), begun: 0, tasks: JoinSet::new() }.run(stop).await
}

fn set_listed<S: Followed>(context: &Context) {
    context.listed.send_if_modified(|listed| listed.insert(S::KIND));
}

/// Waits until all objects of a kind were seen. Returns false if the feed of the waiting task was closed.
pub(super) async fn are_listed<S: Followed, I>(context: &Context, input: &mut watch::Receiver<I>) -> bool {
    let mut listed = context.listed.subscribe();
    loop {
        tokio::select! {
            known = listed.wait_for(|listed| listed.contains(S::KIND)) => return known.is_ok(),
            changed = input.changed() => if changed.is_err() { return false },
        }
    }
}

struct Following<S> {
    context: Arc<Context>,
    watched: Reflector<Object<S>>,
    running: BTreeMap<Name, Running<S>>,
    /// The number of tasks so far.
    begun: u64,
    tasks: JoinSet<()>,
}

impl<S: Followed> Following<S> {
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
                self.refer(&name, object.spec.secrets());
                let owner = S::owner(&name.0, &name.1);
                let (key, api_version) = (owner.key(), "mainstay.dev/v1alpha1".to_owned());
                let subject = Regarding { key, api_version, uid: Some(object.uid.clone()) };
                self.context.notifier.set_subject(&owner, Some(subject));
                self.context.notifier.set_labels(&owner, Some(&object.labels));
                let is_same = before.is_some_and(|before| before.uid == object.uid);
                match self.running.get(&name).filter(|_| is_same) {
                    // The status alone is no change.
                    Some(running) => {
                        running.feed.send_if_modified(|known| {
                            let is_new = *known != object;
                            *known = object;
                            is_new
                        });
                    }
                    None => self.begin(name, object, live["status"].clone(), stop),
                }
            }
            Change::Gone { name, .. } => {
                self.running.remove(&name);
                let owner = S::owner(&name.0, &name.1);
                self.context.notifier.set_subject(&owner, None);
                self.context.notifier.set_labels(&owner, None);
                self.refer(&name, Vec::new());
                if let Some((next, object)) = without_room(&self.running, &name.0) {
                    self.begin(next, object, Value::Null, stop);
                }
            }
            Change::Complete { .. } => {
                if let Some(referrer) = S::REFERRER {
                    self.context.secrets.set_listed(referrer);
                }
                set_listed::<S>(&self.context);
            }
            Change::Failed(error) => {
                tracing::warn!(kind = S::KIND, why = chain(&error), "objects of this kind cannot be watched");
            }
            Change::Unreadable { .. } | Change::Resumed => {}
        }
    }

    /// Records the Secrets that an object names.
    fn refer(&self, name: &Name, secrets: Vec<(String, Purpose)>) {
        if let Some(referrer) = S::REFERRER {
            self.context.secrets.set_references(&name.0, (referrer, &name.1), secrets);
        }
    }

    /// Starts the task of an object. The task of an older object with this name ends when its feed is closed.
    fn begin(&mut self, name: Name, object: Object<S>, status: Value, stop: &CancellationToken) {
        let fits = fits(&self.running, &name, MOST);
        let (feed, input) = watch::channel(object);
        self.running.insert(name.clone(), Running { feed, fits });
        self.begun += 1;
        let begun = Begun { name, number: self.begun, status, fits };
        let task = S::run(Arc::clone(&self.context), begun, input);
        let stop = stop.clone();
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(Box::pin(task)).await;
        });
    }
}
