//! One agent: the store, the writer and the drift loop of each of its clusters, and a task for each of its GitSyncs.
//!
//! The tasks do what the controller of GitSyncs does with the engine, in the same order: decode, list new objects in
//! the inventory, apply what changed, write the inventory and the status.
//!
//! Not here: Git, renderers, plans of prunes, messages, and the controller's own state.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use mainstay_api::DriftPolicy;
use mainstay_api::names::{AGENT_MANAGER, INVENTORY_KEY, INVENTORY_LABEL, PLACES_KEY};
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::{Apply, Cluster, Kind, Part, Scope};
use mainstay_engine::apply::{Applied, Change, Expect, Step, Writer};
use mainstay_engine::drift::Drift;
use mainstay_engine::managed::inventory::Inventory;
use mainstay_engine::managed::places::Places;
use mainstay_engine::managed::{Appliers, Desired, History, Policy};
use mainstay_object::{Names, Owner};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fleet::{Fleet, label, namespace, owner};
use crate::measure;
use crate::server::Server;

/// Maximum number of small inventories that an agent loads concurrently.
const LOADING: usize = 16;
const POLICY: Policy =
    Policy { drift: DriftPolicy::Revert, additions: false, suspended: false, confined: false, acts_as: None };

/// A cluster, the GitSyncs that apply to it, and its server.
pub(crate) type Target = (Server, Range<usize>);

/// An agent while it runs.
pub(crate) struct Agent {
    fleet: Arc<Fleet>,
    /// The cluster with the GitSyncs.
    home: Cluster,
    syncs: Vec<GitSync>,
    loops: JoinSet<()>,
    stop: CancellationToken,
}

/// The task of a GitSync.
struct GitSync {
    number: usize,
    owner: Owner,
    writer: Writer,
    /// The objects of the last commit.
    objects: Vec<Arc<Desired>>,
}

impl Agent {
    /// Starts an agent without objects. It audits each object once in `audit`.
    pub(crate) fn start(fleet: &Arc<Fleet>, home: &Server, targets: &[Target], audit: Duration) -> Self {
        let (liveness, stop) = (Liveness::default(), CancellationToken::new());
        let connect = |server: &Server| Cluster::from_clients(server.client(), server.client());
        let (mut loops, mut syncs) = (JoinSet::new(), Vec::new());
        let home = connect(home);
        // The budget of memory is shared, as with remote clusters.
        let (first, _) = Writer::new(home.clone(), liveness.component("reverts"), |_| {});
        for (server, numbers) in targets {
            let (writer, follow_ups) = first.beside(connect(server), liveness.component("reverts"), |_| {});
            let (drift, end) = (Drift::new(writer.clone()), stop.clone());
            loops.spawn(drift.clone().audit(audit, stop.clone()));
            loops.spawn(async move { drift.run(follow_ups, end).await.expect("no task of the loop panics") });
            syncs.extend(numbers.clone().map(|number| {
                let owner = owner(number);
                writer.set_policy(&owner, POLICY, History::default());
                GitSync { number, owner, writer: writer.clone(), objects: Vec::new() }
            }));
        }
        Self { fleet: Arc::clone(fleet), home, syncs, loops, stop }
    }

    /// Applies a commit in which each Deployment has this image, with all GitSyncs simultaneously.
    pub(crate) async fn commit(&mut self, image: u32) {
        let mut tasks = JoinSet::new();
        for mut sync in self.syncs.drain(..) {
            let (fleet, home) = (Arc::clone(&self.fleet), self.home.clone());
            tasks.spawn(async move {
                sync.apply(&fleet, &home, image).await;
                sync
            });
        }
        self.syncs = tasks.join_all().await;
    }

    /// Reads the inventories of an earlier agent and the same commit. Returns when a watch has shown each object.
    pub(crate) async fn resume(&mut self, image: u32) {
        let (mut tasks, loading) = (JoinSet::new(), Arc::new(Semaphore::new(LOADING)));
        for mut sync in self.syncs.drain(..) {
            let (fleet, loading) = (Arc::clone(&self.fleet), Arc::clone(&loading));
            tasks.spawn(async move {
                let seen = sync.writer.notifier(&sync.owner);
                sync.load(&loading).await;
                sync.objects = sync.decode(&fleet, image);
                sync.writer.accept(&sync.owner, &sync.objects, []);
                while sync.writer.summary(&sync.owner).healthy < sync.objects.len() {
                    seen.notified().await;
                }
                sync
            });
        }
        self.syncs = tasks.join_all().await;
    }

