//! What becomes of the load, seen through a watch of its own: when each ConfigMap has reached which state.
//!
//! The moment of an event's arrival stands for the moment at which the server answered the write: it comes no earlier
//! than the write, and on one machine a fraction of a millisecond later.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::sync::mpsc;

use super::Error;
use crate::api::names;

/// One ConfigMap as an event showed it.
#[derive(Debug)]
struct Seen {
    name: String,
    /// `data.revision`.
    revision: String,
    /// Whether it carries the label of a managed object.
    labelled: bool,
    at: Instant,
}

/// Sees every change of the load.
pub(super) struct Observer {
    events: mpsc::UnboundedReceiver<Seen>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Observer {
    /// Sees changes from now on.
    pub(super) async fn start(api: Api<ConfigMap>) -> Result<Self, Error> {
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
                    follow(event, &mut version, &sender);
                }
            }
        });
        Ok(Self { events, task })
    }

    /// Forgets what was seen until now.
    pub(super) fn forget(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// Waits until each of these ConfigMaps (name and revision) was seen managed and at its revision by an event that
    /// came after the last [`Self::forget`]. Returns when each was first seen so; whoever is missing at the deadline is
    /// an error.
    pub(super) async fn all(
        &mut self,
        mut wanted: HashMap<String, String>,
        deadline: Duration,
    ) -> Result<HashMap<String, Instant>, Error> {
        let end = tokio::time::Instant::now() + deadline;
        let mut reached = HashMap::with_capacity(wanted.len());
        while !wanted.is_empty() {
            let Ok(Some(seen)) = tokio::time::timeout_at(end, self.events.recv()).await else {
                return Err(Error::NotReached { missing: wanted.len(), seconds: deadline.as_secs() });
            };
            if seen.labelled && wanted.get(&seen.name).is_some_and(|revision| *revision == seen.revision) {
                wanted.remove(&seen.name);
                reached.insert(seen.name, seen.at);
            }
        }
        Ok(reached)
    }
}

fn follow(event: WatchEvent<ConfigMap>, version: &mut String, sender: &mpsc::UnboundedSender<Seen>) {
    let at = Instant::now();
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            version.clone_from(&object.metadata.resource_version.unwrap_or_default());
            let label = |labels: std::collections::BTreeMap<String, String>| labels.contains_key(names::SYNC_LABEL);
            let seen = Seen {
                name: object.metadata.name.unwrap_or_default(),
                revision: object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default(),
                labelled: object.metadata.labels.is_some_and(label),
                at,
            };
            // Nobody listens any more: the task ends with the observer.
            let _ = sender.send(seen);
        }
        WatchEvent::Deleted(object) => version.clone_from(&object.metadata.resource_version.unwrap_or_default()),
        WatchEvent::Bookmark(bookmark) => version.clone_from(&bookmark.metadata.resource_version),
        // The server forgot the version: go on from the newest.
        WatchEvent::Error(_) => version.clear(),
    }
}
