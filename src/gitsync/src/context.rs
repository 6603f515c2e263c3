//! The context that all GitSyncs of an agent share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::clusters::{Begun, Clusters, Engine, Home, PlaceId, SecretKey};
use super::contest_watch;
use super::dependencies::Dependencies;
use super::outcome::Refused;
use super::placement::{Reach, label};
use super::registry::{Elsewhere, Registry};
use super::rights::Rights;
use super::status_turn::StatusTurns;
use super::urgency::ShowTurns;
use mainstay_api::GitSync;
use mainstay_cluster::liveness::Component;
use mainstay_cluster::secrets::Secrets;
use mainstay_cluster::{Addresses, AllowedAddresses, Cluster, Kind, Kubeconfig, Regarding, ServiceAccount, Turns};
use mainstay_engine::apply::{Announcement, Writer};
use mainstay_engine::notification::Message;
use mainstay_engine::prevention::Prevention;
use mainstay_git::{Pushes, Repositories, SkippedTrees, Source, thread_time};
use mainstay_manifest::render::{Helm, Kustomize};
use mainstay_object::{Key, Owner};

/// Maximum number of inventories of any size that are loaded concurrently.
const LOADING: usize = 2;
/// Maximum number of small inventories that are read concurrently. An agent that takes GitSyncs over reads one of each.
const LOADING_SMALL: usize = 16;
/// The same for a remote cluster, because there may be many.
const LOADING_SMALL_ELSEWHERE: usize = 4;

/// Maximum number of GitSyncs of a cluster that carry out a commit concurrently, without slow ones. Each of them has
/// requests and responses in memory.
const CARRYING_OUT: usize = 64;
/// Time after which a GitSync is slow. It is longer than the requests of [`CARRYING_OUT`] GitSyncs take on a busy server.
const SLOW: Duration = Duration::from_secs(3);

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The newest state of one GitSync; `None` once it is gone.
pub type Input = watch::Receiver<Option<Arc<GitSync>>>;

/// The context of all GitSyncs whose objects are in one cluster.
pub struct Context {
    /// The only writer of managed objects in that cluster.
    pub writer: Writer,
    /// The agent's own cluster, with GitSyncs, their statuses and their Secrets.
    pub home: Cluster,
    /// The cluster of the objects; `None` for the agent's own cluster with the agent's own permissions.
    pub(super) place: Option<PlaceId>,
    /// The remote clusters.
    pub(super) clusters: Arc<Clusters<Self>>,
    /// The source of commits.
    pub source: Source,
    /// The GitRepositories.
    pub repositories: Arc<Repositories>,
    /// The Secrets with credentials.
    pub secrets: Arc<Secrets>,
    /// Wakes consumers after a push, or when another consumer finds a commit.
    pub pushes: Arc<Pushes>,
    /// Managed and desired objects of all GitSyncs in that cluster.
    pub registry: Arc<Registry>,
    /// Dependencies between GitSyncs, across clusters.
    pub(super) dependencies: Arc<Dependencies>,
    /// The cache of decoded files.
    pub memory: Arc<mainstay_manifest::DecodeCache>,
    /// Directories without manifests.
    pub skipped: Arc<SkippedTrees>,
    /// Limits of decoding.
    pub limits: mainstay_manifest::Limits,
    /// Builds kustomizations.
    pub kustomize: Kustomize,
    /// Renders charts.
    pub helm: Helm,
    /// The permissions of GitSyncs, by namespace.
    pub rights: Rights,
    /// The objects that are protected from manual changes.
    pub prevention: Arc<Prevention>,
    /// Called with every message; must not block.
    pub announce: Arc<Announce>,
    /// Whether other agents look after some GitSyncs.
    pub(super) shared: Arc<AtomicBool>,
    /// Held while rows of GitSyncs of other agents are set, so that none keeps a former source.
    pub(super) setting_rows: Arc<Mutex<()>>,
    /// The version of the sources that the rows in the registry show.
    pub(super) seen_sources: AtomicU64,
    /// Changes when every remote must be looked up immediately.
    pub look_now: watch::Sender<u64>,
    /// Progress of the reconciles of GitSyncs.
    pub(super) liveness: Component,
    facts: Arc<Mutex<HashMap<Owner, (SyncFacts, Writer)>>>,
    reconciles: Arc<AtomicU64>,
    /// Limits how many GitSyncs of this cluster carry out a commit concurrently.
    pub(super) carrying_out: Arc<Turns>,
    /// The same for requested syncs, which do not wait for others.
    pub(super) carrying_out_requested: Turns,
    /// Limits how often running attempts are shown in statuses.
    pub(super) show_turns: ShowTurns,
    /// Limits the statuses that may wait.
    pub(super) status_turns: StatusTurns,
    /// Limits the watches of other tools' objects.
    pub(super) contest_watches: Arc<Semaphore>,
    /// Limits the memory of inventories while they load: every user who can write ConfigMaps can make them large.
    pub(super) loading: Semaphore,
    /// The same for inventories of a bounded size.
    pub(super) loading_small: Semaphore,
}

