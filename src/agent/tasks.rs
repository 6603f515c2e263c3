//! Runs a task for every object of a kind: a watch feeds it, and it ends with its object.
//!
//! Invariant: if an object is deleted and created again, the old task ends before the new one begins.
//!
//! Deliberately absent: what the tasks do. That is a [`Work`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::notify::Notifier;
use crate::apply::Announcement;
use crate::cluster::{Cluster, Kind, Regarding, Selection, WatchEvent};
use crate::notification::Message;
use crate::object::Owner;

/// How often objects are read again of which something was taken out.
const AGAIN: Duration = Duration::from_secs(30);

/// Namespace and name.
pub(super) type Name = (String, String);

/// The newest state of an object; `None` once it is gone.
pub(super) type Input<T> = watch::Receiver<Option<Arc<T>>>;

/// The work for the objects of one kind.
pub(super) trait Work {
    /// The type of an object.
    type Object: Resource + DeserializeOwned + Send + Sync + 'static;

    /// The kind.
    fn kind(&self) -> Kind;

    /// The owner of what the object manages, as in messages.
    fn owner(&self, name: &Name) -> Owner;

    /// Takes out of an object, which takes so many bytes of memory, what there is none for; whether all of it is kept. It is
    /// asked again after a while.
    fn keep(&self, _owner: &Owner, _object: &mut Self::Object, _bytes: usize) -> bool {
        true
    }

    /// What an object says, before its task hears of it; `None` once it is gone.
    fn see(&self, _name: &Name, _object: Option<&Self::Object>) {}

    /// Called for a new object before its task begins.
    fn enter(&self, _owner: &Owner, _name: &Name) {}

    /// The last state that the task of a deleted object sees; `None` if it only learns that the object is gone.
    fn deleted(&self, _last: Self::Object) -> Option<Self::Object> {
        None
    }

    /// Called when all existing objects have a task.
    fn complete(&self) {}

    /// The task of one object, until the object is gone or `stop`.
    fn run(
        &self,
        name: Name,
        input: Input<Self::Object>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static;
}

/// The task of one object and its input.
struct Running<T> {
    feed: watch::Sender<Option<Arc<T>>>,
    uid: Option<String>,
    /// Cancelled when the task has ended.
    over: CancellationToken,
}

/// Watches the objects of a kind and runs a task for each.
pub(super) struct Tasks<W: Work> {
    work: W,
    kind: Arc<Kind>,
    notifier: Notifier,
    running: HashMap<Name, Running<W::Object>>,
    /// Ending tasks; a new object with the same name waits for them.
    ended: HashMap<Name, CancellationToken>,
    /// Objects of which something was taken out.
    short: HashSet<Name>,
    all: JoinSet<()>,
    stop: CancellationToken,
}

impl<W: Work> Tasks<W> {
    /// Runs `others` besides the tasks.
    pub(super) fn new(work: W, notifier: Notifier, others: JoinSet<()>, stop: CancellationToken) -> Self {
        let kind = Arc::new(work.kind());
        Self {
            work,
            kind,
            notifier,
            running: HashMap::new(),
            ended: HashMap::new(),
            short: HashSet::new(),
            all: others,
            stop,
        }
    }

