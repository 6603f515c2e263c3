//! The environment of the measurement: a cluster, a Git server, the agents, and the GitSyncs.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    Error, access,
    changes::Responsible,
    fleet::Fleet,
    leases::{Leases, SELECTOR},
    load::{Load, PREFIX, Place, sync_name},
    plan::Plan,
    watch::{self, Watch},
};
use crate::{
    Product,
    api::{GitRepository, GitSync, REQUESTED_AT},
    git_server::HttpServer,
    stand::{DEADLINE, NAMESPACE, Stand},
};

/// Maximum number of concurrent creations.
const IN_FLIGHT: usize = 16;
/// Name of the repository and of its GitRepository.
const REPOSITORY: &str = "shared";
/// Size of a page of a list.
const PAGE: u32 = 500;

/// The environment of a measurement.
pub(super) struct World {
    pub stand: Stand,
    pub load: Load,
    pub fleet: Fleet,
    pub watch: Watch,
    pub leases: Leases,
    git: HttpServer,
    product: Product,
}

/// The Leases of shards at one time.
pub(super) struct Owners {
    leases: Vec<Value>,
    holder: fn(&[Value], &str, &str) -> Option<String>,
    claims: fn(&Value, &str, &str) -> bool,
}

impl Owners {
    /// Returns the identity of the agent of a GitSync. It may have died, but its Lease has not expired.
    pub(super) fn of(&self, sync: usize) -> Option<String> {
        (self.holder)(&self.leases, NAMESPACE, &sync_name(sync))
    }

    /// Returns the agents that are responsible for a GitSync.
    pub(super) fn responsible(&self, sync: usize) -> Responsible {
        let name = sync_name(sync);
        let claiming = self.leases.iter().filter(|lease| (self.claims)(lease, NAMESPACE, &name));
        // The only holder would own each GitSync, so this is the holder of the Lease if it has not expired.
        let claimants = claiming.filter_map(|lease| (self.holder)(std::slice::from_ref(lease), NAMESPACE, &name));
        Responsible { holder: self.of(sync), claimants: claimants.collect() }
    }

    /// Returns the resource version of the newest Lease of an agent; 0 if it holds none.
    pub(super) fn written(&self, agent: &str) -> u64 {
        let held = self.leases.iter().filter(|lease| lease["spec"]["holderIdentity"] == agent);
        held.map(|lease| watch::number(lease["metadata"]["resourceVersion"].as_str())).max().unwrap_or_default()
    }

    /// Returns the identities in the Leases.
    fn holders(&self) -> impl Iterator<Item = &str> {
        self.leases.iter().filter_map(|lease| lease["spec"]["holderIdentity"].as_str())
    }
}

/// An object in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub uid: String,
    pub revision: String,
}

impl World {
    /// Starts everything, and waits until each agent has a shard.
    pub(super) async fn start(product: &Product, plan: &Plan) -> Result<Self, Error> {
        let mut stand = Stand::start(product, plan.kubeconfig.as_deref(), 0.0).await?;
        if let Some(memory) = &plan.memory {
            stand.set("MAINSTAY_MEMORY", memory);
        }
        let root = stand.directory().join("repositories");
        std::fs::create_dir_all(&root).map_err(Error::Directory)?;
        let load = Load::new(&root.join(REPOSITORY), plan.syncs)?;
        let git = HttpServer::start(&root).await?;
        access::permit(&stand.client).await?;
        let watch = Watch::start(Api::namespaced(stand.client.clone(), NAMESPACE)).await?;
        let leases = Leases::start(Api::namespaced(stand.client.clone(), NAMESPACE));
        let fleet = Fleet::start(&stand, plan.shards).await?;
        let world = Self { stand, load, fleet, watch, leases, git, product: product.clone() };
        world.until_each_has_a_shard().await?;
        Ok(world)
    }

