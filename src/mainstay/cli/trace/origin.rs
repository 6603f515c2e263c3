//! Finds the GitSync of an object: by its label, by the inventories, or by its owners.
//!
//! Invariant: only an inventory proves that a GitSync manages an object. Controllers copy labels to objects that they
//! create. Invariant: only the GitSync that manages the object is kept whole. All others may be as large as their owners
//! like.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Map, Value, json};

use crate::cli::{
    Error,
    connection::own_kind,
    object_name::ObjectArguments,
    syncs::{self, understand},
};
use mainstay_api::{GitRepository, GitSync, names};
use mainstay_cluster::{Cluster, Kind, MemoryBudget, Selection};
use mainstay_engine::managed::inventory::Entry;
use mainstay_gitsync::{Listed, Listing, Locations};
use mainstay_object::{Key, Place};

/// Maximum number of owner references to follow.
const HIGHEST: usize = 8;
/// Maximum number of GitSyncs with an inventory to read.
const MOST: usize = 500;
/// Maximum memory of the inventories that the command reads, in bytes.
const OF_COMMAND: usize = 512 << 20;

/// The inventories that a search reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Maximum number of inventories.
    pub(super) inventories: usize,
    /// Maximum memory of all of them, in bytes.
    pub(super) bytes: usize,
}

impl Extent {
    /// Returns the note about an inventory for which there is no memory.
    fn too_large(self, name: &str) -> String {
        let Self { bytes, .. } = self;
        let advice = if bytes < OF_COMMAND { ": `mainstay trace` reads it" } else { "" };
        format!(
            "the inventory of {name} was not read to its end, because the inventories that were read take {} MiB of \
             memory{advice}",
            bytes >> 20
        )
    }
}

/// The facts about an object.
#[derive(Debug)]
pub(in crate::cli) struct Trace {
    /// The requested object.
    pub(in crate::cli) asked: Key,
    /// The owners from the requested object up to the managed object, which is the last of them. Empty if the requested
    /// object itself is managed.
    pub(in crate::cli) owners: Vec<Key>,
    /// The live managed object, or the live requested object if no managed object was found. `None` if that object does
    /// not exist.
    pub(in crate::cli) live: Option<Value>,
    /// The GitSync that manages the object, if any.
    pub(in crate::cli) manager: Option<Manager>,
    /// Notes about data that could not be read.
    pub(in crate::cli) notes: Vec<String>,
}

/// The GitSync that manages an object.
#[derive(Debug)]
pub(in crate::cli) struct Manager {
    pub(in crate::cli) sync: GitSync,
    pub(in crate::cli) repository: Option<GitRepository>,
    /// The object's entry in the inventory.
    pub(in crate::cli) entry: Entry,
    /// The file in the repository, and the commit.
    pub(in crate::cli) place: Option<(Arc<str>, Place)>,
}

impl Trace {
    /// Returns the managed object.
    pub(in crate::cli) fn object(&self) -> &Key {
        self.owners.last().unwrap_or(&self.asked)
    }
}

/// Collects the facts about the object that the arguments specify.
pub(in crate::cli) async fn find(arguments: &ObjectArguments) -> Result<(Cluster, Trace), Error> {
    let (called, name) = arguments.kind_and_name()?;
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.namespace(&cluster);
    let kind = cluster.kind_called(called).await?.ok_or_else(|| Error::UnknownKind(called.to_owned()))?;
    let asked = kind.key(Some(&namespace), name);
    let extent = Extent { inventories: MOST, bytes: OF_COMMAND };
    let trace = of(&cluster, &namespace, &kind, asked, extent).await?;
    if trace.manager.is_none() && trace.live.is_none() && trace.notes.is_empty() {
        return Err(Error::Missing { what: trace.asked.to_string() });
    }
    Ok((cluster, trace))
}

/// Collects the facts about an object from these inventories. Without the permission to list all GitSyncs,
/// only GitSyncs of the namespace are searched.
pub(super) async fn of(
    cluster: &Cluster,
    namespace: &str,
    kind: &Kind,
    asked: Key,
    extent: Extent,
) -> Result<Trace, Error> {
    let mut search = Search::begin(cluster, namespace, extent).await?;
    let live = search.read(kind, &asked).await?;
    search.add_named(live.as_ref()).await?;
    let mut trace = Trace { asked: asked.clone(), owners: Vec::new(), live, manager: None, notes: Vec::new() };
    trace.manager = search.manager(&asked, trace.live.as_ref()).await?;
    if trace.manager.is_none() {
        search.climb(&mut trace).await?;
    }
    // Some inventories may have been read twice.
    let mut known = BTreeSet::new();
    trace.notes = search.notes.into_iter().filter(|note| known.insert(note.clone())).collect();
    if trace.manager.is_none() && search.unread > 0 {
        let unread = search.unread;
        trace.notes.push(format!("the inventories of {unread} GitSyncs were not read: `mainstay trace` reads them"));
    }
    Ok(trace)
}

