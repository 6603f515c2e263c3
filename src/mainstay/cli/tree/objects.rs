//! Builds trees: the live objects of an inventory, and their children.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use serde_json::Value;

use super::live::{Lists, NAMESPACES, Read};
use crate::cli::{Error, syncs};
use mainstay_api::{GitSync, conditions};
use mainstay_cluster::Cluster;
use mainstay_console::Facts;
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_gitsync::Listing;
use mainstay_object::failure::chain;
use mainstay_object::{Health, Key, health, stage};

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
    /// The time at which the object was created; `None` if it was not read.
    pub(in crate::cli) created: Option<Timestamp>,
    /// Addresses and containers for the web page; empty if the object was not read.
    pub(in crate::cli) facts: Facts,
    /// The objects that this object owns.
    pub(in crate::cli) children: Vec<Node>,
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cli) enum State {
    /// The object exists.
    There(Health),
    /// The object is being deleted.
    Terminating,
    /// The inventory contains the object, but the cluster does not.
    Absent,
    /// The object ran to completion and was deleted afterwards.
    Ended,
    /// The object was not read, for this reason.
    Unknown(String),
}

impl Node {
    /// Returns whether the GitSync and all its objects are healthy. Children do not count, because the health of a
    /// parent includes the health of its children.
    pub(super) fn is_healthy(&self) -> bool {
        let is_fine = |node: &Node| matches!(node.state, State::There(Health::Healthy) | State::Ended);
        is_fine(self) && self.children.iter().all(is_fine)
    }
}

/// Whether trees include the objects of remote clusters. The addresses of these clusters are in Secrets, which tenants
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum RemoteClusters {
    /// The command connects to remote clusters from the machine of its user.
    Read,
    /// The process serves several users inside of the cluster, so it connects to the API server only.
    Omit,
}

/// Reads trees. Reads each kind and namespace of children only once.
pub(super) struct Forest<'a> {
    cluster: &'a Cluster,
    with_children: bool,
    remote_clusters: RemoteClusters,
    /// Children by the UID of the parent.
    children: HashMap<String, Vec<(Key, Value)>>,
    looked_in: BTreeSet<String>,
    notes: BTreeSet<String>,
    lists: Lists<'a>,
}

impl<'a> Forest<'a> {
    pub(super) fn new(cluster: &'a Cluster, with_children: bool, remote_clusters: RemoteClusters) -> Self {
        Self {
            cluster,
            with_children,
            remote_clusters,
            children: HashMap::new(),
            looked_in: BTreeSet::new(),
            notes: BTreeSet::new(),
            lists: Lists::new(cluster),
        }
    }

    /// Returns notes about incomplete trees.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.lists.notes()).collect()
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
        let mut root = Node {
            key: key.clone(),
            state: State::There(health),
            created: None,
            facts: Facts::default(),
            children: Vec::new(),
        };
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

    /// Reads the objects of a GitSync in a remote cluster. A failure becomes a note.
    async fn objects_elsewhere(&mut self, sync: &GitSync) -> Vec<Node> {
        if self.remote_clusters == RemoteClusters::Omit {
            let key = syncs::key(sync);
            self.notes.insert(format!(
                "the objects of {key} are in another cluster (spec.kubeConfig), to which this console does not connect; mainstay ui \
                 shows them"
            ));
            return Vec::new();
        }
        let asked = async {
            let Some(other) =
                mainstay_gitsync::other_cluster(self.cluster, sync).await.map_err(|error| error.to_string())?
            else {
                return Ok(Vec::new());
            };
            let listed = mainstay_gitsync::listing_in(&other, sync).await.map_err(|error| chain(&error))?;
            let Listing::Whole(listed) = listed else { return Ok(Vec::new()) };
            let mut there = Forest::new(&other.cluster, self.with_children, RemoteClusters::Read);
            let objects = there.objects(sync, &listed).await.map_err(|error| chain(&error))?;
            self.notes.extend(there.notes());
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
        let live = self.lists.live(listed, &label, &rules).await?;
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
            let (created, facts) = match found {
                Some(Read::There(value)) => (created(value), Facts::of(key, value)),
                _ => (None, Facts::default()),
            };
            nodes.push(Node { key: key.clone(), state, created, facts, children });
        }
        Ok(nodes)
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
                let found = self.lists.children_in(&kind, &namespace).await;
                self.remember(found);
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
                created: created(value),
                facts: Facts::of(key, value),
                children: self.below(value, depth + 1),
            })
            .collect();
        nodes.sort_by(|a, b| a.key.cmp(&b.key));
        nodes
    }
}

fn created(live: &Value) -> Option<Timestamp> {
    live.pointer("/metadata/creationTimestamp")?.as_str()?.parse().ok()
}

fn state_of(key: &Key, live: &Value, rules: &HealthRules) -> State {
    let is_terminating = live.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    if is_terminating {
        State::Terminating
    } else {
        State::There(rules.health(key, live).unwrap_or_else(|| health(key, live)))
    }
}
