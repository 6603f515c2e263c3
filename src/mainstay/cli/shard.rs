//! The shard that looks after a GitSync, as the Leases of the agents show it.

use std::sync::Arc;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use serde_json::Value;

use super::{connection::DEFAULT_NAMESPACE, lease};
use mainstay_api::GitSync;
use mainstay_api::names::{SHARD, SHARD_LEASE, SHARD_LEASE_MEMBER};
use mainstay_cluster::shards::{Member, members_of};
use mainstay_cluster::{Cluster, Kind, Scope, Selection};

/// Returns the shard of a GitSync. `None` without shards, or if the user may not read the Leases.
pub(super) async fn of(cluster: &Cluster, sync: &GitSync) -> Option<Member> {
    let selection = Selection::labelled(SHARD_LEASE, SHARD_LEASE_MEMBER).within(DEFAULT_NAMESPACE);
    let leases: Vec<Value> = cluster.list(&Arc::new(lease::kind()), selection).try_collect().await.ok()?;
    let now = Timestamp::now();
    let members = members_of(leases.iter().filter(|one| lease::is_held(&one["spec"], now)));
    let metadata = &sync.metadata;
    let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
    if members.count() == 0 {
        return None;
    }
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(SHARD)).and_then(|shard| Member::parse(shard));
    let pin = match label {
        Some(label) => Some(label),
        None => pin_of_namespace(cluster, namespace).await,
    };
    members.owner(namespace, name, pin)
}

async fn pin_of_namespace(cluster: &Cluster, namespace: &str) -> Option<Member> {
    let kind = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
    let metadata = cluster.get_metadata(&kind, None, namespace).await.ok()??;
    Member::parse(metadata.labels?.get(SHARD)?)
}