/// The GitSyncs that may manage an object, and the inventories that were read.
struct Search<'a> {
    cluster: &'a Cluster,
    /// The GitSyncs as [`reduced`] returns them, with their inventories as far as they were read.
    syncs: Vec<(GitSync, Option<Listed>)>,
    extent: Extent,
    /// The memory of all inventories.
    memory: MemoryBudget,
    /// Number of GitSyncs beyond the maximum number, whose inventories were not read.
    unread: usize,
    /// The positions of the GitSyncs without an inventory, and of those whose inventory had no memory.
    without_inventory: Vec<usize>,
    too_large: Vec<usize>,
    /// The position of the GitSync whose inventory has got all memory.
    had_room: Option<usize>,
    notes: Vec<String>,
}

impl<'a> Search<'a> {
    async fn begin(cluster: &'a Cluster, namespace: &str, extent: Extent) -> Result<Self, Error> {
        let kind = own_kind::<GitSync>(cluster).await?;
        let mut notes = Vec::new();
        let list = async |selection| -> Result<Vec<Value>, mainstay_cluster::Error> {
            cluster.list(&kind, selection).take(MOST + 1).map_ok(|sync| reduced(&sync)).try_collect().await
        };
        let values = match list(Selection::default()).await {
            Err(error) if error.is_forbidden() => {
                notes.push(format!("you may not list GitSyncs outside of the namespace {namespace}"));
                list(Selection::default().within(namespace)).await?
            }
            values => values?,
        };
        if values.len() > MOST {
            notes.push(format!("there are more than {MOST} GitSyncs; the others were not checked"));
        }
        let syncs = values.into_iter().take(MOST).map(|value| Ok((understand(value)?, None)));
        Ok(Self {
            cluster,
            syncs: syncs.collect::<Result<_, Error>>()?,
            extent,
            memory: MemoryBudget::new(extent.bytes),
            unread: 0,
            without_inventory: Vec::new(),
            too_large: Vec::new(),
            had_room: None,
            notes,
        })
    }

    /// Adds the GitSync that the label of an object names, if that GitSync is not listed yet. A hashed label contains
    /// no name.
    async fn add_named(&mut self, live: Option<&Value>) -> Result<(), Error> {
        let named = live.and_then(label).and_then(|label| label.split_once('.'));
        let Some((namespace, name)) = named else { return Ok(()) };
        let key = Key::new("mainstay.dev", "GitSync", Some(namespace), name);
        if self.syncs.iter().any(|(sync, _)| syncs::key(sync) == key) {
            return Ok(());
        }
        let kind = own_kind::<GitSync>(self.cluster).await?;
        match self.cluster.get(&kind, Some(namespace), name).await {
            Err(error) if error.is_forbidden() => {}
            read => {
                let read = read?.map(|sync| understand(reduced(&sync))).transpose()?;
                self.syncs.extend(read.map(|sync| (sync, None)));
            }
        }
        Ok(())
    }

    /// Reads an object; `None` if it does not exist or reading is forbidden.
    async fn read(&mut self, kind: &Kind, key: &Key) -> Result<Option<Value>, Error> {
        match self.cluster.get(kind, key.namespace.as_deref(), &key.name).await {
            Err(error) if error.is_forbidden() => {
                self.notes.push(format!("you may not read {key}, so its current state is unknown"));
                Ok(None)
            }
            read => Ok(read?),
        }
    }

