//! Watches one of Mainstay's kinds, and runs a task for each object, once the cluster serves the kind.
//!
//! Invariant: an object has one task, which gets each change of the object, but not of its status. Invariant: the Secrets
//! that an object references are known before its task begins. Invariant: a namespace has at most [`MOST`] objects of a
//! kind whose tasks work. If one is deleted, another takes its place.
//!
//! Not here: Receivers and APIRules (`tasks`), and the use of the objects (`artifacts`, `images`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::functions::is_defined;
use super::kept::Name;
use super::notify::Notifier;
use super::own_kinds::{Object, Running, fits, read, without_room};
use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::secrets::{Purpose, Referrer, Secrets};
use mainstay_cluster::{Cluster, Kind, Regarding, Selection};
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Maximum number of objects of a kind in a namespace.
pub(super) const MOST: usize = 50;

/// The parts of the agent that every kind with tasks needs.
pub(super) trait Parts: Send + Sync + 'static {
    fn cluster(&self) -> &Cluster;
    fn secrets(&self) -> &Secrets;
    fn notifier(&self) -> &Notifier;
}

/// The spec of a kind whose objects have a task each.
pub(super) trait Followed: DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {
    /// The parts of the agent that a task needs.
    type Context: Parts;
    /// The kind in the register of Secrets; `None` if it names no Secret.
    const REFERRER: Option<Referrer>;

    /// Returns the kind.
    fn kind() -> Kind;

    /// Returns the object as the subject of messages.
    fn owner(namespace: &str, name: &str) -> Owner;

    /// Returns the names of the Secrets, each with its purpose.
    fn references(&self) -> Vec<(String, Purpose)>;

    /// Gets all objects once they were listed, and after each later change. Gets none if the cluster does not serve the
    /// kind.
    fn set_all(context: &Self::Context, all: &BTreeMap<Name, Running<Self>>);

    /// Returns the task of an object, which ends when its feed is closed.
    fn run(
        context: Arc<Self::Context>,
        begun: Begun,
        input: watch::Receiver<Object<Self>>,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The start of a task.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) name: Name,
    /// The number of the task. A newer task has a higher number.
    pub(super) number: u64,
    /// The last status of the object.
    pub(super) status: Value,
    /// Whether the object is within the maximum number of objects of its namespace.
    pub(super) fits: bool,
}

/// Watches a kind until `stop`, or until a task panics.
pub(super) async fn follow<S: Followed>(context: Arc<S::Context>, stop: CancellationToken) -> Result<(), JoinError> {
    let absent = || {
        set_listed::<S>(&context);
        S::set_all(&context, &BTreeMap::new());
    };
    let kind = Arc::new(S::kind());
    if !is_defined(&kind, context.cluster(), absent, &stop).await {
        return Ok(());
    }
    let watched = context.cluster().reflect(&kind, Selection::default(), read::<S>);
    Following::<S> { context, watched, running: BTreeMap::new(), begun: 0, tasks: JoinSet::new() }.run(stop).await
}

fn set_listed<S: Followed>(context: &S::Context) {
    if let Some(referrer) = S::REFERRER {
        context.secrets().set_listed(referrer);
    }
}

struct Following<S: Followed> {
    context: Arc<S::Context>,
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
                self.describe(&name, Some(&object));
                let is_same = before.is_some_and(|before| before.uid == object.uid);
                match self.running.get(&name).filter(|_| is_same) {
                    Some(running) => {
                        running.feed.send_replace(object);
                    }
                    None => self.begin(name, object, live["status"].clone(), stop),
                }
            }
            Change::Gone { name, .. } => {
                self.running.remove(&name);
                self.describe(&name, None);
                if let Some((next, object)) = without_room(&self.running, &name.0) {
                    self.begin(next, object, Value::Null, stop);
                }
            }
            Change::Complete { .. } => set_listed::<S>(&self.context),
            Change::Failed(error) => {
                let kind = S::kind().kind;
                tracing::warn!(kind = &*kind, why = chain(&error), "objects of this kind cannot be watched");
                return;
            }
            Change::Unreadable { .. } | Change::Resumed => return,
        }
        if self.watched.cache().is_complete() {
            S::set_all(&self.context, &self.running);
        }
    }

    /// Records the Secrets of an object, and its data for messages; `None` if it is gone.
    fn describe(&self, name: &Name, object: Option<&Object<S>>) {
        if let Some(referrer) = S::REFERRER {
            let references = object.map(|object| object.spec.references()).unwrap_or_default();
            self.context.secrets().set_references(&name.0, (referrer, &name.1), references);
        }
        let owner = S::owner(&name.0, &name.1);
        let subject = object.map(|object| Regarding {
            key: owner.key(),
            api_version: S::kind().api_version(),
            uid: Some(object.uid.clone()),
        });
        self.context.notifier().set_subject(&owner, subject);
        self.context.notifier().set_labels(&owner, object.map(|object| &object.labels));
        let metadata = object.map(|object| object.event_metadata.clone()).unwrap_or_default();
        self.context.notifier().set_event_metadata(&owner, metadata);
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
