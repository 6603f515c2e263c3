//! The managed objects of a GitSync as the cluster records them: its inventory, and the source locations of the objects
//! in the repository. Used by commands, which run outside of the agent.
//!
//! Invariant: ConfigMaps are decoded one after the other, and the memory of the decoded objects is limited. Tenants may write
//! such ConfigMaps.
//!
//! Not here: decisions. The agent reads inventories itself (`inventory`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::Value;

use super::abroad::Abroad;
use super::inventory::{InventoryOwner, MOST_SHARDS, content, own_config_maps};
use super::placement::label;
use mainstay_api::GitSync;
use mainstay_api::names::{INVENTORY_KEY, PLACES_KEY};
use mainstay_cluster::{Cluster, Error, MemoryBudget};
use mainstay_engine::managed::inventory::{Entry, Inventory, Parts};
use mainstay_engine::managed::places::Places;
use mainstay_object::{Key, Place};

/// Maximum memory of the objects of an inventory, in bytes. The largest one that the agent reads takes less.
const LARGEST: usize = 40 << 20;
/// Approximate memory of an entry, and of a source location, without their names, in bytes.
const ENTRY: usize = 280;
const LOCATION: usize = 200;

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
    /// The source locations of objects in the repository, each with the commit. Only [`Listing::within`] reads them.
    pub places: HashMap<Key, (Arc<str>, Place)>,
}

/// Why the ConfigMaps of an inventory are not read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Damaged,
    NoMemory,
}

/// Whether the source locations of the objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locations {
    /// They are read.
    Read,
    /// They are unknown.
    Omitted,
}

/// The decoded ConfigMaps of an inventory.
struct Decoded<'m> {
    memory: &'m MemoryBudget,
    /// Bytes of the memory that these ConfigMaps take.
    taken: usize,
    locations: Locations,
    count: usize,
    parts: Parts,
    places: HashMap<Key, (Arc<str>, Place)>,
}

/// Reads the inventory of a GitSync in its own cluster, without source locations.
pub async fn listing(cluster: &Cluster, sync: &GitSync) -> Result<Listing, Error> {
    if sync.spec.kube_config.is_some() { Ok(Listing::Elsewhere) } else { objects(cluster, None, sync).await }
}

/// Reads the inventory of a GitSync in a remote cluster, without source locations.
pub async fn listing_in(other: &Abroad, sync: &GitSync) -> Result<Listing, Error> {
    objects(&other.cluster, other.home.as_deref(), sync).await
}

async fn objects(cluster: &Cluster, home: Option<&str>, sync: &GitSync) -> Result<Listing, Error> {
    let memory = MemoryBudget::new(LARGEST);
    let read = listing_by(cluster, home, sync, Decoded::new(&memory, Locations::Omitted)).await?;
    Ok(read.unwrap_or(Listing::Damaged))
}

impl Listing {
    /// Reads the inventory of a GitSync in its own cluster, within a memory that several inventories may share. Returns `None`
    /// if the objects have no memory. Source locations without memory are unknown.
    pub async fn within(
        cluster: &Cluster,
        sync: &GitSync,
        locations: Locations,
        memory: &MemoryBudget,
    ) -> Result<Option<Self>, Error> {
        if sync.spec.kube_config.is_some() {
            return Ok(Some(Self::Elsewhere));
        }
        listing_by(cluster, None, sync, Decoded::new(memory, locations)).await
    }
}

async fn listing_by(
    cluster: &Cluster,
    home: Option<&str>,
    sync: &GitSync,
    mut decoded: Decoded<'_>,
) -> Result<Option<Listing>, Error> {
    let memory = decoded.memory;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, uid) = (text(&sync.metadata.namespace), text(&sync.metadata.name), text(&sync.metadata.uid));
    let label = label(&namespace, &name);
    let owner = InventoryOwner { namespace: &namespace, name: &name, uid: &uid, label: &label, home };
    let mut maps = own_config_maps(cluster, &owner);
    let mut added = Ok(());
    while let (Ok(()), Some(map)) = (added, maps.next().await) {
        added = decoded.add(&map?);
    }
    let taken = decoded.taken;
    let listing = match added {
        Ok(()) => Some(decoded.join()),
        Err(Stop::Damaged) => Some(Listing::Damaged),
        Err(Stop::NoMemory) => None,
    };
    if !matches!(listing, Some(Listing::Whole(_))) {
        memory.give_back(taken);
    }
    Ok(listing)
}

impl<'m> Decoded<'m> {
    fn new(memory: &'m MemoryBudget, locations: Locations) -> Self {
        Self { memory, taken: 0, locations, count: 0, parts: Parts::default(), places: HashMap::new() }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let has_memory = self.memory.take(bytes);
        self.taken += if has_memory { bytes } else { 0 };
        has_memory
    }

