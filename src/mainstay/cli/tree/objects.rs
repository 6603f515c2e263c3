//! Builds trees: the live objects of an inventory, and their children.

use std::collections::BTreeSet;

use super::children::Children;
use super::live::{Lists, NAMESPACES, Read};
use super::node::{Node, State};
use crate::cli::{Error, syncs};
use mainstay_api::{GitSync, GitSyncStatus, conditions};
use mainstay_cluster::{Cluster, MemoryBudget};
use mainstay_console::Facts;
use mainstay_gitsync::{Listing, Locations};
use mainstay_object::egress::Egress;
use mainstay_object::failure::chain;
use mainstay_object::{Health, Key, stage};

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

/// The objects to read.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) with_children: bool,
    pub(super) remote_clusters: RemoteClusters,
    /// Maximum memory of the objects that are read, and of the branches of children, in bytes.
    pub(super) bytes: usize,
    /// Maximum memory of the inventory of a GitSync, in bytes.
    pub(super) inventory: usize,
}

/// Whether trees include the objects of remote clusters. The addresses of these clusters are in Secrets, which tenants
/// write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum RemoteClusters {
    /// The command connects to remote clusters from the machine of its user, at these addresses.
    Read(Egress),
    /// The process serves several users inside of the cluster, so it connects to the API server only.
    Omit,
}

/// Reads trees. Reads each kind and namespace of children only once.
pub(super) struct Forest<'a> {
    cluster: &'a Cluster,
    extent: Extent,
    children: Children,
    /// The memory of the branches of children.
    branches: MemoryBudget,
    looked_in: BTreeSet<String>,
    notes: BTreeSet<String>,
    lists: Lists<'a>,
}

impl<'a> Forest<'a> {
    pub(super) fn new(cluster: &'a Cluster, extent: Extent) -> Self {
        Self {
            cluster,
            extent,
            children: Children::default(),
            branches: MemoryBudget::new(extent.bytes),
            looked_in: BTreeSet::new(),
            notes: BTreeSet::new(),
            lists: Lists::new(cluster, MemoryBudget::new(extent.bytes)),
        }
    }

    /// Returns notes about incomplete trees.
    pub(super) fn notes(&self) -> Vec<String> {
        let budgets = [&self.lists.budget, &self.branches];
        let cut = budgets.into_iter().find_map(|budget| budget.note("not all objects and children are shown"));
        self.notes.iter().cloned().chain(cut).chain(self.lists.notes()).collect()
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
        let memory = MemoryBudget::new(self.extent.inventory);
        match Listing::within(self.cluster, sync, Locations::Omitted, &memory).await? {
            None => {
                let most = self.extent.inventory >> 20;
                self.notes.insert(format!(
                    "the inventory of {key} takes more than {most} MiB of memory, so its objects are not shown; `mainstay tree` \
                     shows them"
                ));
            }
            Some(Listing::Whole(listed)) => root.children = self.objects(sync, &listed).await?,
            Some(Listing::Missing) if !had_objects(&status) => {}
            Some(Listing::Missing) => {
                self.notes.insert(format!(
                    "the inventory of {key} is missing, so its objects are not checked; the agent rebuilds it"
                ));
            }
            Some(Listing::Damaged) => {
                self.notes.insert(format!("the inventory of {key} cannot be read; the agent rebuilds it"));
            }
            Some(Listing::Elsewhere) => root.children = self.objects_elsewhere(sync).await,
        }
        Ok(root)
    }

    /// Reads the objects of a GitSync in a remote cluster. A failure becomes a note.
    async fn objects_elsewhere(&mut self, sync: &GitSync) -> Vec<Node> {
        let RemoteClusters::Read(egress) = self.extent.remote_clusters else {
            let key = syncs::key(sync);
            self.notes.insert(format!(
                "the objects of {key} are in another cluster (spec.kubeConfig), to which this console does not connect; mainstay ui \
                 shows them"
            ));
            return Vec::new();
        };
        let asked = async {
            let other = mainstay_gitsync::other_cluster(self.cluster, sync, egress).await;
            let Some(other) = other.map_err(|error| error.to_string())? else { return Ok(Vec::new()) };
            let listed = mainstay_gitsync::listing_in(&other, sync).await.map_err(|error| chain(&error))?;
            let listed = match listed {
                Listing::Whole(listed) => listed,
                Listing::Missing if !sync.status.as_ref().is_some_and(had_objects) => return Ok(Vec::new()),
                Listing::Missing => return Err("its inventory is missing".to_owned()),
                Listing::Damaged | Listing::Elsewhere => return Err("its inventory cannot be read".to_owned()),
            };
            let mut there = Forest::new(&other.cluster, self.extent);
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
        let mut live = self.lists.live(listed, &label, &rules).await?;
        if self.extent.with_children {
            let namespaces = listed.objects.keys().filter_map(|key| key.namespace.as_deref().map(str::to_owned));
            self.look_for_children(namespaces.collect()).await?;
        }
        let mut keys: Vec<&Key> = listed.objects.keys().collect();
        keys.sort_by_key(|key| (stage(key), *key));
        for key in keys {
            let entry = &listed.objects[key];
            let mut node = Node {
                key: key.clone(),
                state: if entry.ended.is_some() { State::Ended } else { State::Absent },
                created: None,
                facts: Facts::default(),
                children: Vec::new(),
            };
            match live.remove(key) {
                Some(Read::There(seen)) => {
                    node.children = self.children.below(&seen.uid, &self.branches);
                    (node.state, node.created, node.facts) = (seen.state, seen.created, seen.facts);
                }
                Some(Read::Not(why)) => node.state = State::Unknown(why),
                None => {}
            }
            nodes.push(node);
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
                self.children.add(found);
            }
            self.looked_in.insert(namespace);
        }
        Ok(())
    }
}

/// Returns whether a GitSync must have an inventory. A commit without objects leaves none.
fn had_objects(status: &GitSyncStatus) -> bool {
    status.objects > 0 || !status.held.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_sync_with_objects_must_have_an_inventory() {
        let applied = GitSyncStatus { applied_commit: Some("c1".to_owned()), ..GitSyncStatus::default() };
        assert!(!had_objects(&applied), "the commit has no objects");
        assert!(had_objects(&GitSyncStatus { objects: 1, ..applied.clone() }));
        assert!(had_objects(&GitSyncStatus { held: vec!["ConfigMap shop/a: kept".to_owned()], ..applied }));
    }
}
