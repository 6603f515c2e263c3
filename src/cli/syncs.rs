//! How commands read GitSyncs.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Error;
use crate::{
    api::GitSync,
    cluster::{Cluster, Kind, Selection},
};

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
        return Err(Error::NoSync { namespace: namespace.to_owned() });
    }
    values.into_iter().map(understand).collect()
}

/// The typed object in a response of the API server.
pub(super) fn understand<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    let what = format!("{} {}", value["kind"], value["metadata"]["name"]).replace('"', "");
    serde_json::from_value(value).map_err(|cause| Error::Understand { what, cause })
}

/// `GitSync namespace/name`.
pub(super) fn name(sync: &GitSync) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("GitSync {}/{}", part(&sync.metadata.namespace), part(&sync.metadata.name))
}

/// The first 8 characters of a commit id.
pub(super) fn short(commit: &str) -> String {
    commit.chars().take(8).collect()
}