    /// Finds the GitSync with the object in its inventory. The GitSync that the label names is checked first.
    async fn manager(&mut self, key: &Key, live: Option<&Value>) -> Result<Option<Manager>, Error> {
        let label = live.and_then(label);
        let is_named = |sync: &GitSync| {
            let own = syncs::key(sync);
            Some(&*mainstay_gitsync::label(own.namespace.as_deref().unwrap_or_default(), &own.name)) == label
        };
        let mut order: Vec<usize> = (0..self.syncs.len()).collect();
        order.sort_by_key(|&number| {
            let sync = &self.syncs[number].0;
            (!is_named(sync), sync.metadata.namespace.as_deref() != key.namespace.as_deref())
        });
        self.unread = order.len().saturating_sub(self.extent.inventories);
        order.truncate(self.extent.inventories);
        if let Some(&first) = order.first().filter(|&&first| is_named(&self.syncs[first].0)) {
            self.listed(first).await?;
            self.make_room(first);
        }
        for number in order {
            let Some(listed) = self.listed(number).await? else { continue };
            let Some(entry) = listed.objects.get(key).cloned() else {
                if self.without_inventory.contains(&number) && is_named(&self.syncs[number].0) {
                    self.notes.push(format!("the inventory of {} is missing", syncs::name(&self.syncs[number].0)));
                }
                continue;
            };
            let place = listed.places.get(key).cloned();
            let Some(sync) = self.whole(number).await? else { continue };
            let repositories = own_kind::<GitRepository>(self.cluster).await?;
            let namespace = sync.metadata.namespace.clone();
            let named = Some(&sync.spec.git_repository).filter(|_| sync.spec.source_ref.is_none());
            let read = match named {
                Some(name) => self.cluster.get(&repositories, namespace.as_deref(), name).await,
                None => Ok(None),
            };
            let repository = match read {
                Err(error) if error.is_forbidden() => None,
                read => read?.map(understand).transpose()?,
            };
            return Ok(Some(Manager { sync, repository, entry, place }));
        }
        Ok(None)
    }

    /// Reads a GitSync with its status; `None` if it was deleted meanwhile or reading is forbidden.
    async fn whole(&mut self, number: usize) -> Result<Option<GitSync>, Error> {
        let key = syncs::key(&self.syncs[number].0);
        let kind = own_kind::<GitSync>(self.cluster).await?;
        self.read(&kind, &key).await?.map(understand).transpose()
    }

    /// Gives all memory to the inventory of a GitSync, once, if some inventory or its source locations had none.
    fn make_room(&mut self, number: usize) {
        if self.memory.is_cut() && self.had_room.replace(number) != Some(number) {
            let notes =
                self.too_large.drain(..).map(|number| self.extent.too_large(&syncs::name(&self.syncs[number].0)));
            let notes: Vec<_> = notes.collect();
            self.notes.retain(|note| !notes.contains(note));
            self.syncs.iter_mut().for_each(|(_, listed)| *listed = None);
            self.memory = MemoryBudget::new(self.extent.bytes);
        }
    }

    async fn listed(&mut self, number: usize) -> Result<Option<&Listed>, Error> {
        let (sync, listed) = &mut self.syncs[number];
        if listed.is_none() {
            let read = match Listing::within(self.cluster, sync, Locations::Read, &self.memory).await {
                Ok(Some(Listing::Whole(whole))) => whole,
                Ok(None) => {
                    self.notes.push(self.extent.too_large(&syncs::name(sync)));
                    self.too_large.push(number);
                    Listed::default()
                }
                Ok(Some(Listing::Missing)) => {
                    self.without_inventory.push(number);
                    Listed::default()
                }
                Ok(Some(Listing::Elsewhere)) => {
                    let name = syncs::name(sync);
                    self.notes.push(format!(
                        "the objects of {name} are in a remote cluster (spec.kubeConfig), so they are not shown"
                    ));
                    Listed::default()
                }
                Ok(Some(Listing::Damaged)) => {
                    self.notes.push(format!("the inventory of {} cannot be read", syncs::name(sync)));
                    Listed::default()
                }
                Err(error) if error.is_forbidden() => {
                    self.notes.push(format!("you may not read the inventory of {}", syncs::name(sync)));
                    Listed::default()
                }
                Err(error) => return Err(error.into()),
            };
            *listed = Some(read);
        }
        Ok(self.syncs[number].1.as_ref())
    }

    /// Searches the owners for a managed object.
    async fn climb(&mut self, trace: &mut Trace) -> Result<(), Error> {
        let mut owners = Vec::new();
        let mut next = trace.live.as_ref().and_then(owner);
        for _ in 0..HIGHEST {
            let Some((api_version, kind, name)) = next else { return Ok(()) };
            let Some(kind) = self.cluster.kind(&api_version, &kind).await? else { return Ok(()) };
            let key = kind.key(trace.asked.namespace.as_deref(), &name);
            let live = self.read(&kind, &key).await?;
            owners.push(key.clone());
            if let Some(manager) = self.manager(&key, live.as_ref()).await? {
                (trace.owners, trace.live, trace.manager) = (owners, live, Some(manager));
                return Ok(());
            }
            next = live.as_ref().and_then(owner);
        }
        Ok(())
    }
}

