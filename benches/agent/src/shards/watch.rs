//! Watches the ConfigMaps of the load, with their resource versions and deletions.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinHandle};

use super::{Error, load::PREFIX};

/// Delay after a watch was refused.
const AGAIN: Duration = Duration::from_millis(100);

/// An event of an object of the load.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    pub name: String,
    pub version: u64,
    /// Its `data.revision`; `None` if the object was deleted.
    pub revision: Option<String>,
    pub at: Instant,
}

/// The watch. It ends when this is dropped.
pub(super) struct Watch {
    events: mpsc::UnboundedReceiver<Watched>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Starts watching.
    pub(super) async fn start(api: Api<ConfigMap>) -> Result<Self, Error> {
        let version = version(&api).await?.to_string();
        let (sender, events) = mpsc::unbounded_channel();
        let read =
            |object: ConfigMap, is_there| object.name_any().starts_with(PREFIX).then(|| watched(object, is_there));
        Ok(Self { events, task: tokio::spawn(follow(api, WatchParams::default(), version, sender, read)) })
    }

    /// Returns the next event, or `None` at this time.
    pub(super) async fn next(&mut self, until: Instant) -> Option<Watched> {
        let until = tokio::time::Instant::from_std(until);
        if let Ok(Some(event)) = tokio::time::timeout_at(until, self.events.recv()).await {
            return Some(event);
        }
        tokio::time::sleep_until(until).await;
        None
    }
}

/// Returns the present resource version: that of all writes so far, or a higher one.
pub(super) async fn version(api: &Api<ConfigMap>) -> Result<u64, Error> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await.map_err(Error::Ask)?;
    Ok(number(list.metadata.resource_version.as_deref()))
}

/// Returns a resource version as a number. API servers that are not conforming have others, which count as 0.
pub(super) fn number(version: Option<&str>) -> u64 {
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Watches objects from a resource version on, or all if it is empty. `read` returns the event for an object that is there,
/// or was deleted.
pub(super) async fn follow<K, T>(
    api: Api<K>,
    selected: WatchParams,
    mut version: String,
    sender: mpsc::UnboundedSender<T>,
    mut read: impl FnMut(K, bool) -> Option<T> + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    T: Send + 'static,
{
    while !sender.is_closed() {
        let stream = match api.watch(&selected, &version).await {
            Ok(stream) => stream,
            Err(error) => {
                if matches!(error, kube::Error::Api(_)) {
                    // The version may have expired. The objects are compared at the end.
                    version.clear();
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let mut stream = stream.boxed();
        while let Some(Ok(event)) = stream.next().await {
            let (object, is_there) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                WatchEvent::Deleted(object) => (object, false),
                WatchEvent::Bookmark(bookmark) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                    continue;
                }
                WatchEvent::Error(_) => {
                    version.clear();
                    continue;
                }
            };
            version = object.resource_version().unwrap_or_default();
            if let Some(event) = read(object, is_there) {
                // Fails if the watch was dropped, which also ends the task.
                let _ = sender.send(event);
            }
        }
    }
}

fn watched(object: ConfigMap, is_there: bool) -> Watched {
    Watched {
        name: object.name_any(),
        version: number(object.metadata.resource_version.as_deref()),
        revision: is_there.then(|| object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default()),
        at: Instant::now(),
    }
}
