//! Builds trees: the live objects of an inventory, and their children.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use crate::cli::{Error, syncs};
use mainstay_api::{GitSync, conditions};
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_gitsync::Listing;
use mainstay_object::failure::chain;
use mainstay_object::{Health, Key, health, stage};

/// Maximum number of objects to read per kind.
const MOST: usize = 5000;
/// Maximum number of namespaces to search for children.
const NAMESPACES: usize = 20;
/// Kinds that Kubernetes' controllers and the agent create for other objects.
const CHILDREN: [(&str, &str); 9] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("v1", "ConfigMap"),
    ("v1", "PersistentVolumeClaim"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
];
/// Maximum depth, because owner references may form a cycle.
const DEEPEST: usize = 8;

/// An object of a tree.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Node {
    /// The object.
    pub(in crate::cli) key: Key,
    /// The state of the object.
    pub(in crate::cli) state: State,
    /// The objects that it owns.
    pub(in crate::cli) children: Vec<Node>,
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum State {
    /// The object exists.
    There(Health),
    /// The object is being deleted.
    Terminating,
    /// The inventory has the object, but the cluster does not.
    Absent,
    /// The object ran to completion and is gone.
    Ended,
    /// The object was not read, for this reason.
    Unknown(String),
}

impl Node {
    /// Returns whether the GitSync and all its objects are healthy. Children do not count, because the health of
    /// their parents includes theirs.
    pub(super) fn is_healthy(&self) -> bool {
        let is_fine = |node: &Node| matches!(node.state, State::There(Health::Healthy) | State::Ended);
        is_fine(self) && self.children.iter().all(is_fine)
    }
}

/// Reads trees. Reads each kind and namespace of children only once.
pub(super) struct Forest<'a> {
    cluster: &'a Cluster,
    with_children: bool,
    /// Children by the UID of the parent.
    children: HashMap<String, Vec<(Key, Value)>>,
    looked_in: BTreeSet<String>,
    notes: BTreeSet<String>,
}

impl<'a> Forest<'a> {
    pub(super) fn new(cluster: &'a Cluster, with_children: bool) -> Self {
        Self { cluster, with_children, children: HashMap::new(), looked_in: BTreeSet::new(), notes: BTreeSet::new() }
    }

