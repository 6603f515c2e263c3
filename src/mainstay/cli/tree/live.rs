//! Lists the live objects of an inventory with the rights of the user.
//!
//! Invariant: the number of lists and of objects is limited, and what was not read has a reason. Invariant: each object is
//! reduced to its facts as soon as it was read.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _};

use super::node::Seen;
use crate::cli::Error;
use mainstay_cluster::{Cluster, Kind, MemoryBudget, Selection};
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_object::Key;
use mainstay_object::failure::chain;

/// Maximum number of namespaces to read for a kind, and to search for children.
pub(super) const NAMESPACES: usize = 20;
/// Maximum number of objects to read per list.
const MOST: usize = 5000;
/// Maximum number of lists at the same time.
const LISTS: usize = 4;

/// The result of reading an object of an inventory.
pub(super) enum Read {
    There(Seen),
    Not(String),
}

/// The objects of a list.
struct Found {
    objects: Vec<(Key, Seen)>,
    cut: Cut,
}

/// Why a list lacks objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Nothing,
    /// There are more than [`MOST`].
    Number,
    /// The budget has no memory for more, which the note of the budget says.
    Memory,
}

/// The objects of a list that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    Owned,
}

/// Lists objects, and remembers what it could not list.
pub(super) struct Lists<'a> {
    cluster: &'a Cluster,
    /// The memory of the objects that are read.
    pub(super) budget: MemoryBudget,
    notes: BTreeSet<String>,
    /// Kinds of children that the user may not list, by namespace.
    unlisted: BTreeMap<String, Vec<String>>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(cluster: &'a Cluster, budget: MemoryBudget) -> Self {
        Self { cluster, budget, notes: BTreeSet::new(), unlisted: BTreeMap::new() }
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
                    self.live_of(&kind, (&content, rules), &keys, &mut live).await;
                }
            }
        }
        Ok(live)
    }

    /// Reads these objects of a kind. One namespace needs the rights for this namespace only. Several are read by one
    /// list, or each by its own list if the user may not read all.
    async fn live_of(
        &mut self,
        kind: &Arc<Kind>,
        (selection, rules): (&Selection, &HealthRules),
        keys: &[&Key],
        live: &mut HashMap<Key, Read>,
    ) {
        let mut by_namespace: BTreeMap<&str, Vec<&Key>> = BTreeMap::new();
        for key in keys {
            by_namespace.entry(key.namespace.as_deref().unwrap_or_default()).or_default().push(key);
        }
        if by_namespace.len() > 1 {
            match self.list(kind, selection.clone(), rules, Kept::All).await {
                Err(error) if error.is_forbidden() => {}
                found => return self.keep(kind, keys, found, live),
            }
        }
        let unread: Vec<&Key> = by_namespace.values().skip(NAMESPACES).flatten().copied().collect();
        if !unread.is_empty() {
            self.notes.insert(format!("{} were checked in the first {NAMESPACES} namespaces only", kind.resource));
            live.extend(not(&unread, "not checked"));
        }
        let this = &*self;
        let mut lists = Vec::new();
        for (namespace, keys) in by_namespace.into_iter().take(NAMESPACES) {
            let selection = if namespace.is_empty() { selection.clone() } else { selection.clone().within(namespace) };
            lists.push(async move { (keys, this.list(kind, selection, rules, Kept::All).await) });
        }
        let lists: Vec<_> = futures::stream::iter(lists).buffered(LISTS).collect().await;
        for (keys, found) in lists {
            self.keep(kind, &keys, found, live);
        }
    }

    fn keep(
        &mut self,
        kind: &Kind,
        keys: &[&Key],
        found: Result<Found, mainstay_cluster::Error>,
        live: &mut HashMap<Key, Read>,
    ) {
        match found {
            Ok(Found { objects, cut }) => {
                live.extend(objects.into_iter().map(|(key, seen)| (key, Read::There(seen))));
                if cut != Cut::Nothing {
                    self.say_cut(kind, cut);
                    let missing: Vec<&Key> = keys.iter().filter(|key| !live.contains_key(**key)).copied().collect();
                    live.extend(not(&missing, "not checked"));
                }
            }
            Err(error) => live.extend(not(keys, &chain(&error))),
        }
    }

    /// Returns the children among the objects of a kind in a namespace.
    pub(super) async fn children_in(&mut self, kind: &Arc<Kind>, namespace: &str) -> Vec<(Key, Seen)> {
        let selection = content(kind, Selection::default().within(namespace), false);
        match self.list(kind, selection, &HealthRules::default(), Kept::Owned).await {
            Ok(Found { objects, cut }) => {
                self.say_cut(kind, cut);
                objects
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

    /// Lists at most [`MOST`] objects of a kind, as far as the budget has memory for them.
    async fn list(
        &self,
        kind: &Arc<Kind>,
        selection: Selection,
        rules: &HealthRules,
        kept: Kept,
    ) -> Result<Found, mainstay_cluster::Error> {
        let (mut objects, mut count) = (Vec::new(), 0);
        let mut values = self.cluster.list(kind, selection);
        while let Some(live) = values.try_next().await? {
            if count == MOST {
                return Ok(Found { objects, cut: Cut::Number });
            }
            count += 1;
            let Some(key) = kind.key_of(&live) else { continue };
            let seen = Seen::of(&key, &live, rules);
            if kept == Kept::Owned && seen.owners.is_empty() {
                continue;
            }
            if !self.budget.take(seen.bytes(&key)) {
                return Ok(Found { objects, cut: Cut::Memory });
            }
            objects.push((key, seen));
        }
        Ok(Found { objects, cut: Cut::Nothing })
    }

    fn say_cut(&mut self, kind: &Kind, cut: Cut) {
        if cut == Cut::Number {
            self.notes.insert(format!("there are more than {MOST} {}; the others were not checked", kind.resource));
        }
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
