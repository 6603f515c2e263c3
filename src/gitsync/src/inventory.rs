//! The inventory of a GitSync: read from its ConfigMaps, written to them, and published to the other GitSyncs.
//!
//! Invariant: objects are listed before they are created. An object that the commit lacks leaves the inventory only
//! when it is gone, no longer belongs to the GitSync, or is listed by another GitSync as applied.
//! Invariant: an inventory of another GitSync with the same name, or one that a user wrote, is not read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::attempt::Attempt;
use super::outcome::Refused;
use super::registry::Elsewhere;
use super::written_inventory::WrittenInventory;
use mainstay_api::conditions::Reason;
use mainstay_api::names::{
    AGENT_MANAGER, GIT_SYNC_UID, HOME_CLUSTER, INVENTORY_KEY, INVENTORY_LABEL, PLACES_KEY, SYNC_LABEL,
};
use mainstay_cluster::{Apply, Cause, Cluster, Error, Kind, Scope, Selection};
use mainstay_engine::apply::Writer;
use mainstay_engine::managed::Part;
use mainstay_engine::managed::deletion::is_applied_by_us;
use mainstay_engine::managed::inventory::{Entry, Inventory, Parts, Shard};
use mainstay_engine::managed::places::Places;
use mainstay_engine::managed::verdict::is_controlled;
use mainstay_object::failure::Class;
use mainstay_object::{Digest, Key, Place, printable};

/// Maximum length of the name of a ConfigMap.
const LONGEST_NAME: usize = 253;
/// Maximum number of ConfigMaps that are read for one inventory. An inventory lists the objects of two commits at most.
pub(super) const MOST_SHARDS: usize = 12;
/// Maximum size of an inventory that does not count as memory, in bytes.
const SMALL_INVENTORY: usize = 16 << 10;
/// Maximum size of the ConfigMap of a small inventory with its metadata, in bytes. It has room for hundreds of objects.
const SMALL_MAP: usize = 64 << 10;
/// Maximum number of concurrent lists.
const AT_ONCE: usize = 8;

/// The GitSyncs that have not yet taken over the objects that the owner of the inventory gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    Nobody,
    /// Confined GitSyncs, while this GitSync is unconfined. The commits of this GitSync do not wait for confined
    /// GitSyncs.
    Tenants,
    Peers,
}