    /// Runs until `stop`, or until a task panics.
    pub(super) async fn run(mut self, cluster: &Cluster) -> Result<(), JoinError> {
        let mut events = cluster.watch(&self.kind, Selection::default());
        let mut missing: HashSet<Name> = HashSet::new();
        let mut again = tokio::time::interval(AGAIN);
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => break,
                _ = again.tick() => {
                    self.complete(cluster).await;
                    continue;
                }
                Some(ended) = self.all.join_next() => {
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
                    let (identity, bytes) = (identity_of(&value), memory(&value));
                    match read::<W::Object>(value) {
                        Ok(object) => self.feed(name, object, bytes),
                        Err(why) => self.announce_unreadable(&name, &identity, why),
                    }
                }
                Some(WatchEvent::Unreadable(value, error)) => {
                    // Its task goes on with what was read last.
                    let Some(name) = name_of(&value) else { continue };
                    missing.remove(&name);
                    self.announce_unreadable(&name, &value, error.cause_text());
                }
                Some(WatchEvent::Deleted(value)) => {
                    if let Some(name) = name_of(&value) {
                        let last = read::<W::Object>(value).ok().and_then(|last| self.work.deleted(last));
                        self.end(&name, last);
                    }
                }
                Some(WatchEvent::Synced(_)) => {
                    for name in std::mem::take(&mut missing) {
                        self.end(&name, None);
                    }
                    self.work.complete();
                }
                Some(WatchEvent::Failed(error)) => {
                    tracing::warn!(why = crate::failure::chain(&error), "{}s cannot be watched", self.kind.kind);
                }
                Some(WatchEvent::Resumed) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// Tells of an object that cannot be read, where people look who wonder why nothing is done about it.
    fn announce_unreadable(&self, name: &Name, value: &Value, cause: String) {
        let uid = value.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let key = self.kind.key(Some(&name.0), &name.1);
        let owner = self.work.owner(name);
        let subject = Regarding { key, api_version: self.kind.api_version(), uid };
        // One with a task is known already.
        let object = (!self.running.contains_key(name)).then_some(subject);
        let message = Message::Unreadable { subject: owner.clone(), object: None, cause };
        self.notifier.notify(&Announcement { owner: &owner, object, message: &message });
    }

    /// Reads the objects again of which something was taken out: there may be memory for it now.
    async fn complete(&mut self, cluster: &Cluster) {
        for name in self.short.clone() {
            let Ok(Some(live)) = cluster.get(&self.kind, Some(&name.0), &name.1).await else { continue };
            let bytes = memory(&live);
            if let Ok(object) = read::<W::Object>(live)
                && self.running.contains_key(&name)
            {
                self.feed(name, object, bytes);
            }
        }
    }

    fn feed(&mut self, name: Name, mut object: W::Object, bytes: usize) {
        if self.work.keep(&self.work.owner(&name), &mut object, bytes) {
            self.short.remove(&name);
        } else {
            self.short.insert(name.clone());
        }
        let uid = object.meta().uid.clone();
        if let Some(running) = self.running.get(&name) {
            if running.uid == uid && !running.over.is_cancelled() {
                self.work.see(&name, Some(&object));
                running.feed.send_replace(Some(Arc::new(object)));
                return;
            }
            // The object was deleted and created again: the old task ends before the new one begins.
            self.end(&name, None);
        }
        let owner = self.work.owner(&name);
        let key = self.kind.key(Some(&name.0), &name.1);
        let subject = Regarding { key, api_version: self.kind.api_version(), uid: uid.clone() };
        self.notifier.set_subject(&owner, Some(subject));
        self.work.enter(&owner, &name);
        self.work.see(&name, Some(&object));
        let (feed, input) = watch::channel(Some(Arc::new(object)));
        let over = CancellationToken::new();
        let (old, ending) = (self.ended.remove(&name), over.clone().drop_guard());
        let task = self.work.run(name.clone(), input, self.stop.clone());
        self.all.spawn(after(old, task).map(move |()| drop(ending)));
        self.running.insert(name, Running { feed, uid, over });
    }

    fn end(&mut self, name: &Name, last: Option<W::Object>) {
        self.short.remove(name);
        self.work.see(name, None);
        if let Some(running) = self.running.remove(name) {
            running.feed.send_replace(last.map(Arc::new));
            self.ended.retain(|_, over| !over.is_cancelled());
            self.ended.insert(name.clone(), running.over);
            self.notifier.set_subject(&self.work.owner(name), None);
        }
    }
}

/// Runs a task once the old one has ended.
fn after<T: Future<Output = ()>>(old: Option<CancellationToken>, task: T) -> impl Future<Output = ()> {
    let ended = async move {
        if let Some(old) = old {
            old.cancelled().await;
        }
    };
    // An `async` block would hold the task twice: as what it was given, and as what it awaits.
    ended.then(move |()| task)
}

/// Memory that an object takes, about, in bytes.
fn memory(value: &Value) -> usize {
    let own = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory).sum(),
        Value::Object(fields) => fields.iter().map(|(name, field)| name.len() + memory(field)).sum(),
        _ => 0,
    };
    own + size_of::<Value>()
}

pub(super) fn name_of(value: &Value) -> Option<Name> {
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}

/// What is needed of an object to tell of it.
pub(super) fn identity_of(value: &Value) -> Value {
    let uid = value.pointer("/metadata/uid").cloned().unwrap_or_default();
    serde_json::json!({ "metadata": { "uid": uid } })
}

/// Parses one of our resources, without its `managedFields`; or why it cannot be. Its schema prevents that, unless another
/// definition is installed.
pub(super) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, String> {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    // The error may quote a value.
    let unreadable = |error: serde_json::Error| {
        let kind = if error.is_data() {
            "a field has another form than the definition of this version says"
        } else {
            "it is no object"
        };
        format!("{kind}; is its definition up to date?")
    };
    serde_json::from_value(value).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{function, gitsync, receiver};

    /// Bytes of the task of one object while it waits.
    fn waiting<A, B, C, D, E, F: Future<Output = ()>>(_: impl Fn(A, B, C, D, E) -> F) -> usize {
        size_of_result(after::<F>)
    }

    fn size_of_result<A, B, R>(_: impl Fn(A, B) -> R) -> usize {
        size_of::<R>()
    }

    #[test]
    fn a_thousand_objects_that_wait_cost_a_few_mib() {
        let sizes = [waiting(gitsync::run), waiting(function::run), waiting(receiver::run)];
        assert!(sizes.iter().all(|size| *size <= 6 * 1024), "{sizes:?} bytes");
    }
}