    /// Stops the agent as a kill does: nothing is written.
    pub(crate) async fn kill(mut self) {
        self.stop.cancel();
        while self.loops.join_next().await.is_some() {}
    }
}

impl GitSync {
    async fn apply(&mut self, fleet: &Fleet, home: &Cluster, image: u32) {
        let desired = self.decode(fleet, image);
        let expect = if self.objects.is_empty() { Expect::Absent } else { Expect::Ours };
        let changed = |one: &&Arc<Desired>| self.writer.kept_source(&self.owner, &one.key) != Some(one.source());
        let step = |desired: &Arc<Desired>| Step {
            desired: Arc::clone(desired),
            expect: expect.clone(),
            appliers: Appliers::default(),
        };
        let steps = desired.iter().filter(changed).map(step).collect::<Vec<_>>();
        self.objects = desired;
        let grew = self.writer.store().intend(&self.owner, steps.iter().map(|step| &step.desired));
        if grew {
            self.save(image).await;
        }
        self.writer.accept(&self.owner, &self.objects, []);
        let mut puts = std::pin::pin!(self.writer.put_stage(&self.owner, &steps));
        while let Some((desired, applied)) = puts.next().await {
            let is_done =
                matches!(&applied, Applied::Done(put) if matches!(put.change, Change::Created | Change::Changed));
            assert!(is_done, "{}: {applied:?}", desired.key);
        }
        let is_unsaved = self.writer.store().is_unsaved(&self.owner);
        if is_unsaved {
            self.save(image).await;
        }
        self.report(home, image).await;
    }

    fn decode(&self, fleet: &Fleet, image: u32) -> Vec<Arc<Desired>> {
        let manifest = |number| measure::apart(|| Fleet::manifest(self.number, number, image));
        let mut names = Names::default();
        (0..fleet.objects).map(|number| fleet.desired(self.number, number, &manifest(number), &mut names)).collect()
    }

    /// Writes the inventory.
    async fn save(&self, image: u32) {
        let Some(inventory) = self.writer.store().save(&self.owner) else { return };
        let (namespace, label, shards) = (namespace(self.number), label(self.number), inventory.encode());
        drop(inventory);
        for shard in shards {
            let places = shard.keys.iter().zip(&self.objects).map(|(key, one)| (key, Some(&one.object.place)));
            let places = Places::encode(&format!("{image:040}"), places).expect("the places are few");
            let name = format!("mainstay-inventory-app-{}", shard.index);
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace, "labels": {INVENTORY_LABEL: label}},
                "binaryData": {INVENTORY_KEY: STANDARD.encode(&shard.content), PLACES_KEY: STANDARD.encode(places)},
            });
            self.writer.note_inventory_map(&namespace, &label, &name);
            let how = Apply::forced(AGENT_MANAGER);
            let saved = self.writer.cluster().apply(&config_maps(), Some(&namespace), &name, &body, how).await;
            saved.expect("the inventory is written");
        }
    }

    /// Reads the inventory.
    async fn load(&self, loading: &Semaphore) {
        let _permit = loading.acquire().await;
        let (namespace, label) = (namespace(self.number), label(self.number));
        let names = self.writer.inventory_maps(&namespace, &label).await.expect("the watch has listed inventories");
        let mut contents = Vec::new();
        for name in names {
            let map = self.writer.cluster().get(&config_maps(), Some(&namespace), &name).await;
            let map = map.expect("the inventory is read").expect("the inventory exists");
            let content = map["binaryData"][INVENTORY_KEY].as_str().unwrap_or_default();
            contents.push(STANDARD.decode(content).expect("the inventory is in base64"));
        }
        let inventory = Inventory::decode(contents.iter().map(Vec::as_slice)).expect("the inventory is readable");
        self.writer.store().set_inventory(&self.owner, inventory);
    }

    /// Writes the status.
    async fn report(&self, home: &Cluster, image: u32) {
        let summary = self.writer.summary(&self.owner);
        let conditions = ["Ready", "Reconciling", "Stalled"].map(|condition| {
            json!({"type": condition, "status": "True", "reason": "Applied", "message": "applied",
                "lastTransitionTime": "2026-03-02T08:00:00Z", "observedGeneration": 1})
        });
        let status = json!({"status": {"conditions": conditions, "appliedCommit": format!("{image:040}"),
            "objects": summary.objects, "healthy": summary.healthy}});
        let kind = Kind::of::<mainstay_api::GitSync>();
        let written = home.patch_merge(&kind, Some(&namespace(self.number)), "app", Part::Status, &status).await;
        written.expect("the status is written");
    }
}

fn config_maps() -> Kind {
    Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced)
}
