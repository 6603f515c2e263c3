//! Live objects of a Function: its GitRepository, and the objects that refer to it.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde_json::Value;

use super::{
    companions::{self, Companion},
    config::Schema,
};
use crate::cli::{Error, connection::own_kind, syncs::understand};
use mainstay_api::{GitRepository, GitRepositorySpec};
use mainstay_cluster::{Cluster, Kind, Selection};

/// Returns the spec of a GitRepository, if it exists.
pub(super) async fn repository(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<Option<GitRepositorySpec>, Error> {
    let kind = own_kind::<GitRepository>(cluster).await?;
    let found = cluster.get(&kind, Some(namespace), name).await?;
    found.map(|found| understand::<GitRepository>(found).map(|repository| repository.spec)).transpose()
}

/// Returns the objects that refer to a Function in its namespace, each with its kind. `schema` selects the version if
/// two are served.
pub(super) async fn referring(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    schema: Schema,
) -> Result<Vec<(Arc<Kind>, Value)>, Error> {
    let mut seen: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for Companion { api_version, kind } in companions::all(schema) {
        if seen.contains(&kind) {
            continue;
        }
        let Some(served) = cluster.kind(api_version, kind).await? else { continue };
        seen.push(kind);
        let listed: Vec<Value> = cluster.list(&served, Selection::default().within(namespace)).try_collect().await?;
        for mut object in listed {
            // Items of a list may lack apiVersion and kind.
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            if companions::refers_to(&object, namespace, name) {
                all.push((Arc::clone(&served), object));
            }
        }
    }
    Ok(all)
}
