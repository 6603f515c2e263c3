//! The managed objects of a GitSync as the cluster records them: its inventory, and the source locations of the objects
//! in the repository. Used by commands, which run outside of the agent.
//!
//! Not here: decisions. The agent reads inventories itself (`inventory`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::abroad::Abroad;
use super::inventory::{InventoryOwner, MOST_SHARDS, content, read_config_maps};
use super::placement::label;
use mainstay_api::GitSync;
use mainstay_api::names::{INVENTORY_KEY, PLACES_KEY};
use mainstay_cluster::{Cluster, Error};
use mainstay_engine::managed::inventory::{Entry, Inventory};
use mainstay_engine::managed::places::Places;
use mainstay_object::{Key, Place};

/// The recorded objects of a GitSync.
#[derive(Clone, Debug)]
pub enum Listing {
    /// There is no inventory: no object was ever applied.
    Missing,
    /// The inventory cannot be read. The agent rebuilds it.
    Damaged,
    /// The objects and the inventory are in a remote cluster.
    Elsewhere,
    /// The inventory.
    Whole(Listed),
}

/// An inventory as read.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Every object with its entry.
    pub objects: BTreeMap<Key, Entry>,
    /// The source locations of objects in the repository, each with the commit.
    pub places: HashMap<Key, (Arc<str>, Place)>,
}

/// Reads the inventory of a GitSync in its own cluster.
pub async fn listing(cluster: &Cluster, sync: &GitSync) -> Result<Listing, Error> {
    if sync.spec.kube_config.is_some() { Ok(Listing::Elsewhere) } else { listing_by(cluster, None, sync).await }
}

/// Reads the inventory of a GitSync in a remote cluster.
pub async fn listing_in(other: &Abroad, sync: &GitSync) -> Result<Listing, Error> {
    listing_by(&other.cluster, other.home.as_deref(), sync).await
}

async fn listing_by(cluster: &Cluster, home: Option<&str>, sync: &GitSync) -> Result<Listing, Error> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, uid) = (text(&sync.metadata.namespace), text(&sync.metadata.name), text(&sync.metadata.uid));
    let label = label(&namespace, &name);
    let owner = InventoryOwner { namespace: &namespace, name: &name, uid: &uid, label: &label, home };
    let maps = read_config_maps(cluster, &owner).await?;
    if maps.is_empty() {
        return Ok(Listing::Missing);
    }
    let contents: Option<Vec<_>> = maps.iter().map(|map| content(map, INVENTORY_KEY)).collect();
    let Some(contents) = contents.filter(|contents| contents.len() <= MOST_SHARDS) else {
        return Ok(Listing::Damaged);
    };
    let Ok(inventory) = Inventory::decode(contents.iter().map(Vec::as_slice)) else { return Ok(Listing::Damaged) };
    let mut listed = Listed { objects: inventory.0.into_iter().collect(), ..Listed::default() };
    for (map, shard) in maps.iter().zip(&contents) {
        let (Some(places), Ok(keys)) = (content(map, PLACES_KEY), Inventory::keys_of(shard)) else { continue };
        // The locations belong to other objects or were written by another version, so they are unknown.
        let Ok(places) = Places::decode(&places, &keys.iter().collect::<Vec<_>>()) else { continue };
        let commit: Arc<str> = places.commit.into();
        listed.places.extend(places.of.into_iter().map(|(key, place)| (key, (Arc::clone(&commit), place))));
    }
    Ok(Listing::Whole(listed))
}