impl Attempt<'_> {
    pub(super) fn inventory_owner(&self) -> InventoryOwner<'_> {
        InventoryOwner {
            namespace: self.namespace(),
            name: self.name(),
            uid: self.sync.metadata.uid.as_deref().unwrap_or_default(),
            label: self.label,
            home: self.context.place.as_ref().and_then(|place| place.home.as_deref()),
        }
    }

    /// Reads the inventory, once.
    pub(super) async fn load_inventory(&mut self) -> Result<(), Refused> {
        if self.inventory().is_some() {
            return Ok(());
        }
        let cluster = self.context.writer.cluster();
        let status = self.sync.status.as_ref();
        // A commit without objects, or one that could not be decoded, leaves no inventory.
        let applied_before = status.is_some_and(|s| s.objects > 0 || !s.held.is_empty());
        let names = self.inventory_maps().await;
        let small = self.read_small_inventory(names.as_deref()).await?;
        // A large inventory and a rebuild take much memory. The semaphore is never closed.
        let is_cheap = match &small {
            Some(Found::Whole(..)) => true,
            Some(Found::Missing) => !applied_before,
            _ => false,
        };
        let _permit = if is_cheap { None } else { self.context.loading.acquire().await.ok() };
        let found = match small {
            Some(found) => found,
            None => self.read_named_inventory(names).await?,
        };
        let inventory = match found {
            Found::Whole(inventory, written) => {
                self.state.inventory.read(written);
                inventory
            }
            Found::Foreign(home) => return Err(self.foreign(&home)),
            Found::Missing if !applied_before => Inventory::default(),
            Found::Missing | Found::Damaged => {
                self.state.inventory.rebuild();
                labelled(cluster, self.label, self.context.rights.requires_account && !self.context.is_elsewhere())
                    .await?
            }
        };
        let bytes = inventory.memory();
        if bytes > SMALL_INVENTORY && !self.context.writer.keep_in_memory(self.owner, Part::Inventory, bytes) {
            return Err(too_large(self.name(), bytes));
        }
        self.publish_managed(self.managed(&inventory));
        self.publish_taken(taken(&inventory));
        self.context.writer.store().set_inventory(self.owner, inventory);
        Ok(())
    }

    /// Reads an inventory in one small ConfigMap, as most are, or finds that there is none. Returns `None` for any other
    /// inventory. Decoding does not wait, so its memory does not add up.
    async fn read_small_inventory(&self, names: Option<&[String]>) -> Result<Option<Found>, Error> {
        let (owner, cluster) = (self.inventory_owner(), self.context.writer.cluster());
        let name = match names {
            Some([]) => return Ok(Some(Found::Missing)),
            Some([name]) => name,
            _ => return Ok(None),
        };
        // The semaphore is never closed.
        let _permit = self.context.loading_small.acquire().await;
        let map = match cluster.get_within(&config_maps(), Some(owner.namespace), name, SMALL_MAP).await {
            Ok(map) => map,
            Err(error) if matches!(&*error.cause, Cause::TooLarge(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut parts = Parts::default();
        let found = map.as_ref().and_then(|map| owner.take(map, &mut parts)).unwrap_or_else(|| Found::of(parts));
        Ok(Some(match (found, &map) {
            (Found::Whole(inventory, written), Some(map)) => {
                let files = files_of(map);
                Found::Whole(
                    inventory,
                    written.into_iter().map(|(index, (content, _))| (index, (content, files))).collect(),
                )
            }
            (found, _) => found,
        }))
    }

    /// Returns the names of the ConfigMaps; `None` if the watch does not know them. Waits for the watch, so no permit is
    /// held meanwhile.
    async fn inventory_maps(&self) -> Option<Vec<String>> {
        let owner = self.inventory_owner();
        self.context.writer.inventory_maps(owner.namespace, owner.label).await
    }

    /// Reads the inventory.
    pub(super) async fn read_inventory(&self) -> Result<Found, Error> {
        let names = self.inventory_maps().await;
        self.read_named_inventory(names).await
    }

    /// Reads the inventory. If the names of its ConfigMaps are known, they are read by name, because a list by label would
    /// make the server scan every ConfigMap of the namespace.
    async fn read_named_inventory(&self, names: Option<Vec<String>>) -> Result<Found, Error> {
        let (owner, cluster) = (self.inventory_owner(), self.context.writer.cluster());
        let Some(names) = names else { return read(cluster, &owner).await };
        let mut parts = Parts::default();
        for name in names {
            let Some(map) = cluster.get(&config_maps(), Some(owner.namespace), &name).await? else { continue };
            if let Some(found) = owner.take(&map, &mut parts) {
                return Ok(found);
            }
        }
        Ok(Found::of(parts))
    }

    /// Returns the error that a GitSync of this name in a different cluster applies to the same cluster.
    fn foreign(&self, home: &str) -> Refused {
        let (namespace, label) = (self.namespace(), self.label);
        let message = format!(
            "another GitSync {namespace}/{} applies to the cluster, from {home}, so both would have the same labels; \
             give one of them a different name. If the other one does not exist any more, delete its inventory there: \
             kubectl --kubeconfig FILE -n {namespace} delete configmap -l {INVENTORY_LABEL}={label}",
            self.name()
        );
        Refused { class: Class::NotReady, reason: Reason::OwnershipConflict, message, retry_after: None }
    }

    /// Returns the inventory; `None` until it was read.
    pub(super) fn inventory(&self) -> Option<Arc<Inventory>> {
        self.context.writer.store().inventory(self.owner)
    }

    /// Returns the objects in an inventory that this GitSync may touch.
    fn managed(&self, inventory: &Inventory) -> HashSet<Key> {
        inventory.0.keys().filter(|key| self.reaches(key)).cloned().collect()
    }

    /// Publishes the objects that this GitSync manages to the other GitSyncs.
    fn publish_managed(&self, managed: HashSet<Key>) {
        self.context.registry.update(self.owner, |row| row.managed = Some(Arc::new(managed)));
    }

    /// Publishes the objects that the written inventory lists as applied. Their handover to this GitSync is complete.
    fn publish_taken(&self, taken: HashSet<Key>) {
        self.context.registry.update(self.owner, |row| row.taken = Some(Arc::new(taken)));
    }

    /// Removes objects that other GitSyncs have taken over, and returns which GitSyncs have yet to take over the rest.
    /// The rest stays in this inventory: otherwise objects would be orphaned if the others stopped wanting them.
    pub(super) async fn hand_over(&mut self, acting: &Writer, leaving: Vec<Key>) -> Awaited {
        let (taken, mut left): (Vec<_>, Vec<_>) = self
            .context
            .registry
            .with(self.owner, |view| leaving.into_iter().partition(|key| view.taken_elsewhere(key)));
        // A former inventory may still list an object that was handed over to this GitSync, if the last agent did not
        // remove the entry.
        let ours = match self.inventory() {
            Some(inventory) => acting.still_labelled(self.label, &inventory, &taken).await,
            None => HashSet::new(),
        };
        self.state.removal.is_still_labelled = !ours.is_empty();
        for key in taken {
            if ours.contains(&key) { left.push(key) } else { self.context.writer.remove(self.owner, &key) }
        }
        let given = self.state.removal.handovers.given.as_ref();
        let given_up: Vec<Key> = self.context.registry.with(self.owner, |view| {
            // An object that was not offered to another agent yet may return without an apply.
            let is_offered = |key: &&Key| given.is_some_and(|given| given.contains(*key));
            left.iter().filter(|key| is_offered(key) || !view.goes_to_other_agents(key)).cloned().collect()
        });
        self.context.writer.store().give_up(self.owner, &given_up);
        let goes_to_tenants = self
            .context
            .registry
            .with(self.owner, |view| left.iter().all(|key| view.desired_elsewhere(key) == Elsewhere::Tenant));
        match goes_to_tenants {
            _ if left.is_empty() => Awaited::Nobody,
            true => Awaited::Tenants,
            false => Awaited::Peers,
        }
    }

    /// Returns the source locations of a shard's objects; `None` if the commit is unknown or there is no memory.
    fn places(&self, shard: &Shard) -> Option<Vec<u8>> {
        let desired = self.state.compiled.desired()?;
        let of: HashMap<&Key, &Place> = desired.objects.iter().map(|one| (&one.key, &one.object.place)).collect();
        Places::encode(&desired.commit.to_string(), shard.keys.iter().map(|key| (key, of.get(key).copied())))
    }

    /// Returns a digest of the source files of each shard's objects; empty if the commit is unknown.
    fn files(&self, shards: &[Shard]) -> BTreeMap<usize, Digest> {
        let Some(desired) = self.state.compiled.desired() else { return BTreeMap::new() };
        let of: HashMap<&Key, &str> = desired.objects.iter().map(|one| (&one.key, &*one.object.place.file)).collect();
        let digest = |shard: &Shard| (shard.index, files_digest(shard.keys.iter(), |key| of.get(key).copied()));
        shards.iter().map(digest).collect()
    }

    /// Whether objects of a shard have moved to other files since it was written. If the files are unknown, as those of a
    /// large inventory that an earlier agent wrote, a new commit counts as a move.
    fn has_moved(&self, index: usize, files: Digest) -> bool {
        if let Some(written) = self.state.inventory.files(index) {
            return written != files;
        }
        let applied = self.sync.status.as_ref().and_then(|status| status.applied_commit.as_deref());
        self.state.compiled.desired().is_some_and(|desired| Some(&*desired.commit.to_string()) != applied)
    }

    /// Writes the ConfigMaps of the inventory that differ from their last written state, or whose objects moved to
    /// other files. Document and line are also stored, but a change of these alone causes no write.
    pub(super) async fn save_inventory(&mut self) -> Result<(), Refused> {
        let Some(inventory) = self.context.writer.store().save(self.owner) else { return Ok(()) };
        let nothing = inventory.0.is_empty() && self.state.inventory.is_empty();
        let shards = if nothing { Vec::new() } else { inventory.encode() };
        let (managed, taken) = (self.managed(&inventory), taken(&inventory));
        // If this reference were held during the write, the next change would copy the inventory.
        drop(inventory);
        let mut saved = Ok(());
        let files = self.files(&shards);
        for shard in shards {
            let digest = Digest::of(&shard.content);
            let files = files.get(&shard.index).copied();
            let is_written = self.state.inventory.has(shard.index, digest);
            if is_written && files.is_none_or(|files| !self.has_moved(shard.index, files)) {
                self.state.inventory.find(shard.index, digest, files);
                continue;
            }
            let (owner, cluster) = (self.inventory_owner(), self.context.writer.cluster());
            let (name, body) = owner.document(&shard, self.places(&shard));
            self.context.writer.note_inventory_map(owner.namespace, owner.label, &name);
            let how = Apply::forced(AGENT_MANAGER);
            saved = cluster.apply(&config_maps(), Some(owner.namespace), &name, &body, how).await.map(drop);
            if owner.home.is_some() && saved.as_ref().is_err_and(Error::is_namespace_missing) {
                saved = match create_namespace(cluster, owner.namespace).await {
                    Ok(()) => cluster.apply(&config_maps(), Some(owner.namespace), &name, &body, how).await.map(drop),
                    Err(error) => Err(error),
                };
            }
            if saved.is_err() {
                break;
            }
            self.state.inventory.write(shard.index, digest, files);
        }
        self.publish_managed(managed);
        if let Err(error) = saved {
            self.context.writer.store().not_saved(self.owner);
            return Err(error.into());
        }
        self.publish_taken(taken);
        Ok(())
    }
}

/// Returns a digest of the source files of these objects.
fn files_digest<'k, 'f>(keys: impl Iterator<Item = &'k Key>, file: impl Fn(&Key) -> Option<&'f str>) -> Digest {
    let files = keys.map(|key| file(key).unwrap_or_default());
    Digest::of(files.collect::<Vec<_>>().join("\n").as_bytes())
}

/// Returns a digest of the source files in a ConfigMap of an inventory; `None` if it has none that match its objects.
fn files_of(map: &Value) -> Option<Digest> {
    let keys = Inventory::keys_of(&content(map, INVENTORY_KEY)?).ok()?;
    let places = Places::decode(&content(map, PLACES_KEY)?, &keys.iter().collect::<Vec<_>>()).ok()?;
    Some(files_digest(keys.iter(), |key| places.of.get(key).map(|place| &*place.file)))
}

/// Returns the error that an inventory does not fit into memory. The next attempt tries again.
fn too_large(name: &str, bytes: usize) -> Refused {
    let message = format!(
        "the inventory (ConfigMaps mainstay-inventory-{name}-…) takes {} MiB of memory, more than the agent has left \
         for this namespace; raise limits.memory of the agent's Deployment, or delete these ConfigMaps if Mainstay \
         did not write them: the inventory is rebuilt from the labels of the objects",
        bytes.div_ceil(1 << 20)
    );
    Refused { class: Class::NotReady, reason: Reason::ApplyFailed, message, retry_after: None }
}

/// Returns the objects that an inventory lists as applied.
fn taken(inventory: &Inventory) -> HashSet<Key> {
    inventory.0.iter().filter(|(_, entry)| entry.uid.is_some()).map(|(key, _)| key.clone()).collect()
}

/// The GitSync of an inventory.
#[derive(Clone, Copy, Debug)]
pub(super) struct InventoryOwner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) label: &'a str,
    /// The cluster of the GitSync; `None` if the inventory is in the same cluster.
    pub(super) home: Option<&'a str>,
}

