//! The remote clusters of GitSyncs. While a GitSync uses a Secret with a kubeconfig, the Secret has one connection with
//! a writer, a store and watches.
//!
//! Several Secrets may contain kubeconfigs of the same cluster. Each Secret has its own connection, so no write uses
//! the permissions of another Secret. All connections to a cluster share one [`Registry`]. A kubeconfig of the agent's
//! own cluster shares the registry of that cluster.
//!
//! Invariant: the uid of the namespace `kube-system` identifies a cluster, never its address.
//! Invariant: a cluster that does not respond delays only the GitSyncs that use it.
//! Invariant: if only the credentials for a cluster change, the state of the cluster is kept.
//!
//! Not here: the current cluster of a GitSync, and the release of objects in a cluster that the GitSync leaves
//! (`place`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::outcome::Refused;
use super::registry::Registry;
use mainstay_api::conditions::Reason;
use mainstay_cluster::{AllowedAddresses, Cause, Cluster, Error, Kubeconfig};
use mainstay_engine::apply::Writer;
use mainstay_engine::managed::Part;
use mainstay_object::Owner;
use mainstay_object::egress::EgressRefusal;
use mainstay_object::failure::{Class, chain};

/// Memory of a cluster's caches and its few connections, in bytes.
const EACH: usize = 512 << 10;

/// Namespace, name and key of the Secret with the kubeconfig of a remote cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SecretKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: Option<String>,
}

/// A remote cluster, or the agent's own cluster reached through a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceId {
    /// The UID of the cluster's namespace `kube-system`.
    pub(super) id: String,
    /// The UID of `kube-system` in the agent's own cluster; `None` if this is the agent's own cluster.
    pub(super) home: Option<String>,
}

/// The writer of a remote cluster, with its drift detection.
pub struct Begun {
    /// The writer.
    pub writer: Writer,
    /// Stops all tasks of the writer when dropped.
    pub running: Box<dyn Send + Sync>,
    /// Cancelled when a task of the writer has ended by itself.
    pub over: CancellationToken,
}

/// A connected cluster.
pub(super) struct Engine<C> {
    /// The context that its GitSyncs share.
    pub(super) context: Arc<C>,
    pub(super) place: PlaceId,
    pub(super) cluster: Cluster,
    pub(super) of: SecretKey,
    /// The kubeconfig of the connection.
    by: Mutex<Arc<Kubeconfig>>,
    /// Counts the memory of the cluster until this value is dropped.
    _counted: Counted,
    over: CancellationToken,
    _running: Box<dyn Send + Sync>,
}

/// The state of the cluster of one Secret.
struct Slot<C> {
    engine: Weak<Engine<C>>,
    /// The last failed kubeconfig, the time of the failure, and its refusal.
    failed: Option<(Arc<Kubeconfig>, Instant, Refused)>,
}

impl<C> Default for Slot<C> {
    fn default() -> Self {
        Self { engine: Weak::new(), failed: None }
    }
}

/// The agent's own cluster, from which it connects to remote clusters.
pub(super) struct Home<'a> {
    pub(super) cluster: &'a Cluster,
    /// The addresses that the kubeconfig may lead to.
    pub(super) addresses: AllowedAddresses,
    pub(super) writer: &'a Writer,
    pub(super) registry: &'a Arc<Registry>,
}

/// All remote clusters. `C` is the context that the GitSyncs of one cluster share.
pub(super) struct Clusters<C> {
    begin: Box<dyn Fn(Cluster) -> Begun + Send + Sync>,
    /// A slot is locked while the agent connects.
    slots: Mutex<HashMap<SecretKey, Arc<tokio::sync::Mutex<Slot<C>>>>>,
    registries: Mutex<HashMap<String, Arc<Registry>>>,
    home: tokio::sync::OnceCell<String>,
    /// For each GitSync, the number of clusters whose memory is counted for it.
    counts: Arc<Mutex<HashMap<Owner, usize>>>,
}

