//! What all GitSyncs of an agent share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::dependencies::Dependencies;
use super::placement::label;
use super::registry::{Elsewhere, Registry};
use super::rights::Rights;
use crate::api::GitSync;
use crate::apply::{Announcement, Writer};
use crate::cluster::{Kind, Regarding};
use crate::liveness::Component;
use crate::manifest;
use crate::notification::Message;
use crate::object::{Key, Owner};
use crate::render::{Helm, Kustomize};
use crate::secrets::Secrets;
use crate::source::{Pushes, Repositories, SkippedTrees, Source, thread_time};

/// Inventories that are loaded at the same time.
const LOADING: usize = 2;

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The newest state of one GitSync; `None` once it is gone.
pub type Input = watch::Receiver<Option<Arc<GitSync>>>;

/// What all GitSyncs of an agent share.
pub struct Context {
    /// The one writer of managed objects.
    pub writer: Writer,
    /// Git.
    pub source: Source,
    /// The GitRepositories.
    pub repositories: Arc<Repositories>,
    /// The Secrets with credentials.
    pub secrets: Arc<Secrets>,
    /// Who is woken by a push.
    pub pushes: Arc<Pushes>,
    /// Who manages and wants what.
    pub registry: Registry,
    /// Who waits for whom.
    pub(super) dependencies: Dependencies,
    /// What files decoded to.
    pub memory: Arc<manifest::DecodeCache>,
    /// Directories without manifests.
    pub skipped: Arc<SkippedTrees>,
    /// Bounds of decoding.
    pub limits: manifest::Limits,
    /// Builds kustomizations.
    pub kustomize: Kustomize,
    /// Renders charts.
    pub helm: Helm,
    /// Whose GitSyncs have whose rights.
    pub rights: Rights,
    /// Called with every message; must not block.
    pub announce: Box<Announce>,
    /// Notifies when every remote is to be looked up now.
    pub look_now: watch::Sender<u64>,
    /// Moves with every reconcile of a GitSync.
    pub(super) liveness: Component,
    facts: Mutex<HashMap<Owner, SyncFacts>>,
    reconciles: AtomicU64,
    /// For inventories that are loaded: whoever can write ConfigMaps can make them large.
    pub(super) loading: Semaphore,
}

/// What metrics say of a GitSync.
#[derive(Clone, Copy, Debug, Default)]
pub struct SyncFacts {
    /// Since when a commit is known that is not applied in full.
    pub lagging_since: Option<Instant>,
    /// Objects whose last apply or deletion failed.
    pub failed: usize,
    /// Whether its condition Ready is True.
    pub is_ready: bool,
    /// Whether it is suspended.
    pub is_suspended: bool,
    /// When an attempt began last that found or made everything as the commit wants it, or left to its window.
    pub last_success: Option<Timestamp>,
}

impl Context {
    /// A context with nothing in it yet.
    #[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
    pub fn new(
        writer: Writer,
        source: Source,
        repositories: Arc<Repositories>,
        secrets: Arc<Secrets>,
        pushes: Arc<Pushes>,
        rights: Rights,
        (kustomize, helm): (Kustomize, Helm),
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            writer,
            source,
            repositories,
            secrets,
            pushes,
            registry: Registry::default(),
            dependencies: Dependencies::default(),
            memory: Arc::default(),
            skipped: Arc::new(SkippedTrees::new(manifest::reads)),
            limits: manifest::Limits::new(thread_time),
            rights,
            kustomize,
            helm,
            announce: Box::new(announce),
            look_now: watch::Sender::new(0),
            liveness,
            facts: Mutex::default(),
            reconciles: AtomicU64::new(0),
            loading: Semaphore::new(LOADING),
        }
    }

    /// Whether a GitSync of this namespace may touch only that, or what the rights of a ServiceAccount let it: it takes nothing
    /// from one that may touch everything, and nobody else waits for it.
    pub(super) fn is_confined(&self, namespace: &str) -> bool {
        !self.rights.is_trusted(namespace)
    }

    /// A GitSync is there: what it manages and wants counts from now on.
    pub fn enter(&self, owner: &Owner, namespace: &str, name: &str) {
        let confined_to = self.is_confined(namespace).then(|| namespace.into());
        self.registry.enter(owner, label(namespace, name), confined_to);
        self.dependencies.enter(owner);
    }

    /// A GitSync is there that cannot be read: nobody knows what it wants.
    pub fn refuse(&self, owner: &Owner, namespace: &str, name: &str) {
        self.enter(owner, namespace, name);
        self.dependencies.refuse(owner);
    }

    /// A GitSync is gone.
    pub fn leave(&self, owner: &Owner) {
        self.registry.remove(owner);
        self.dependencies.remove(owner);
    }

    /// Whether another GitSync than `owner` wants an object now, or may want it: it goes to that one and is not deleted.
    pub(super) fn is_wanted_elsewhere(&self, owner: &Owner, key: &Key) -> bool {
        self.registry.with(owner, |view| view.desired_elsewhere(key) != Elsewhere::Nobody)
    }

    pub(super) fn emit(&self, owner: &Owner, message: &Message) {
        (self.announce)(&Announcement { owner, object: None, message });
    }

    /// Emits a message about an object that is there or just was.
    pub(super) fn emit_about(&self, owner: &Owner, object: Regarding, message: &Message) {
        (self.announce)(&Announcement { owner, object: Some(object), message });
    }

    /// What metrics say of every GitSync.
    pub fn facts(&self) -> Vec<(Owner, SyncFacts)> {
        let facts = self.facts.lock();
        facts.iter().map(|(owner, facts)| (owner.clone(), *facts)).collect()
    }

    /// How often GitSyncs were reconciled so far, also where there was nothing to do.
    pub fn reconciles(&self) -> u64 {
        self.reconciles.load(Ordering::Relaxed)
    }

    pub(super) fn count_reconcile(&self) {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_facts(&self, owner: &Owner, facts: Option<SyncFacts>) {
        let mut all = self.facts.lock();
        match facts {
            Some(facts) => all.insert(owner.clone(), facts),
            None => all.remove(owner),
        };
    }
}

impl SyncFacts {
    /// How long the newest known commit has been waiting to be applied in full.
    pub fn lag(&self) -> Duration {
        self.lagging_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// The kind of GitSyncs.
pub(super) fn git_syncs() -> Kind {
    Kind::custom("mainstay.dev", "v1alpha1", "GitSync", "gitsyncs", true, true)
}
