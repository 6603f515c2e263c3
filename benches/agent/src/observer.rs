//! Observes the state of objects by a separate watch.
//!
//! The arrival of an event approximates the time of the write. It is not earlier, and on the same machine only a
//! fraction of a millisecond later.

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

/// Grace period for events that belong to an event of another watch.
const LATE: Duration = Duration::from_millis(300);

/// The observed state of an object.
#[derive(Debug)]
pub(super) struct Seen {
    /// Name of the object.
    pub name: String,
    /// The relevant part of its state.
    pub state: String,
}

/// Observes the objects of a kind in a namespace.
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
    /// Starts observing. `read` extracts the relevant state of an object, if any.
    pub(super) async fn start<K>(api: Api<K>, read: fn(K) -> Option<Seen>) -> Result<Self, Error>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let list = api.list_metadata(&kube::api::ListParams::default().limit(1)).await.map_err(Error::Ask)?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let (sender, events) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while !sender.is_closed() {
                // A watch that ends is resumed at its last version.
                let Ok(stream) = api.watch(&WatchParams::default(), &version).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let mut stream = stream.boxed();
                while let Some(Ok(event)) = stream.next().await {
                    let at = Instant::now();
                    if let Some(seen) = follow(event, &mut version).and_then(read) {
                        // Fails if the observer was dropped, which also ends the task.
                        let _ = sender.send((seen, at));
                    }
                }
            }
        });
        Ok(Self { events, task })
    }

    /// Discards the events so far.
    pub(super) fn forget(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// Returns all events since the last [`Self::forget`], until none arrives for [`LATE`].
    pub(super) async fn rest(&mut self) -> Vec<(Seen, Instant)> {
        let mut seen = Vec::new();
        while let Ok(Some(event)) = tokio::time::timeout(LATE, self.events.recv()).await {
            seen.push(event);
        }
        seen
    }

    /// Waits until each object (name and state) was observed in its state since the last [`Self::forget`]. Returns the
    /// first time of each. Fails if one is missing at the deadline.
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

/// Returns the time from `start` to the last result of [`Observer::all`].
pub(super) fn until_last(start: Instant, reached: &HashMap<String, Instant>) -> Duration {
    reached.values().max().map_or(Duration::ZERO, |end| end.saturating_duration_since(start))
}

/// Updates the version of the watch. Returns the object unless it was deleted.
fn follow<K: Resource<DynamicType = ()> + Clone>(event: WatchEvent<K>, version: &mut String) -> Option<K> {
    let reached = |object: &K| object.resource_version().unwrap_or_default();
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            *version = reached(&object);
            return Some(object);
        }
        WatchEvent::Deleted(object) => *version = reached(&object),
        WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
        // The version expired: continue from the newest.
        WatchEvent::Error(_) => version.clear(),
    }
    None
}
