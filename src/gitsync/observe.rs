//! Reads what a plan needs: the inventory, the kinds that are served, and what is there of the objects that are not
//! kept yet, with one metadata LIST per kind and never a GET per object.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::inventory_maps::{InventoryOwner, config_maps};
use super::plan::Live;
use super::resolve::Served;
use crate::api::names::{INVENTORY_KEY, INVENTORY_LABEL, SYNC_LABEL};
use crate::cluster::{Cluster, Error, Kind, Selection};
use crate::managed::Desired;
use crate::managed::inventory::{Entry, Inventory, Unreadable, uid_bytes};
use crate::managed::verdict::is_controlled;
use crate::object::{Key, Object};

/// ConfigMaps of one inventory that are read, at most: more than a million objects.
const MOST_SHARDS: usize = 64;
/// Lists under way at once.
const AT_ONCE: usize = 8;

/// What is there of the objects that were asked for.
pub(super) type Seen = HashMap<Key, Live>;
/// What we are not let see, and why.
pub(super) type Unseen = Vec<(HashSet<Key>, Error)>;

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

/// Reads the inventory of a GitSync. One that was written for another GitSync of that name, which was deleted since,
/// or by somebody else for none, says nothing about what this one manages.
pub(super) async fn inventory(cluster: &Cluster, owner: &InventoryOwner<'_>) -> Result<Found, Error> {
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

/// What carries our label, in all kinds that can be listed: an inventory for want of the real one. Objects that a
/// controller owns only copied the label.
pub(super) async fn labelled(cluster: &Cluster, label: &str) -> Result<Inventory, Error> {
    let kinds = cluster.kinds().await?.into_iter().filter(|kind| kind.listable && kind.patchable);
    let lists = stream::iter(kinds).map(|kind| async move {
        let found: Vec<ObjectMeta> =
            cluster.list_metadata(&kind, Selection::labelled(SYNC_LABEL, label)).try_collect().await?;
        Ok::<_, Error>((kind, found))
    });
    let lists: Vec<_> = lists.buffer_unordered(AT_ONCE).try_collect().await?;
    let mut inventory = Inventory::default();
    for (kind, found) in lists {
        for meta in found.iter().filter(|meta| !is_controlled(meta)) {
            let entry = Entry {
                version: Arc::clone(&kind.version),
                uid: meta.uid.as_deref().map(uid_bytes),
                ..Entry::default()
            };
            let name = meta.name.as_deref().unwrap_or_default();
            inventory.0.insert(kind.key(meta.namespace.as_deref(), name), entry);
        }
    }
    Ok(inventory)
}

/// Which of the documents' kinds the cluster serves.
pub(super) async fn served(cluster: &Cluster, objects: &[Arc<Object>]) -> Result<Served, Error> {
    let words: BTreeSet<_> = objects.iter().map(|o| (Arc::clone(&o.api_version), Arc::clone(&o.key.kind))).collect();
    let mut served = Served::new();
    for word in words {
        let kind = cluster.kind(&word.0, &word.1).await?;
        served.insert(word, kind);
    }
    Ok(served)
}

/// What is there of these objects, and those of a kind that we may not list, with the refusal. Of what is not seen
/// nobody knows whose it is: it cannot be applied.
pub(super) async fn live(cluster: &Cluster, desired: &[&Arc<Desired>], label: &str) -> Result<(Seen, Unseen), Error> {
    let mut kinds = BTreeMap::new();
    for object in desired {
        let kind = &object.kind;
        let id = (&kind.group, &kind.version, &kind.kind);
        kinds.entry(id).or_insert_with(|| (Arc::clone(kind), HashSet::new())).1.insert(object.key.clone());
    }
    let lists = stream::iter(kinds.into_values()).map(|(kind, keys)| async move {
        let found = of_kind(cluster, &kind, &keys, label).await;
        (keys, found)
    });
    let mut lists = lists.buffer_unordered(AT_ONCE);
    let (mut seen, mut unseen) = (Seen::new(), Unseen::new());
    while let Some((keys, found)) = lists.next().await {
        match found {
            Ok(found) => seen.extend(found),
            Err(error) if error.is_forbidden() => unseen.push((keys, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((seen, unseen))
}

async fn of_kind(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    keys: &HashSet<Key>,
    label: &str,
) -> Result<HashMap<Key, Live>, Error> {
    let mut found = HashMap::new();
    let mut list = cluster.list_metadata(kind, narrowest(kind, keys));
    while let Some(meta) = list.next().await {
        let meta = match meta {
            Ok(meta) => meta,
            // A kind that a definition of this very commit brings is not served yet.
            Err(error) if error.is_not_found() => break,
            Err(error) => return Err(error),
        };
        let key = kind.key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
        if keys.contains(&key) {
            found.insert(key, Live::of(&meta, label, Timestamp::now()));
        }
    }
    Ok(found)
}

/// The smallest list that shows all of these objects.
fn narrowest(kind: &Kind, keys: &HashSet<Key>) -> Selection {
    let mut namespaces = keys.iter().map(|key| key.namespace.as_deref());
    let first = namespaces.next().flatten();
    if let [only] = keys.iter().collect::<Vec<_>>().as_slice() {
        return Selection::named(only.namespace.as_deref(), &only.name).metadata_only();
    }
    match first.filter(|first| kind.namespaced && namespaces.all(|other| other == Some(first))) {
        Some(namespace) => Selection::default().within(namespace),
        None => Selection::default(),
    }
}