impl InventoryOwner<'_> {
    fn config_map(&self, index: usize) -> String {
        // The inventories of GitSyncs from several clusters share a namespace, so the name contains the cluster.
        let home = self.home.map(|home| format!("{:.8}-", Digest::of(home.as_bytes()).to_string())).unwrap_or_default();
        let name = format!("mainstay-inventory-{home}{}-{index}", self.name);
        if name.len() <= LONGEST_NAME {
            return name;
        }
        format!("mainstay-inventory-{home}{}-{index}", Digest::of(self.name.as_bytes()))
    }

    /// Returns whose a ConfigMap with Mainstay's label is.
    fn judge<'m>(&self, meta: &'m ObjectMeta) -> Whose<'m> {
        let annotation = |name: &str| meta.annotations.as_ref().and_then(|all| Some(&**all.get(name)?));
        let mut owners = meta.owner_references.iter().flatten();
        let is_ours = match (self.home, annotation(HOME_CLUSTER)) {
            (None, None) => owners.any(|one| one.uid == self.uid),
            (Some(home), Some(theirs)) if home == theirs => annotation(GIT_SYNC_UID) == Some(self.uid),
            (_, Some(theirs)) => return Whose::Foreign(theirs),
            // This inventory belongs to the agent in the target cluster itself.
            (Some(_), None) if owners.any(|one| one.kind == "GitSync") => return Whose::Foreign(ITSELF),
            (Some(_), None) => false,
        };
        if is_ours { Whose::Ours } else { Whose::Nobodys }
    }

    /// Adds a ConfigMap to the parts if it belongs to this GitSync. If a result is returned, it is final and no further
    /// ConfigMap matters.
    fn take(&self, map: &Value, parts: &mut Parts) -> Option<Found> {
        let meta = meta_of(map);
        // A ConfigMap that is read by name may have lost its label.
        if meta.labels.as_ref().and_then(|labels| labels.get(INVENTORY_LABEL)).is_none_or(|label| label != self.label) {
            return None;
        }
        match self.judge(&meta) {
            Whose::Nobodys => None,
            Whose::Foreign(home) => {
                Some(Found::Foreign(printable(&home.chars().take(SHOWN).collect::<String>()).into_owned()))
            }
            Whose::Ours => {
                let is_read = content(map, INVENTORY_KEY).is_some_and(|content| parts.add(&content).is_ok());
                (!is_read).then_some(Found::Damaged)
            }
        }
    }

    /// Returns the name and the content of the ConfigMap for a shard and the source locations of its objects.
    fn document(&self, shard: &Shard, places: Option<Vec<u8>>) -> (String, Value) {
        let name = self.config_map(shard.index);
        let mut body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {INVENTORY_LABEL: self.label}},
            "binaryData": {INVENTORY_KEY: STANDARD.encode(&shard.content)},
        });
        match self.home {
            // A remote cluster would delete an object whose owner does not exist there.
            Some(home) => body["metadata"]["annotations"] = json!({HOME_CLUSTER: home, GIT_SYNC_UID: self.uid}),
            None => {
                body["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "name": self.name, "uid": self.uid,
                }]);
            }
        }
        if let Some(places) = places {
            body["binaryData"][PLACES_KEY] = json!(STANDARD.encode(places));
        }
        (name, body)
    }
}