/// The facts about a GitSync for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncFacts {
    /// Since when a known commit is not applied in full.
    pub lagging_since: Option<Instant>,
    /// Objects whose last apply or deletion failed.
    pub failed: usize,
    /// Whether its condition Ready is True.
    pub is_ready: bool,
    /// Whether the GitSync is suspended.
    pub is_suspended: bool,
    /// Start of the last attempt that applied the commit in full, found it applied, or held it because of a window.
    pub last_success: Option<Timestamp>,
}

impl Context {
    /// Creates an empty context.
    #[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
    pub fn new(
        writer: Writer,
        source: Source,
        repositories: Arc<Repositories>,
        secrets: Arc<Secrets>,
        rights: Rights,
        (kustomize, helm): (Kustomize, Helm),
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
        begin: impl Fn(Cluster) -> Begun + Send + Sync + 'static,
    ) -> Self {
        let carrying_out = Arc::new(Turns::new(CARRYING_OUT, SLOW));
        Self {
            home: writer.cluster().clone(),
            place: None,
            clusters: Arc::new(Clusters::new(begin)),
            writer,
            pushes: Arc::clone(source.pushes()),
            source,
            repositories,
            secrets,
            registry: Arc::default(),
            dependencies: Arc::default(),
            memory: Arc::default(),
            skipped: Arc::new(SkippedTrees::new(mainstay_manifest::reads)),
            limits: mainstay_manifest::Limits::new(thread_time),
            rights,
            prevention: Arc::default(),
            kustomize,
            helm,
            announce: Arc::new(announce),
            shared: Arc::default(),
            setting_rows: Arc::default(),
            seen_sources: AtomicU64::default(),
            look_now: watch::Sender::new(0),
            liveness,
            facts: Arc::default(),
            reconciles: Arc::default(),
            status_turns: StatusTurns::new(Arc::clone(&carrying_out)),
            carrying_out,
            carrying_out_requested: Turns::new(CARRYING_OUT, SLOW),
            show_turns: ShowTurns::default(),
            contest_watches: Arc::new(Semaphore::new(contest_watch::OF_AGENT)),
            loading: Semaphore::new(LOADING),
            loading_small: Semaphore::new(LOADING_SMALL),
        }
    }

    /// Returns a context for a remote cluster, with an empty state.
    pub(super) fn elsewhere(&self, writer: Writer, registry: Arc<Registry>, place: Option<PlaceId>) -> Self {
        Self {
            writer,
            registry,
            place,
            home: self.home.clone(),
            clusters: Arc::clone(&self.clusters),
            source: self.source.clone(),
            repositories: Arc::clone(&self.repositories),
            secrets: Arc::clone(&self.secrets),
            pushes: Arc::clone(&self.pushes),
            dependencies: Arc::clone(&self.dependencies),
            memory: Arc::clone(&self.memory),
            skipped: Arc::clone(&self.skipped),
            limits: self.limits.clone(),
            kustomize: self.kustomize.clone(),
            helm: self.helm.clone(),
            rights: self.rights.clone(),
            announce: Arc::clone(&self.announce),
            shared: Arc::clone(&self.shared),
            setting_rows: Arc::clone(&self.setting_rows),
            seen_sources: AtomicU64::default(),
            look_now: self.look_now.clone(),
            liveness: self.liveness.clone(),
            facts: Arc::clone(&self.facts),
            reconciles: Arc::clone(&self.reconciles),
            // These turns are separate, too.
            carrying_out: Arc::new(Turns::new(CARRYING_OUT, SLOW)),
            carrying_out_requested: Turns::new(CARRYING_OUT, SLOW),
            show_turns: self.show_turns.clone(),
            status_turns: self.status_turns.clone(),
            contest_watches: Arc::clone(&self.contest_watches),
            prevention: Arc::clone(&self.prevention),
            // The limit is separate, because a remote cluster may never respond.
            loading: Semaphore::new(1),
            loading_small: Semaphore::new(LOADING_SMALL_ELSEWHERE),
        }
    }

    /// Returns the addresses that kubeconfigs in Secrets of a namespace may lead to, by the agent's egress rules.
    pub(super) fn addresses(&self, namespace: &str) -> AllowedAddresses {
        let source = self.source.for_namespace(namespace);
        let (egress, policy) = (source.egress(namespace), source.egress_policy().clone());
        let look_up: Addresses = Arc::new(move |host, port| {
            let source = source.clone();
            Box::pin(async move { source.addresses(&host, port).await })
        });
        AllowedAddresses::new(egress, policy, look_up)
    }

