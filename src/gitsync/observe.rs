//! Reads what a plan is made from: the inventory, the kinds that are served, and what is there of the objects that are not
//! kept yet, with one metadata LIST per kind and never a GET per object.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::attempt::Attempt;
use super::placement::Served;
use super::plan::{self, Live, Observed};
use super::refused::Refused;
use super::sync_state::DesiredState;
use crate::api::conditions::Reason;
use crate::api::names::SYNC_LABEL;
use crate::cluster::{Cluster, Error, Kind, Selection};
use crate::failure::chain;
use crate::managed::Desired;
use crate::managed::inventory::{Entry, Inventory, uid_bytes};
use crate::managed::verdict::is_controlled;
use crate::object::{Key, Object};

/// Lists under way at once.
const AT_ONCE: usize = 8;

/// What is there of the objects that were asked for.
type Seen = HashMap<Key, Live>;
/// What we are not let see, and why.
type Unseen = Vec<(HashSet<Key>, Error)>;

impl Attempt<'_> {
    /// What is there before a commit is applied.
    pub(super) async fn observe(&mut self, desired: &DesiredState) -> Result<Observed, Refused> {
        self.forget_old_failures(desired);
        let now = Instant::now();
        let kept = self.context.writer.applied(self.owner);
        let mut inventory = self.inventory().map_or_else(Inventory::default, |inventory| Inventory::clone(&inventory));
        inventory.0.retain(|key, _| self.reaches(key));
        let waiting = self.state.failed.iter().filter(|(_, failed)| failed.again > now);
        let mut waiting = waiting.map(|(key, _)| key.clone()).collect::<HashSet<_>>();
        let unknown = desired
            .objects
            .iter()
            .filter(|d| !plan::is_unchanged(d, inventory.0.get(&d.key)))
            .filter(|d| !kept.contains(&d.key) && !waiting.contains(&d.key))
            .collect::<Vec<_>>();
        let (live, unseen) = live(self.context.writer.cluster(), &unknown, self.label).await?;
        for (keys, error) in unseen {
            for key in keys {
                let (class, message, after) = (error.class(), chain(&error), error.retry_after());
                self.fail(&key, class, Reason::ApplyFailed, message, after);
                waiting.insert(key);
            }
        }
        Ok(Observed { inventory, kept, waiting, live })
    }
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
async fn live(cluster: &Cluster, desired: &[&Arc<Desired>], label: &str) -> Result<(Seen, Unseen), Error> {
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