/// An inventory as found.
#[derive(Debug)]
pub(super) enum Found {
    /// The inventory exists. The map contains the digest of each ConfigMap that the inventory was read from, and that of
    /// the source files of its objects if it is known, by index.
    Whole(Inventory, BTreeMap<usize, (Digest, Option<Digest>)>),
    /// The inventory does not exist.
    Missing,
    /// The inventory cannot be read.
    Damaged,
    /// A GitSync of the same name in this other cluster has an inventory here.
    Foreign(String),
}

impl Found {
    /// Joins the parts.
    fn of(parts: Parts) -> Self {
        if parts.is_empty() {
            Self::Missing
        } else {
            parts.join().map_or(Self::Damaged, |(inventory, written)| {
                Self::Whole(inventory, written.into_iter().map(|(index, content)| (index, (content, None))).collect())
            })
        }
    }
}

/// The owner of a ConfigMap with the label of a GitSync.
enum Whose<'m> {
    Ours,
    /// A GitSync that was deleted in the meantime, or no GitSync.
    Nobodys,
    /// A GitSync in another cluster.
    Foreign(&'m str),
}

/// The name of the target cluster in messages.
const ITSELF: &str = "that cluster itself";
/// Maximum number of shown characters of untrusted text.
const SHOWN: usize = 40;

