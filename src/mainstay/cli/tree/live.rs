//! Lists the live objects of an inventory with the rights of the user.
//!
//! Invariant: the number of lists and of objects is limited, and what was not read has a reason.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use crate::cli::Error;
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_object::Key;
use mainstay_object::failure::chain;

/// Maximum number of namespaces to read for a kind, and to search for children.
pub(super) const NAMESPACES: usize = 20;
/// Maximum number of objects to read per list.
const MOST: usize = 5000;
/// Maximum number of lists at the same time.
const LISTS: usize = 8;

/// The result of reading an object of an inventory.
pub(super) enum Read {
    There(Value),
    Not(String),
}

/// A list of objects.
type Found = Result<Vec<(Key, Value)>, mainstay_cluster::Error>;

/// Lists objects, and remembers what it could not list.
pub(super) struct Lists<'a> {
    cluster: &'a Cluster,
    notes: BTreeSet<String>,
    /// Kinds of children that the user may not list, by namespace.
    unlisted: BTreeMap<String, Vec<String>>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, notes: BTreeSet::new(), unlisted: BTreeMap::new() }
    }

    /// Returns notes about what could not be listed.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let unlisted = self.unlisted.iter().map(|(namespace, kinds)| {
            let kinds = kinds.join(", ");
            format!("children of these kinds are missing, because you may not list them in {namespace}: {kinds}")
        });
        self.notes.iter().cloned().chain(unlisted)
    }

    /// Reads the live objects of an inventory, with one list by label per kind if the user may read all namespaces.
    pub(super) async fn live(
        &mut self,
        listed: &mainstay_gitsync::Listed,
        label: &str,
        rules: &HealthRules,
    ) -> Result<HashMap<Key, Read>, Error> {
        let mut by_kind: BTreeMap<(&str, &str, &str), Vec<&Key>> = BTreeMap::new();
        for (key, entry) in &listed.objects {
            by_kind.entry((&key.group, &entry.version, &key.kind)).or_default().push(key);
        }
        let selection = Selection::labelled(mainstay_api::names::SYNC_LABEL, label);
        let mut live = HashMap::new();
        for ((group, version, kind), keys) in by_kind {
            let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            match self.cluster.kind(&api_version, kind).await? {
                None => live.extend(not(&keys, "the cluster serves no such kind")),
                Some(kind) => {
                    let content = content(&kind, selection.clone(), rules.is_about(&kind.group, &kind.kind));
                    self.live_of(&kind, &content, &keys, &mut live).await;
                }
            }
        }
        Ok(live)
    }

    /// Reads these objects of a kind. One namespace needs the rights for this namespace only. Several are read by one
    /// list, or each by its own list if the user may not read all.
    async fn live_of(&mut self, kind: &Arc<Kind>, selection: &Selection, keys: &[&Key], live: &mut HashMap<Key, Read>) {
        let mut by_namespace: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
        for key in keys {
            by_namespace.entry(key.namespace.as_deref().unwrap_or_default()).or_default().push(key);
        }
        if by_namespace.len() > 1 {
            match list(self.cluster, kind, selection.clone()).await {
                Err(error) if error.is_forbidden() => {}
                found => return self.keep(kind, keys, found, live),
            }
        }
        let unread: Vec<&Key> = by_namespace.values().skip(NAMESPACES).flatten().copied().collect();
        if !unread.is_empty() {
            self.notes.insert(format!("{} were checked in the first {NAMESPACES} namespaces only", kind.resource));
            live.extend(not(&unread, "not checked"));
        }
        let cluster = self.cluster;
        let mut lists = Vec::new();
        for (namespace, keys) in by_namespace.into_iter().take(NAMESPACES) {
            let selection = if namespace.is_empty() { selection.clone() } else { selection.clone().within(namespace) };
            lists.push(async move { (keys, list(cluster, kind, selection).await) });
        }
        let lists: Vec<_> = futures::stream::iter(lists).buffered(LISTS).collect().await;
        for (keys, found) in lists {
            self.keep(kind, &keys, found, live);
        }
    }

    fn keep(&mut self, kind: &Kind, keys: &[&Key], found: Found, live: &mut HashMap<Key, Read>) {
        match found {
            Ok(found) => {
                let is_whole = found.len() <= MOST;
                live.extend(found.into_iter().take(MOST).map(|(key, value)| (key, Read::There(value))));
                if !is_whole {
                    self.say_cut(kind);
                    let missing: Vec<&Key> = keys.iter().filter(|key| !live.contains_key(**key)).copied().collect();
                    live.extend(not(&missing, "not checked"));
                }
            }
            Err(error) => live.extend(not(keys, &chain(&error))),
        }
    }

    /// Returns the objects of a kind in a namespace, among which are children.
    pub(super) async fn children_in(&mut self, kind: &Arc<Kind>, namespace: &str) -> Vec<(Key, Value)> {
        let selection = content(kind, Selection::default().within(namespace), false);
        match list(self.cluster, kind, selection).await {
            Ok(mut found) => {
                if found.len() > MOST {
                    found.truncate(MOST);
                    self.say_cut(kind);
                }
                found
            }
            Err(error) if error.is_forbidden() => {
                self.unlisted.entry(namespace.to_owned()).or_default().push(kind.resource.to_string());
                Vec::new()
            }
            Err(error) => {
                self.notes.insert(format!("{} in {namespace}: {}", kind.resource, chain(&error)));
                Vec::new()
            }
        }
    }

    fn say_cut(&mut self, kind: &Kind) {
        self.notes.insert(format!("there are more than {MOST} {}; the others were not checked", kind.resource));
    }
}

/// Returns that none of these objects was read.
fn not(keys: &[&Key], why: &str) -> Vec<(Key, Read)> {
    keys.iter().map(|key| ((*key).clone(), Read::Not(why.to_owned()))).collect()
}

/// Limits the selection to the metadata of Secrets and ConfigMaps, unless `is_asked`: a health rule needs the whole object.
fn content(kind: &Kind, selection: Selection, is_asked: bool) -> Selection {
    let is_bare = !is_asked && matches!((&*kind.group, &*kind.kind), ("", "Secret" | "ConfigMap"));
    if is_bare { selection.metadata_only() } else { selection }
}

/// Lists objects of a kind: one more than [`MOST`] if there are more.
async fn list(cluster: &Cluster, kind: &Arc<Kind>, selection: Selection) -> Found {
    let found: Vec<Value> = cluster.list(kind, selection).take(MOST + 1).try_collect().await?;
    Ok(found.into_iter().filter_map(|value| Some((kind.key_of(&value)?, value))).collect())
}