    /// Adds a ConfigMap.
    fn add(&mut self, map: &Value) -> Result<(), Stop> {
        self.count += 1;
        if self.count > MOST_SHARDS {
            return Err(Stop::Damaged);
        }
        let shard = content(map, INVENTORY_KEY).ok_or(Stop::Damaged)?;
        let keys = Inventory::keys_of(&shard).map_err(|_| Stop::Damaged)?;
        if !self.take(keys.iter().map(|key| ENTRY + key.name.len()).sum()) {
            return Err(Stop::NoMemory);
        }
        self.parts.add(&shard).map_err(|_| Stop::Damaged)?;
        if self.locations == Locations::Read {
            self.add_places(map, &keys);
        }
        Ok(())
    }

    /// Adds the source locations of a shard's objects. They stay unknown if they have no memory, belong to other objects, or were
    /// written by another version.
    fn add_places(&mut self, map: &Value, keys: &[Key]) {
        let Some(places) = content(map, PLACES_KEY) else { return };
        let Ok(places) = Places::decode(&places, &keys.iter().collect::<Vec<_>>()) else { return };
        let size = |(key, place): (&Key, &Place)| LOCATION + key.name.len() + place.file.len();
        if !self.take(places.of.iter().map(size).sum()) {
            return;
        }
        let commit: Arc<str> = places.commit.into();
        self.places.extend(places.of.into_iter().map(|(key, place)| (key, (Arc::clone(&commit), place))));
    }

    /// Joins the ConfigMaps.
    fn join(self) -> Listing {
        if self.count == 0 {
            return Listing::Missing;
        }
        let Ok((inventory, _)) = self.parts.join() else { return Listing::Damaged };
        Listing::Whole(Listed { objects: inventory.0.into_iter().collect(), places: self.places })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    use super::*;

    /// Returns the ConfigMap of an inventory with so many objects, and their source locations.
    fn map(count: usize) -> Value {
        let key = |number: usize| Key::new("", "ConfigMap", Some("shop"), format!("settings-{number}"));
        let inventory = Inventory((0..count).map(|number| (key(number), Entry::default())).collect());
        let shard = inventory.encode().pop().unwrap();
        let place = Place::file("settings.yaml");
        let places = Places::encode("1234", shard.keys.iter().map(|key| (key, Some(&place)))).unwrap();
        json!({"binaryData": {INVENTORY_KEY: STANDARD.encode(&shard.content), PLACES_KEY: STANDARD.encode(places)}})
    }

    /// Decodes ConfigMaps within so much memory. Returns the numbers of objects and of locations.
    fn decode(maps: &[Value], bytes: usize) -> Result<Option<(usize, usize)>, Stop> {
        let memory = MemoryBudget::new(bytes);
        let mut decoded = Decoded::new(&memory, Locations::Read);
        maps.iter().try_for_each(|map| decoded.add(map))?;
        Ok(match decoded.join() {
            Listing::Whole(listed) => Some((listed.objects.len(), listed.places.len())),
            _ => None,
        })
    }

    #[test]
    fn an_inventory_takes_no_more_than_its_memory() {
        let maps = [map(1000)];
        assert_eq!(decode(&maps, 1 << 20), Ok(Some((1000, 1000))));
        assert_eq!(decode(&maps, 400 << 10), Ok(Some((1000, 0))), "locations are left out first");
        assert_eq!(decode(&maps, 100 << 10), Err(Stop::NoMemory));
        assert_eq!(decode(&[], 0), Ok(None));
        let memory = MemoryBudget::new(1 << 20);
        let mut objects = Decoded::new(&memory, Locations::Omitted);
        assert_eq!(objects.add(&maps[0]), Ok(()));
        assert!(objects.places.is_empty());
    }

    #[test]
    fn inventories_share_a_memory() {
        let (memory, map) = (MemoryBudget::new(1 << 20), map(1000));
        let added: Vec<_> = (0..3).map(|_| Decoded::new(&memory, Locations::Read).add(&map)).collect();
        assert_eq!(added, [Ok(()), Ok(()), Err(Stop::NoMemory)]);
        assert_eq!(memory.note("cut").as_deref(), Some("cut, because they take more than 1 MiB of memory"));
    }

    #[test]
    fn forged_config_maps_are_not_all_decoded() {
        let map = json!({"binaryData": {INVENTORY_KEY: STANDARD.encode("no inventory")}});
        assert_eq!(decode(&[map], 1 << 20), Err(Stop::Damaged));
        let memory = MemoryBudget::new(1 << 20);
        let mut decoded = Decoded { count: MOST_SHARDS, ..Decoded::new(&memory, Locations::Read) };
        assert_eq!(decoded.add(&self::map(1)), Err(Stop::Damaged), "the agent reads fewer ConfigMaps");
    }
}