async fn create_namespace(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    cluster.apply(&namespaces, None, name, &body, Apply::forced(AGENT_MANAGER)).await.map(drop)
}

/// Returns the ConfigMap kind, which every API server has.
fn config_maps() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced))
}

/// Reads the inventory of a GitSync. ConfigMaps of a deleted GitSync with the same name, or without a GitSync, are
/// ignored.
async fn read(cluster: &Cluster, owner: &InventoryOwner<'_>) -> Result<Found, Error> {
    let mut maps = config_maps_of(cluster, owner);
    let mut parts = Parts::default();
    // Only one ConfigMap is in memory at a time, besides the decoded parts.
    while let Some(map) = maps.next().await {
        if let Some(found) = owner.take(&map?, &mut parts) {
            return Ok(found);
        }
    }
    Ok(Found::of(parts))
}

/// Returns the ConfigMaps of an inventory one after the other, but at most one more than the agent would read. ConfigMaps of
/// GitSyncs in other clusters are omitted.
pub(super) fn own_config_maps<'a>(
    cluster: &Cluster,
    owner: &'a InventoryOwner<'_>,
) -> impl Stream<Item = Result<Value, Error>> + Unpin + 'a {
    let own = config_maps_of(cluster, owner)
        .try_filter(|map| std::future::ready(matches!(owner.judge(&meta_of(map)), Whose::Ours)));
    own.take(MOST_SHARDS + 1)
}

