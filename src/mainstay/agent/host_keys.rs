//! Watches the ConfigMap with the SSH host keys for all repositories.
//!
//! Invariant: while it cannot be read, the last known keys apply. Before the first read, no key is known.

use futures::StreamExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{KNOWN_HOSTS, KNOWN_HOSTS_KEY};
use mainstay_cluster::{Cluster, Kind, Scope, Selection, WatchEvent};
use mainstay_git::{SharedHostKeys, Source};

/// Watches the ConfigMap in this namespace until `stop`.
pub(super) async fn follow(source: Source, cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    let mut events = cluster.watch(&kind, Selection::named(Some(&namespace), KNOWN_HOSTS));
    let (mut listed, mut is_known) = (SharedHostKeys::Published, false);
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            WatchEvent::Begin => listed = SharedHostKeys::Published,
            WatchEvent::Initial(value) => listed = read(&value),
            WatchEvent::Applied(value) => source.set_host_keys(read(&value)),
            WatchEvent::Deleted(_) => source.set_host_keys(SharedHostKeys::Published),
            WatchEvent::Synced(_) => {
                is_known = true;
                source.set_host_keys(listed.clone());
            }
            WatchEvent::Failed(error) | WatchEvent::Unreadable(_, error) => {
                let why = mainstay_object::failure::chain(&error);
                tracing::warn!(why, "the ConfigMap {KNOWN_HOSTS} cannot be read");
                if !is_known {
                    source.set_host_keys(SharedHostKeys::Unknown(Some(why)));
                }
            }
            WatchEvent::Resumed => {}
        }
    }
}

/// Reads the keys of a ConfigMap. Without this field it has none.
fn read(config_map: &Value) -> SharedHostKeys {
    let text = config_map["data"][KNOWN_HOSTS_KEY].as_str().unwrap_or_default();
    SharedHostKeys::Lines(text.into())
}
