//! The other clusters that GitSyncs name: one connection with a writer, a store and watches for each Secret with a kubeconfig, as
//! long as a GitSync uses it.
//!
//! What several Secrets lead to may be one cluster. Each has its own rights, so nothing of one is written with the other; but who
//! manages what there is known to all of them ([`Registry`]), and so it is for one that leads back to the agent's own cluster.
//!
//! Invariant: a cluster is known by the uid of its namespace `kube-system`, never by its address.
//! Invariant: one that does not answer holds up those GitSyncs alone that name it.
//! Invariant: with other credentials for the same cluster everything that is known of it stays.
//!
//! Deliberately absent: where a GitSync's objects are now, and what becomes of those that it leaves behind (`place`).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::outcome::Refused;
use super::registry::Registry;
use mainstay_api::conditions::Reason;
use mainstay_cluster::{Addresses, Cause, Cluster, Error, Kubeconfig};
use mainstay_engine::apply::Writer;
use mainstay_engine::managed::Part;
use mainstay_git::Source;
use mainstay_object::Owner;
use mainstay_object::failure::{Class, chain};

/// Memory of what is kept of a cluster, and of a few connections, in bytes.
const EACH: usize = 512 << 10;

/// Whose objects are written elsewhere: namespace, name and key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SecretKey {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) key: Option<String>,
}

/// Another cluster, or the agent's own as one of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceId {
    /// The uid of its namespace `kube-system`.
    pub(super) id: String,
    /// The same of the agent's own cluster; `None` if it is that one.
    pub(super) home: Option<String>,
}

/// The writer of another cluster, whose drift is being followed.
pub struct Begun {
    /// The writer.
    pub writer: Writer,
    /// Ends everything that runs for it when dropped.
    pub running: Box<dyn Send + Sync>,
    /// Cancelled when that has ended by itself.
    pub over: CancellationToken,
}

/// A cluster in use.
pub(super) struct Engine<C> {
    /// What its GitSyncs share.
    pub(super) context: Arc<C>,
    pub(super) place: PlaceId,
    pub(super) cluster: Cluster,
    pub(super) of: SecretKey,
    /// The kubeconfig that is connected by.
    by: Mutex<Arc<Kubeconfig>>,
    /// Its memory is counted as long as this is there.
    _counted: Counted,
    over: CancellationToken,
    _running: Box<dyn Send + Sync>,
}

/// What is known of the cluster of one Secret.
struct Slot<C> {
    engine: Weak<Engine<C>>,
    /// What was tried last in vain, when that ended, and what came of it.
    failed: Option<(Arc<Kubeconfig>, Instant, Refused)>,
}

impl<C> Default for Slot<C> {
    fn default() -> Self {
        Self { engine: Weak::new(), failed: None }
    }
}

/// The agent's own cluster, from which the others are connected to.
pub(super) struct Home<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) source: &'a Source,
    pub(super) writer: &'a Writer,
    pub(super) registry: &'a Arc<Registry>,
}

/// All of them, each with what its GitSyncs share.
pub(super) struct Clusters<C> {
    begin: Box<dyn Fn(Cluster) -> Begun + Send + Sync>,
    /// Locked while it is connected to.
    slots: Mutex<HashMap<SecretKey, Arc<tokio::sync::Mutex<Slot<C>>>>>,
    registries: Mutex<HashMap<String, Arc<Registry>>>,
    home: tokio::sync::OnceCell<String>,
    /// Clusters whose memory is counted for a GitSync.
    counts: Arc<Mutex<HashMap<Owner, usize>>>,
}

/// Memory that is counted for a GitSync, which may be the first of several clusters one after the other.
struct Counted {
    owner: Owner,
    writer: Writer,
    all: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Counted {
    /// `None`: there is none left.
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
    /// Which cluster it is.
    pub(super) fn id(&self) -> &str {
        &self.place.id
    }

    /// It is not what its Secret leads to any more.
    pub(super) fn retire(&self) {
        self.over.cancel();
    }

    /// Whether it goes on following drift.
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

    /// Who manages what in a cluster.
    pub(super) fn registry(&self, id: &str) -> Arc<Registry> {
        let mut registries = self.registries.lock();
        if !registries.contains_key(id) {
            // Those that nobody uses any more.
            registries.retain(|_, registry| Arc::strong_count(registry) > 1);
        }
        Arc::clone(registries.entry(id.to_owned()).or_default())
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

    /// The cluster that a Secret leads to, by the kubeconfig that it holds now.
    ///
    /// # Errors
    /// It does not answer, or not to these credentials; there is no memory for it.
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
        // Whoever asked meanwhile has its answer.
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
        let source = home.source.for_namespace(&of.namespace);
        let addresses: Addresses = Arc::new(move |host, port| {
            let source = source.clone();
            Box::pin(async move { source.addresses(&host, port).await })
        });
        let cluster = Cluster::remote(by, addresses).await.map_err(|error| unreached(of, &error))?;
        let id = cluster.id().await.map_err(|error| unreached(of, &error))?;
        if let Some(engine) = before.filter(|engine| engine.id() == id) {
            engine.cluster.take_connection_of(&cluster);
            *engine.by.lock() = Arc::clone(by);
            return Ok(engine);
        }
        let own = self.home.get_or_try_init(|| home.cluster.id()).await?;
        let Some(counted) = Counted::new(owner, home.writer, &self.counts) else {
            let message = format!(
                "there is no memory left for the cluster of Secret {} (spec.kubeConfig); give the agent more memory (limits.memory of \
                 its Deployment), or let GitSyncs of one cluster share a Secret",
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
            // On this way, too, nothing of what the agent lives by is deleted.
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

/// Why a cluster is not used. What it applied before is kept as long as somebody can.
pub(super) fn unreached(of: &SecretKey, error: &Error) -> Refused {
    let name = &of.name;
    let (class, message) = match (&*error.cause, error.class()) {
        (Cause::Refused(_), Class::Denied) if error.code() == Some(401) => {
            let todo = "put new ones into it";
            (
                Class::Denied,
                format!("the cluster does not accept the credentials in Secret {name} (spec.kubeConfig): {todo}"),
            )
        }
        (Cause::Refused(_), Class::Denied) => {
            let needed = "they need the right to get the namespace kube-system, whose uid identifies the cluster";
            (Class::Denied, format!("the credentials in Secret {name} (spec.kubeConfig) are not sufficient: {needed}"))
        }
        _ => {
            let why = chain(error);
            (Class::NotReady, format!("the cluster of Secret {name} (spec.kubeConfig) cannot be reached: {why}"))
        }
    };
    Refused { class, reason: Reason::ClusterUnavailable, message, retry_after: error.retry_after() }
}