fn config_maps_of<'a>(
    cluster: &Cluster,
    owner: &'a InventoryOwner<'_>,
) -> impl Stream<Item = Result<Value, Error>> + Unpin + 'a {
    let selection = Selection::labelled(INVENTORY_LABEL, owner.label).within(owner.namespace);
    let list = cluster.list(&config_maps(), selection);
    list.try_filter(|map| std::future::ready(!matches!(owner.judge(&meta_of(map)), Whose::Nobodys)))
}

fn meta_of(map: &Value) -> ObjectMeta {
    let meta = map.get("metadata").cloned().unwrap_or_default();
    serde_json::from_value(meta).unwrap_or_default()
}

/// Returns one field of a ConfigMap's `binaryData`.
pub(super) fn content(map: &Value, field: &str) -> Option<Vec<u8>> {
    let text = map.pointer("/binaryData")?.get(field)?.as_str()?;
    STANDARD.decode(text).ok()
}

/// Deletes the ConfigMaps of an inventory. A ConfigMap that was recreated under the same name stays.
pub(super) async fn delete(
    writer: &Writer,
    owner: &InventoryOwner<'_>,
    written: &WrittenInventory,
) -> Result<(), Error> {
    let judge = |meta: &ObjectMeta| {
        if matches!(owner.judge(meta), Whose::Ours) { Ok(()) } else { Err(()) }
    };
    for index in 0..=written.last() {
        let key = config_maps().key(Some(owner.namespace), &owner.config_map(index));
        writer.delete_as_found(&config_maps(), &key, None, judge).await?;
    }
    Ok(())
}

/// Rebuilds an inventory from the objects of all listable kinds that carry Mainstay's label and Mainstay's entry in
/// `managedFields`. Objects with a controller or without that entry only copied the label (Endpoints from their
/// Service, a Secret from another namespace). No UID is recorded, because this agent received no response to an apply.
/// An agent with `is_restricted` permissions skips kinds that it may not list.
async fn labelled(cluster: &Cluster, label: &str, is_restricted: bool) -> Result<Inventory, Error> {
    let kinds = cluster.kinds().await?.into_iter().filter(|kind| kind.listable && kind.patchable);
    let lists = stream::iter(kinds).map(|kind| async move {
        let list = cluster.list_metadata(&kind, Selection::labelled(SYNC_LABEL, label));
        // Only the entry of each object is kept, because labelled objects may be untrusted and large.
        let entries = list.try_filter_map(|meta| std::future::ready(Ok(entry_of(&kind, &meta))));
        entries.try_collect::<Vec<_>>().await
    });
    let mut lists = lists.buffer_unordered(AT_ONCE);
    let mut inventory = Inventory::default();
    while let Some(entries) = lists.next().await {
        match entries {
            Err(error) if is_restricted && error.is_forbidden() => {}
            entries => inventory.0.extend(entries?),
        }
    }
    Ok(inventory)
}

/// Returns the entry of a labelled object; `None` if the object only copied the label.
fn entry_of(kind: &Kind, meta: &ObjectMeta) -> Option<(Key, Entry)> {
    if !is_applied_by_us(meta) || is_controlled(meta) {
        return None;
    }
    let key = kind.key(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default());
    Some((key, Entry { version: Arc::clone(&kind.version), ..Entry::default() }))
}
