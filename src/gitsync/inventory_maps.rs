//! The ConfigMaps that hold the inventory of a GitSync.
//!
//! Deliberately absent: reading them (`observe`), and what is in them ([`Inventory`](crate::managed::inventory::Inventory)).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::api::names::{AGENT_MANAGER, INVENTORY_KEY, INVENTORY_LABEL};
use crate::cluster::{Apply, Cluster, Error, Guard, Kind, Propagation, Scope};
use crate::managed::inventory::Shard;
use crate::object::Digest;

/// Longest name of an inventory's ConfigMap.
const LONGEST_NAME: usize = 253;

/// The ConfigMap kind, which every API server has.
pub(super) fn config_maps() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced))
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