    /// Returns notes about incomplete trees.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().collect()
    }

    /// Reads the tree of a GitSync.
    pub(super) async fn tree(&mut self, sync: &GitSync) -> Result<Node, Error> {
        let key = syncs::key(sync);
        let status = sync.status.clone().unwrap_or_default();
        let ready = conditions::status(&status.conditions, conditions::Type::Ready);
        let health = match ready {
            Some(ready) if ready.status == "True" => Health::Healthy,
            Some(ready) if ready.status == "False" => Health::Failed(ready.message.clone()),
            Some(ready) => Health::Progressing(ready.message.clone()),
            None => Health::Progressing("no agent has reconciled it yet".into()),
        };
        let mut root = Node { key: key.clone(), state: State::There(health), children: Vec::new() };
        match mainstay_gitsync::listing(self.cluster, sync).await? {
            Listing::Whole(listed) => root.children = self.objects(sync, &listed).await?,
            Listing::Missing => {}
            Listing::Damaged => {
                self.notes.insert(format!("the inventory of {key} cannot be read; the agent rebuilds it"));
            }
            Listing::Elsewhere => root.children = self.objects_elsewhere(sync).await,
        }
        Ok(root)
    }

    /// Reads the objects of a GitSync in another cluster. A failure becomes a note.
    async fn objects_elsewhere(&mut self, sync: &GitSync) -> Vec<Node> {
        let asked = async {
            let Some(other) =
                mainstay_gitsync::other_cluster(self.cluster, sync).await.map_err(|error| error.to_string())?
            else {
                return Ok(Vec::new());
            };
            let listed = mainstay_gitsync::listing_in(&other, sync).await.map_err(|error| chain(&error))?;
            let Listing::Whole(listed) = listed else { return Ok(Vec::new()) };
            let mut there = Forest::new(&other.cluster, self.with_children);
            let objects = there.objects(sync, &listed).await.map_err(|error| chain(&error))?;
            self.notes.append(&mut there.notes);
            Ok::<_, String>(objects)
        };
        let asked = Box::pin(asked).await;
        asked.unwrap_or_else(|why| {
            let key = syncs::key(sync);
            self.notes.insert(format!(
                "the objects of {key} are in another cluster and are not shown: {why}; look at them with the kubeconfig of that cluster"
            ));
            Vec::new()
        })
    }

    /// Reads the live objects of an inventory.
    async fn objects(&mut self, sync: &GitSync, listed: &mainstay_gitsync::Listed) -> Result<Vec<Node>, Error> {
        let key = syncs::key(sync);
        let mut nodes = Vec::new();
        let label = mainstay_gitsync::label(key.namespace.as_deref().unwrap_or_default(), &key.name);
        let rules = syncs::health_rules(sync);
        let live = self.live(listed, &label, &rules).await?;
        if self.with_children {
            let namespaces = listed.objects.keys().filter_map(|key| key.namespace.as_deref().map(str::to_owned));
            self.look_for_children(namespaces.collect()).await?;
        }
        let mut keys: Vec<&Key> = listed.objects.keys().collect();
        keys.sort_by_key(|key| (stage(key), *key));
        for key in keys {
            let entry = &listed.objects[key];
            let found = live.get(key);
            let state = match found {
                Some(Read::There(value)) => state_of(key, value, &rules),
                Some(Read::Not(why)) => State::Unknown(why.clone()),
                None if entry.ended.is_some() => State::Ended,
                None => State::Absent,
            };
            let children = match found {
                Some(Read::There(value)) => self.below(value, 0),
                _ => Vec::new(),
            };
            nodes.push(Node { key: key.clone(), state, children });
        }
        Ok(nodes)
    }

    /// Reads the live objects of an inventory, with one list by label per kind.
    async fn live(
        &mut self,
        listed: &mainstay_gitsync::Listed,
        label: &str,
        rules: &HealthRules,
    ) -> Result<HashMap<Key, Read>, Error> {
        let mut by_kind: BTreeMap<(&str, &str, &str), Vec<&Key>> = BTreeMap::new();
        for (key, entry) in &listed.objects {
            by_kind.entry((&key.group, &entry.version, &key.kind)).or_default().push(key);
        }
        let mut live = HashMap::new();
        for ((group, version, kind), keys) in by_kind {
            let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            let selection = Selection::labelled(mainstay_api::names::SYNC_LABEL, label);
            let found = match self.cluster.kind(&api_version, kind).await? {
                None => Err("the cluster serves no such kind".to_owned()),
                Some(kind) => self.list(&kind, selection, rules.is_about(&kind.group, &kind.kind)).await,
            };
            match found {
                Ok(found) => {
                    let is_whole = found.len() < MOST;
                    live.extend(found.into_iter().map(|(key, value)| (key, Read::There(value))));
                    if !is_whole {
                        let missing: Vec<_> = keys.into_iter().filter(|key| !live.contains_key(*key)).collect();
                        live.extend(missing.into_iter().map(|key| (key.clone(), Read::Not("not looked at".into()))));
                    }
                }
                Err(why) => live.extend(keys.into_iter().map(|key| (key.clone(), Read::Not(why.clone())))),
            }
        }
        Ok(live)
    }

    /// Lists at most [`MOST`] objects of a kind. Reads only the metadata of Secrets and ConfigMaps, unless
    /// `is_asked`: a health rule needs the whole object.
    async fn list(
        &mut self,
        kind: &Arc<Kind>,
        selection: Selection,
        is_asked: bool,
    ) -> Result<Vec<(Key, Value)>, String> {
        let is_bare = !is_asked && matches!((&*kind.group, &*kind.kind), ("", "Secret" | "ConfigMap"));
        let selection = if is_bare { selection.metadata_only() } else { selection };
        let found: Result<Vec<Value>, _> = self.cluster.list(kind, selection).take(MOST + 1).try_collect().await;
        let mut found = found.map_err(|error| chain(&error))?;
        if found.len() > MOST {
            found.truncate(MOST);
            self.notes.insert(format!("there are more than {MOST} {}; the others were not checked", kind.resource));
        }
        Ok(found.into_iter().filter_map(|value| Some((kind.key_of(&value)?, value))).collect())
    }

    async fn look_for_children(&mut self, mut namespaces: BTreeSet<String>) -> Result<(), Error> {
        namespaces.retain(|namespace| !self.looked_in.contains(namespace));
        for namespace in namespaces {
            if self.looked_in.len() >= NAMESPACES {
                self.notes.insert(format!("children were searched in the first {NAMESPACES} namespaces only"));
                return Ok(());
            }
            for (api_version, kind) in CHILDREN {
                let Some(kind) = self.cluster.kind(api_version, kind).await? else { continue };
                match self.list(&kind, Selection::default().within(&namespace), false).await {
                    Ok(found) => self.remember(found),
                    Err(why) => {
                        self.notes.insert(format!("{} in {namespace}: {why}", kind.resource));
                    }
                }
            }
            self.looked_in.insert(namespace);
        }
        Ok(())
    }

    fn remember(&mut self, found: Vec<(Key, Value)>) {
        for (key, value) in found {
            let owners = value.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let uids = owners.into_iter().flatten().filter_map(|owner| owner.get("uid").and_then(Value::as_str));
            for uid in uids.map(str::to_owned).collect::<Vec<_>>() {
                self.children.entry(uid).or_default().push((key.clone(), value.clone()));
            }
        }
    }

    /// Returns the children of a live object.
    fn below(&self, parent: &Value, depth: usize) -> Vec<Node> {
        let uid = parent.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
        let found = self.children.get(uid).filter(|_| depth < DEEPEST && !uid.is_empty());
        let mut nodes: Vec<Node> = found
            .into_iter()
            .flatten()
            .map(|(key, value)| Node {
                key: key.clone(),
                state: state_of(key, value, &HealthRules::default()),
                children: self.below(value, depth + 1),
            })
            .collect();
        nodes.sort_by(|a, b| a.key.cmp(&b.key));
        nodes
    }
}

/// The result of reading an object of an inventory.
enum Read {
    There(Value),
    Not(String),
}

fn state_of(key: &Key, live: &Value, rules: &HealthRules) -> State {
    let is_terminating = live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if is_terminating {
        State::Terminating
    } else {
        State::There(rules.health(key, live).unwrap_or_else(|| health(key, live)))
    }
}
