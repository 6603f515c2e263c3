//! Observes objects through a watch of its own: when each has reached which state.
//!
//! The moment of an event's arrival stands for the moment at which the server answered the write: it comes no earlier
//! than the write, and on one machine a fraction of a millisecond later.

use std::{
    collections::HashMap,
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::Error;

/// How long events may take that belong to what another watch has shown already.
const LATE: Duration = Duration::from_millis(300);

/// The observed state of an object.
#[derive(Debug)]
pub(super) struct Seen {
    /// Name of the object.
    pub name: String,
    /// As far as it is of interest.
    pub state: String,
}

/// Sees every change of the objects of one kind in one namespace.
pub(super) struct Observer {
    events: mpsc::UnboundedReceiver<(Seen, Instant)>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Sees changes from now on; `read` says what is of interest in an object, if anything.
    pub(super) async fn start<K>(api: Api<K>, read: fn(K) -> Option<Seen>) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let list = api.list_metadata(&kube::api::ListParams::default().limit(1)).await.map_err(Error::Ask)?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let (sender, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while !sender.is_closed() {
                // A watch that ends is resumed where it ended.
                let Ok(stream) = api.watch(&WatchParams::default(), &version).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut stream = stream.boxed();
                while let Some(Ok(event)) = stream.next().await {
                    let at = Instant::now();
                    if let Some(seen) = follow(event, &mut version).and_then(read) {
                        // Nobody listens any more: the task ends with the observer.
                        let _ = sender.send((seen, at));
                    }
                }
            }
        });
        Ok(Self { events, task })
    }

    /// Forgets what was seen until now.
    pub(super) fn forget(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// All that was seen since the last [`Self::forget`], and what still comes within [`LATE`] of one another.
    pub(super) async fn rest(&mut self) -> Vec<(Seen, Instant)> {
        let mut seen = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(LATE, self.events.recv()).await {
            seen.push(event);
        }
        seen
    }

    /// Waits until each of these objects (name and state) was seen in its state by an event that came after the last
    /// [`Self::forget`]. Returns when each was first seen so; an object that is missing at the deadline is an error.
    pub(super) async fn all(
        &mut self,
        mut wanted: HashMap<String, String>,
        deadline: Duration,
    ) -> Result<HashMap<String, Instant>, Error> {
        let end = tokio::time::Instant::now() + deadline;
        let mut reached = HashMap::with_capacity(wanted.len());
        while !wanted.is_empty() {
            let Ok(Some((seen, at))) = tokio::time::timeout_at(end, self.events.recv()).await else {
                return Err(Error::NotReached { missing: wanted.len(), seconds: deadline.as_secs() });
            };
            if wanted.get(&seen.name).is_some_and(|state| *state == seen.state) {
                wanted.remove(&seen.name);
                reached.insert(seen.name, at);
            }
        }
        Ok(reached)
    }
}

/// How long it took from `start` until the last of what [`Observer::all`] returned.
pub(super) fn until_last(start: Instant, reached: &HashMap<String, Instant>) -> Duration {
    reached.values().max().map_or(Duration::ZERO, |end| end.saturating_duration_since(start))
}

/// Remembers how far the watch came; returns the object, unless it is gone.
fn follow<K: Resource<DynamicType = ()> + Clone>(event: WatchEvent<K>, version: &mut String) -> Option<K> {
    let reached = |object: &K| object.resource_version().unwrap_or_default();
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            *version = reached(&object);
            return Some(object);
        }
        WatchEvent::Deleted(object) => *version = reached(&object),
        WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
        // The server forgot the version: go on from the newest.
        WatchEvent::Error(_) => version.clear(),
    }
    None
}