/// Returns the fields of a GitSync that find its inventory.
fn reduced(sync: &Value) -> Value {
    let metadata: Map<String, Value> = ["namespace", "name", "uid"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), sync["metadata"].get(field)?.clone())))
        .collect();
    let mut spec = Map::new();
    spec.extend(sync["spec"].get("kubeConfig").map(|config| ("kubeConfig".to_owned(), config.clone())));
    json!({"apiVersion": sync["apiVersion"], "kind": sync["kind"], "metadata": metadata, "spec": spec})
}

/// Returns the label of an object that names its GitSync.
fn label(live: &Value) -> Option<&str> {
    live.pointer("/metadata/labels")?.get(names::SYNC_LABEL)?.as_str()
}

/// Returns `apiVersion`, kind and name of an object's controller, or of its first owner.
fn owner(live: &Value) -> Option<(String, String, String)> {
    let owners = live.pointer("/metadata/ownerReferences")?.as_array()?;
    let controls = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let owner = owners.iter().find(controls).or(owners.first())?;
    let text = |field: &str| owner.get(field)?.as_str().map(str::to_owned);
    Some((text("apiVersion")?, text("kind")?, text("name")?))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;

    use super::*;

    /// Returns a cluster that answers nothing.
    fn cluster() -> Cluster {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::ready(Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::new()))))
        });
        let client = kube::Client::new(service, "shop");
        Cluster::from_clients(client.clone(), client)
    }

    #[tokio::test]
    async fn the_inventory_of_a_named_git_sync_gets_all_memory_once() {
        let read = |name: &str| {
            let sync = json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"namespace": "shop", "name": name}, "spec": {"gitRepository": "shop"},
            });
            (understand(reduced(&sync)).unwrap(), Some(Listed::default()))
        };
        let (cluster, extent) = (cluster(), Extent { inventories: 20, bytes: 8 });
        let mut search = Search {
            cluster: &cluster,
            syncs: vec![read("a"), read("b")],
            extent,
            memory: MemoryBudget::new(extent.bytes),
            unread: 0,
            without_inventory: Vec::new(),
            too_large: vec![1],
            had_room: None,
            notes: vec!["other".to_owned(), extent.too_large("GitSync shop/b")],
        };
        let are_read = |search: &Search<'_>| search.syncs.iter().filter(|(_, listed)| listed.is_some()).count();
        search.make_room(1);
        assert_eq!(are_read(&search), 2, "nothing was left out");
        assert!(!search.memory.take(9));
        search.make_room(1);
        assert_eq!((are_read(&search), &*search.notes), (0, &["other".to_owned()][..]));
        assert!(search.memory.take(8) && !search.memory.take(1));
        search.syncs[1].1 = Some(Listed::default());
        search.make_room(1);
        assert_eq!(are_read(&search), 1, "it has got all memory before");
    }

    #[test]
    fn a_note_about_a_large_inventory_says_what_reads_it() {
        let note = |bytes| Extent { inventories: 20, bytes }.too_large("shop/demo");
        let page = note(8 << 20);
        assert!(page.contains("shop/demo") && page.ends_with("8 MiB of memory: `mainstay trace` reads it"), "{page}");
        assert!(note(OF_COMMAND).ends_with("512 MiB of memory"));
    }

    #[test]
    fn a_git_sync_that_may_manage_an_object_is_kept_without_its_content() {
        let long = "x".repeat(100_000);
        let config = json!({"secretRef": {"name": "far"}});
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
            "metadata": {"namespace": "shop", "name": "demo", "uid": "u", "annotations": {"a": long}, "managedFields": [long]},
            "spec": {"gitRepository": "shop", "patches": [{"patch": long}], "kubeConfig": config},
            "status": {"objects": 3, "conditions": [{"message": long}]},
        });
        let kept = reduced(&sync);
        assert!(kept.to_string().len() < 1024, "{kept}");
        let kept: GitSync = understand(kept).unwrap();
        assert_eq!(syncs::key(&kept), Key::new("mainstay.dev", "GitSync", Some("shop"), "demo"));
        assert_eq!(kept.metadata.uid.as_deref(), Some("u"));
        assert!(kept.spec.kube_config.is_some() && kept.status.is_none());
        let mut own = sync;
        own["spec"]["kubeConfig"] = Value::Null;
        let own: GitSync = understand(reduced(&own)).unwrap();
        assert!(own.spec.kube_config.is_none());
    }
}