    async fn until_each_has_a_shard(&self) -> Result<(), Error> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            let owners = self.owners().await?;
            if owners.holders().filter(|name| self.fleet.has(name)).count() == self.fleet.len() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(Error::NotStarted)
    }

    /// Returns the Leases of shards.
    pub(super) async fn owners(&self) -> Result<Owners, Error> {
        let api = Api::<Lease>::namespaced(self.stand.client.clone(), NAMESPACE);
        let listed = api.list(&ListParams::default().labels(SELECTOR)).await.map_err(Error::Ask)?;
        let leases = listed.items.iter().map(|lease| serde_json::to_value(lease).map_err(Error::Counts));
        let Product { shard_holder: holder, shard_claims: claims, .. } = self.product;
        Ok(Owners { leases: leases.collect::<Result<_, _>>()?, holder, claims })
    }

    /// Whether the agent of a Lease has published a set of agents in which it owns the GitSync of an object.
    pub(super) fn claims(&self, lease: &Value, place: Place) -> bool {
        (self.product.shard_claims)(lease, NAMESPACE, &sync_name(place.sync))
    }

    /// Creates all GitSyncs.
    pub(super) async fn follow_all(&self) -> Result<(), Error> {
        let repository = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
            "metadata": { "name": REPOSITORY }, "spec": { "url": self.git.url(REPOSITORY) },
        });
        self.stand.apply::<GitRepository>(REPOSITORY, &repository).await?;
        let created = stream::iter(0..self.load.len()).map(|sync| async move {
            let object = json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": sync_name(sync) },
                "spec": Load::spec(sync, REPOSITORY),
            });
            self.stand.apply_named::<GitSync>(&object).await
        });
        created.buffer_unordered(IN_FLIGHT).try_for_each(|()| std::future::ready(Ok(()))).await
    }

    /// Returns the number of GitSyncs that are not Ready at a commit.
    pub(super) async fn behind(&self, commit: &str) -> Result<usize, Error> {
        let all = self.syncs().list(&ListParams::default()).await.map_err(Error::Ask)?;
        let reached = all.iter().filter(|sync| sync.name_any().starts_with(PREFIX) && is_ready_at(sync, commit));
        Ok(self.load.len().saturating_sub(reached.count()))
    }

    /// Requests a sync.
    pub(super) async fn request(&self, sync: usize) -> Result<(), Error> {
        let patch = json!({ "metadata": { "annotations": { REQUESTED_AT: jiff::Timestamp::now().to_string() } } });
        let how = PatchParams::default();
        self.syncs().patch(&sync_name(sync), &how, &Patch::Merge(&patch)).await.map(drop).map_err(Error::Ask)
    }

    /// Edits an object by hand. Returns its version, and the time of the response.
    pub(super) async fn edit(&self, place: Place) -> Result<(u64, Instant), Error> {
        let how = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        let patch = json!({ "data": { "revision": "edited by hand" } });
        let edited = self.config_maps().patch(&place.name(), &how, &Patch::Merge(&patch)).await.map_err(Error::Ask)?;
        Ok((watch::number(edited.metadata.resource_version.as_deref()), Instant::now()))
    }

    /// Returns the present resource version.
    pub(super) async fn version(&self) -> Result<u64, Error> {
        watch::version(&self.config_maps()).await
    }

    /// Returns the objects of the load by name.
    pub(super) async fn objects(&self) -> Result<HashMap<String, Found>, Error> {
        let (api, mut found, mut next) = (self.config_maps(), HashMap::new(), None::<String>);
        loop {
            let mut page = ListParams::default().limit(PAGE);
            page.continue_token = next;
            let list = api.list(&page).await.map_err(Error::Ask)?;
            next = list.metadata.continue_.filter(|token| !token.is_empty());
            found.extend(list.items.into_iter().filter(|object| object.name_any().starts_with(PREFIX)).map(read));
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    /// Withdraws the permissions of the agents.
    pub(super) async fn clean(&self) -> Result<(), Error> {
        access::forbid(&self.stand.client).await
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE)
    }

    fn syncs(&self) -> Api<GitSync> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE)
    }
}

fn is_ready_at(sync: &GitSync, commit: &str) -> bool {
    sync.status.as_ref().is_some_and(|status| {
        let is_ready = status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        is_ready && status.applied_commit.as_deref() == Some(commit)
    })
}

fn read(object: ConfigMap) -> (String, Found) {
    let name = object.name_any();
    let revision = object.data.and_then(|mut data| data.remove("revision")).unwrap_or_default();
    (name, Found { uid: object.metadata.uid.unwrap_or_default(), revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lease_of_an_agent_has_the_highest_resource_version() {
        let lease = |holder: &str, version: &str| json!({"metadata": {"resourceVersion": version}, "spec": {"holderIdentity": holder}});
        let leases = vec![lease("one", "9"), lease("one", "10"), lease("two", "11")];
        let owners = Owners { leases, holder: |_, _, _| None, claims: |_, _, _| false };
        assert_eq!(["one", "two", "three"].map(|agent| owners.written(agent)), [10, 11, 0]);
    }
}
