//! How commands read GitSyncs.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Error;
use mainstay_api::{GitRepository, GitSync};
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_git::RemoteUrl;
use mainstay_object::Key;

/// Those of the selection; at least one.
pub(super) async fn select(cluster: &Cluster, kind: &Arc<Kind>, selection: &Selection) -> Result<Vec<GitSync>, Error> {
    let values: Vec<Value> = cluster.list(kind, selection.clone()).try_collect().await?;
    if values.is_empty() {
        return Err(none(selection));
    }
    values.into_iter().map(understand).collect()
}

/// How to tell whether its objects are healthy. While that cannot be read, the agent goes on with what it had.
pub(super) fn health_rules(sync: &GitSync) -> HealthRules {
    HealthRules::parse(&sync.spec.health_check_exprs).unwrap_or_default()
}

/// There is none of the selection.
fn none(selection: &Selection) -> Error {
    match (selection.namespace(), selection.name()) {
        (Some(namespace), Some(name)) => Error::Missing { what: format!("GitSync {namespace}/{name}") },
        (namespace, _) => Error::NoSync { namespace: namespace.map(str::to_owned) },
    }
}

/// The GitSync of this name, or all of the namespace; at least one.
pub(super) async fn read(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    namespace: &str,
    name: Option<&str>,
) -> Result<Vec<GitSync>, Error> {
    if let Some(name) = name {
        let found = cluster.get(kind, Some(namespace), name).await?;
        let found = found.ok_or_else(|| Error::Missing { what: format!("GitSync {namespace}/{name}") })?;
        return Ok(vec![understand(found)?]);
    }
    let values: Vec<Value> = cluster.list(kind, Selection::default().within(namespace)).try_collect().await?;
    if values.is_empty() {
        return Err(Error::NoSync { namespace: Some(namespace.to_owned()) });
    }
    values.into_iter().map(understand).collect()
}

/// The typed object in a response of the API server.
pub(super) fn understand<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    let what = format!("{} {}", value["kind"], value["metadata"]["name"]).replace('"', "");
    serde_json::from_value(value).map_err(|cause| Error::Understand { what, cause })
}

/// Its identity.
pub(super) fn key(sync: &GitSync) -> Key {
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    Key::new("mainstay.dev", "GitSync", sync.metadata.namespace.as_deref(), name)
}

/// `GitSync namespace/name`.
pub(super) fn name(sync: &GitSync) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("GitSync {}/{}", part(&sync.metadata.namespace), part(&sync.metadata.name))
}

/// Where a repository is. An address may contain a password; a parsed one is shown without it.
pub(super) fn address(repository: &GitRepository) -> Option<String> {
    RemoteUrl::parse(&repository.spec.url).ok().map(|url| url.to_string())
}

/// The first 8 characters of a commit id.
pub(super) fn short(commit: &str) -> String {
    commit.chars().take(8).collect()
}

/// A duration for people.
pub(super) fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}
