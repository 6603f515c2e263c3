//! Watches the ConfigMap with the SSH host keys for all repositories.
//!
//! Invariant: while the ConfigMap cannot be read, the last known keys apply. Before the first read, no key is known.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{KNOWN_HOSTS, KNOWN_HOSTS_KEY};
use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::{Cluster, Kind, Scope, Selection};
use mainstay_git::{SharedHostKeys, Source};
use mainstay_object::failure::chain;

/// Watches the ConfigMap in this namespace until `stop`.
pub(super) async fn follow(source: Source, cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    let selection = Selection::named(Some(&namespace), KNOWN_HOSTS);
    let mut reflector = cluster.reflect(&kind, selection, |live| Ok(Some(read(live))));
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        match change {
            Change::Changed { live, .. } => source.set_host_keys(read(&live)),
            Change::Complete { .. } if reflector.cache().get(&namespace, KNOWN_HOSTS).is_some() => {}
            Change::Gone { .. } | Change::Complete { .. } => source.set_host_keys(SharedHostKeys::Published),
            Change::Failed(error) => {
                let why = chain(&error);
                tracing::warn!(why, "the ConfigMap {KNOWN_HOSTS} cannot be read");
                set_unknown(&source, &reflector, why);
            }
            Change::Unreadable { why, .. } => set_unknown(&source, &reflector, why),
            Change::Resumed => {}
        }
    }
}

/// Records why no key is known, unless an earlier read succeeded.
fn set_unknown(source: &Source, reflector: &Reflector<SharedHostKeys>, why: String) {
    if !reflector.cache().is_complete() {
        source.set_host_keys(SharedHostKeys::Unknown(Some(why)));
    }
}

/// Reads the keys of a ConfigMap. Without the field for keys, the ConfigMap has no keys.
fn read(config_map: &Value) -> SharedHostKeys {
    let text = config_map["data"][KNOWN_HOSTS_KEY].as_str().unwrap_or_default();
    SharedHostKeys::Lines(text.into())
}
