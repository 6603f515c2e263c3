//! The ConfigMaps in which the inventory of a GitSync is written down: read, written, deleted.
//!
//! Invariant: an inventory that was written for another GitSync of the same name, or by somebody else, is not read.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::api::names::{AGENT_MANAGER, INVENTORY_KEY, INVENTORY_LABEL};
use crate::cluster::{Apply, Cluster, Error, Guard, Kind, Propagation, Scope, Selection};
use crate::managed::inventory::{Inventory, Shard, Unreadable};
use crate::object::Digest;

/// Longest name of a ConfigMap.
const LONGEST_NAME: usize = 253;
/// ConfigMaps of one inventory that are read, at most: more than a million objects.
const MOST_SHARDS: usize = 64;

/// Whose inventory it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct InventoryOwner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) label: &'a str,
}

impl InventoryOwner<'_> {
    fn config_map(&self, index: usize) -> String {
        let name = format!("mainstay-inventory-{}-{index}", self.name);
        if name.len() <= LONGEST_NAME {
            return name;
        }
        format!("mainstay-inventory-{}-{index}", Digest::of(self.name.as_bytes()))
    }
}

/// The inventory as it was found.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there.
    Whole(Inventory),
    /// There is none.
    Missing,
    /// There is one that cannot be read.
    Damaged,
}

/// The ConfigMap kind, which every API server has.
fn config_maps() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced))
}

/// Reads the inventory of a GitSync. One that was written for another GitSync of that name, which was deleted since,
/// or by somebody else for none, says nothing about what this one manages.
pub(super) async fn read(cluster: &Cluster, owner: &InventoryOwner<'_>) -> Result<Found, Error> {
    let selection = Selection::labelled(INVENTORY_LABEL, owner.label).within(owner.namespace);
    let list = cluster.list(&config_maps(), selection);
    let own = list.try_filter(|map| std::future::ready(is_owned_by(map, owner.uid)));
    let maps: Vec<Value> = own.take(MOST_SHARDS + 1).try_collect().await?;
    if maps.len() > MOST_SHARDS {
        return Ok(Found::Damaged);
    }
    if maps.is_empty() {
        return Ok(Found::Missing);
    }
    let contents: Result<Vec<Vec<u8>>, Unreadable> = maps
        .iter()
        .map(|map| {
            let text = map.pointer("/binaryData").and_then(|data| data.get(INVENTORY_KEY)).and_then(Value::as_str);
            STANDARD.decode(text.ok_or(Unreadable)?).map_err(|_| Unreadable)
        })
        .collect();
    let read = contents.and_then(|contents| Inventory::decode(contents.iter().map(Vec::as_slice)));
    Ok(read.map_or(Found::Damaged, Found::Whole))
}

fn is_owned_by(map: &Value, uid: &str) -> bool {
    let owners = map.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(uid))
}

/// Writes those ConfigMaps of an inventory that differ from what `written` says, which is updated.
pub(super) async fn write(
    cluster: &Cluster,
    owner: &InventoryOwner<'_>,
    shards: &[Shard],
    written: &mut BTreeMap<usize, Digest>,
) -> Result<(), Error> {
    for shard in shards {
        let digest = Digest::of(&shard.content);
        if written.get(&shard.index) == Some(&digest) {
            continue;
        }
        let name = owner.config_map(shard.index);
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name, "namespace": owner.namespace, "labels": {INVENTORY_LABEL: owner.label},
                "ownerReferences": [{
                    "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "name": owner.name, "uid": owner.uid,
                }],
            },
            "binaryData": {INVENTORY_KEY: STANDARD.encode(&shard.content)},
        });
        cluster.apply(&config_maps(), Some(owner.namespace), &name, &body, Apply::forced(AGENT_MANAGER)).await?;
        written.insert(shard.index, digest);
    }
    Ok(())
}

/// Deletes the ConfigMaps of an inventory.
pub(super) async fn delete(
    cluster: &Cluster,
    owner: &InventoryOwner<'_>,
    written: &BTreeMap<usize, Digest>,
) -> Result<(), Error> {
    let last = written.keys().last().copied().unwrap_or(0);
    for index in 0..=last {
        let name = owner.config_map(index);
        cluster.delete(&config_maps(), Some(owner.namespace), &name, Guard::default(), Propagation::Background).await?;
    }
    Ok(())
}