/// The memory of a cluster, counted for the GitSync that connected first. It may be the first one of several clusters.
struct Counted {
    owner: Owner,
    writer: Writer,
    all: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Counted {
    /// Returns `None` if there is no memory left.
    fn new(owner: &Owner, writer: &Writer, all: &Arc<Mutex<HashMap<Owner, usize>>>) -> Option<Self> {
        let mut counts = all.lock();
        let count = counts.get(owner).copied().unwrap_or_default() + 1;
        if !writer.keep_in_memory(owner, Part::Cluster, count * EACH) {
            return None;
        }
        counts.insert(owner.clone(), count);
        Some(Self { owner: owner.clone(), writer: writer.clone(), all: Arc::clone(all) })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.all.lock();
        let count = counts.get(&self.owner).copied().unwrap_or_default().saturating_sub(1);
        self.writer.keep_in_memory(&self.owner, Part::Cluster, count * EACH);
        if count > 0 {
            counts.insert(self.owner.clone(), count)
        } else {
            counts.remove(&self.owner)
        };
    }
}

impl<C> Engine<C> {
    /// Returns the id of the cluster.
    pub(super) fn id(&self) -> &str {
        &self.place.id
    }

    /// Ends the use of the engine, because its Secret contains a kubeconfig of a different cluster now.
    pub(super) fn retire(&self) {
        self.over.cancel();
    }

    /// Whether drift detection still runs.
    pub(super) fn is_alive(&self) -> bool {
        !self.over.is_cancelled()
    }
}

impl<C> Clusters<C> {
    pub(super) fn new(begin: impl Fn(Cluster) -> Begun + Send + Sync + 'static) -> Self {
        Self {
            begin: Box::new(begin),
            slots: Mutex::default(),
            registries: Mutex::default(),
            home: tokio::sync::OnceCell::new(),
            counts: Arc::default(),
        }
    }

    /// Returns the registry of a cluster.
    pub(super) fn registry(&self, id: &str) -> Arc<Registry> {
        let mut registries = self.registries.lock();
        if !registries.contains_key(id) {
            // Unused registries are dropped.
            registries.retain(|_, registry| Arc::strong_count(registry) > 1 || !registry.is_empty());
        }
        Arc::clone(registries.entry(id.to_owned()).or_default())
    }

    /// Returns the registries of all known clusters, with the ids of the clusters.
    pub(super) fn registries(&self) -> Vec<(String, Arc<Registry>)> {
        self.registries.lock().iter().map(|(id, registry)| (id.clone(), Arc::clone(registry))).collect()
    }

    fn slot(&self, of: &SecretKey) -> Arc<tokio::sync::Mutex<Slot<C>>> {
        let mut slots = self.slots.lock();
        if !slots.contains_key(of) {
            let is_used = |slot: &Arc<tokio::sync::Mutex<Slot<C>>>| {
                Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|slot| slot.engine.strong_count() > 0)
            };
            slots.retain(|_, slot| is_used(slot));
        }
        Arc::clone(slots.entry(of.clone()).or_default())
    }

    /// Returns the cluster of the current kubeconfig in a Secret.
    ///
    /// # Errors
    ///
    /// The cluster does not respond or rejects the credentials, or there is no memory for the cluster.
    pub(super) async fn engine(
        &self,
        home: &Home<'_>,
        shared: impl FnOnce(Writer, Arc<Registry>, PlaceId) -> C,
        (owner, of, by): (&Owner, &SecretKey, &Arc<Kubeconfig>),
    ) -> Result<Arc<Engine<C>>, Refused> {
        let (slot, asked) = (self.slot(of), Instant::now());
        let mut slot = slot.lock().await;
        let engine = slot.engine.upgrade().filter(|engine| engine.is_alive());
        if let Some(engine) = engine.as_ref().filter(|engine| **engine.by.lock() == **by) {
            return Ok(Arc::clone(engine));
        }
        // Callers that waited for the same failed attempt share its error.
        if let Some((_, _, refused)) = slot.failed.as_ref().filter(|(tried, at, _)| tried == by && *at >= asked) {
            return Err(refused.clone());
        }
        match self.connect(home, shared, (owner, of, by), engine).await {
            Ok(engine) => {
                (slot.engine, slot.failed) = (Arc::downgrade(&engine), None);
                Ok(engine)
            }
            Err(refused) => {
                slot.failed = Some((Arc::clone(by), Instant::now(), refused.clone()));
                Err(refused)
            }
        }
    }