    /// Returns the cluster of the current kubeconfig in a Secret. A new connection uses only these addresses.
    ///
    /// # Errors
    ///
    /// The cluster does not respond or rejects the credentials, or there is no memory for the cluster.
    pub(super) async fn engine(
        &self,
        owner: &Owner,
        of: &SecretKey,
        by: &Arc<Kubeconfig>,
        addresses: AllowedAddresses,
    ) -> Result<Arc<Engine<Self>>, Refused> {
        let home = Home { cluster: &self.home, addresses, writer: &self.writer, registry: &self.registry };
        let shared = |writer, registry, place| self.elsewhere(writer, registry, Some(place));
        self.clusters.engine(&home, shared, (owner, of, by)).await
    }

    /// Whether the objects are in a remote cluster, or in the agent's own cluster through a kubeconfig.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.place.is_some()
    }

    /// Whether other agents look after some GitSyncs, which read the plans in statuses.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Returns the ServiceAccount that a GitSync impersonates in this cluster.
    ///
    /// # Errors
    ///
    /// The name is not valid for a ServiceAccount.
    pub(super) fn account(&self, sync: &GitSync) -> Result<Option<ServiceAccount>, Refused> {
        // Outside of the agent's own cluster, the kubeconfig replaces the agent's permissions, so the default
        // ServiceAccount is not used.
        if self.is_elsewhere() && sync.spec.service_account_name.is_none() {
            Ok(None)
        } else {
            self.rights.account(sync)
        }
    }

    /// Returns the objects that a GitSync may touch in this cluster by the agent's rules.
    pub(super) fn reach(&self, sync: &GitSync) -> Reach {
        if self.is_elsewhere() { Reach::Cluster } else { self.rights.reach(sync) }
    }

    /// Whether GitSyncs of this namespace are limited to it, or to the permissions of a ServiceAccount. Such a GitSync
    /// takes no object from an unconfined GitSync, and unconfined GitSyncs do not wait for it.
    pub(super) fn is_confined(&self, namespace: &str) -> bool {
        !self.rights.is_trusted(namespace)
    }

    /// Registers a GitSync. From now on, other GitSyncs see its managed and desired objects.
    pub fn enter(&self, owner: &Owner, namespace: &str, name: &str) {
        self.enter_at(&self.registry, owner, namespace, name);
        self.dependencies.enter(owner);
        self.prevention.enter(owner);
    }

    /// Registers a GitSync in the given registry.
    pub(super) fn enter_at(&self, registry: &Registry, owner: &Owner, namespace: &str, name: &str) {
        let confined_to = self.is_confined(namespace).then(|| namespace.into());
        registry.enter(owner, label(namespace, name), confined_to);
    }

    /// Registers a GitSync that cannot be read. Its desired objects are unknown.
    pub fn refuse(&self, owner: &Owner, namespace: &str, name: &str) {
        self.enter(owner, namespace, name);
        self.dependencies.refuse(owner);
    }

    /// Removes a GitSync.
    pub fn leave(&self, owner: &Owner) {
        self.registry.remove(owner);
        self.dependencies.remove(owner);
        self.prevention.remove(owner);
    }

    /// Records that every existing GitSync is registered.
    pub fn set_complete(&self) {
        self.registry.set_complete();
        self.prevention.set_complete();
    }

    /// Whether a GitSync other than `owner` wants an object, or may want it. Such an object is handed over, not
    /// deleted.
    pub(super) fn is_wanted_elsewhere(&self, owner: &Owner, key: &Key) -> bool {
        self.registry.with(owner, |view| view.desired_elsewhere(key) != Elsewhere::Nobody)
    }

    pub(super) fn emit(&self, owner: &Owner, message: &Message) {
        (self.announce)(&Announcement { owner, object: None, message });
    }

    /// Emits a message about an object that exists or was just deleted.
    pub(super) fn emit_about(&self, owner: &Owner, object: Regarding, message: &Message) {
        (self.announce)(&Announcement { owner, object: Some(object), message });
    }

    /// Returns the facts of every GitSync for metrics, and the writer of its objects.
    pub fn facts(&self) -> Vec<(Owner, SyncFacts, Writer)> {
        let facts = self.facts.lock();
        facts.iter().map(|(owner, (facts, writer))| (owner.clone(), *facts, writer.clone())).collect()
    }

    /// Returns the number of reconciles so far, including those without work.
    pub fn reconciles(&self) -> u64 {
        self.reconciles.load(Ordering::Relaxed)
    }

    pub(super) fn count_reconcile(&self) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_facts(&self, owner: &Owner, facts: Option<SyncFacts>) {
        let mut all = self.facts.lock();
        match facts {
            Some(facts) => all.insert(owner.clone(), (facts, self.writer.clone())),
            None => all.remove(owner),
        };
    }
}

impl SyncFacts {
    /// Returns the time for which the newest known commit has not been applied in full.
    pub fn lag(&self) -> Duration {
        self.lagging_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// The kind of GitSyncs.
pub(super) fn git_syncs() -> Kind {
    Kind::of::<GitSync>()
}