    async fn connect(
        &self,
        home: &Home<'_>,
        shared: impl FnOnce(Writer, Arc<Registry>, PlaceId) -> C,
        (owner, of, by): (&Owner, &SecretKey, &Arc<Kubeconfig>),
        before: Option<Arc<Engine<C>>>,
    ) -> Result<Arc<Engine<C>>, Refused> {
        let cluster = Cluster::remote(by, home.addresses.clone()).await.map_err(|error| unreached(of, &error))?;
        let id = cluster.id().await.map_err(|error| unreached(of, &error))?;
        if let Some(engine) = before.filter(|engine| engine.id() == id) {
            engine.cluster.take_connection_of(&cluster);
            *engine.by.lock() = Arc::clone(by);
            return Ok(engine);
        }
        let own = self.home.get_or_try_init(|| home.cluster.id()).await?;
        let Some(counted) = Counted::new(owner, home.writer, &self.counts) else {
            let message = format!(
                "there is no memory left for the cluster of Secret {} (spec.kubeConfig); raise limits.memory of the \
                 agent's Deployment, or let GitSyncs of one cluster share a Secret",
                of.name
            );
            return Err(Refused {
                class: Class::NotReady,
                reason: Reason::MemoryExhausted,
                message,
                retry_after: None,
            });
        };
        let is_home = id == *own;
        let registry = if is_home { Arc::clone(home.registry) } else { self.registry(&id) };
        let place = PlaceId { home: (!is_home).then(|| own.clone()), id };
        let Begun { writer, running, over } = (self.begin)(cluster);
        if is_home {
            // The installation of the agent is protected from deletions through this cluster, too.
            writer.set_installation(home.writer.installation().clone());
        }
        Ok(Arc::new(Engine {
            cluster: writer.cluster().clone(),
            context: Arc::new(shared(writer, registry, place.clone())),
            place,
            of: of.clone(),
            by: Mutex::new(Arc::clone(by)),
            _counted: counted,
            over,
            _running: running,
        }))
    }
}

/// Returns the reason why a cluster is not used. Objects that were applied earlier are still reverted as long as
/// possible.
pub(super) fn unreached(of: &SecretKey, error: &Error) -> Refused {
    let name = &of.name;
    let (class, message) = match (&*error.cause, error.class()) {
        (Cause::Refused(_), Class::Denied) if error.code() == Some(401) => {
            let todo = "put new credentials into the Secret";
            (
                Class::Denied,
                format!("the cluster does not accept the credentials in Secret {name} (spec.kubeConfig): {todo}"),
            )
        }
        (Cause::Refused(_), Class::Denied) => {
            let needed = "they need the permission to get the namespace kube-system, whose uid identifies the cluster";
            (Class::Denied, format!("the credentials in Secret {name} (spec.kubeConfig) are not sufficient: {needed}"))
        }
        _ => {
            let refusal = error.refused_address();
            let why = refusal.map_or_else(|| chain(error), |refusal| format!("{refusal}; {}", remedy(refusal)));
            (Class::NotReady, format!("the cluster of Secret {name} (spec.kubeConfig) cannot be reached: {why}"))
        }
    };
    Refused { class, reason: Reason::ClusterUnavailable, message, retry_after: error.retry_after() }
}

/// Returns the remedy for a refused address.
fn remedy(refusal: EgressRefusal) -> &'static str {
    match refusal {
        EgressRefusal::Machine => {
            "write an address into the kubeconfig of the Secret at which other machines reach the API server; a command with the \
             kubeconfig of `mainstay dev` may connect to this machine"
        }
        EgressRefusal::Metadata | EgressRefusal::Internal => {
            "write another address of the API server into the kubeconfig of the Secret"
        }
    }
}
