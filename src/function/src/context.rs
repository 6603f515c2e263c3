//! The state that all Functions of an agent share: `Context`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::build_queue::QueueLengths;
use super::child_kind::ChildKind;
use super::knative;
use super::observe::{self, Cache};
use super::quotas::Quotas;
use super::registry_waits::RegistryWaits;
use crate::bindings::Bindings;
use mainstay_api::{Function, FunctionSpec};
use mainstay_cluster::liveness::Component;
use mainstay_cluster::secrets::Secrets;
use mainstay_engine::apply::{Announcement, Writer};
use mainstay_engine::drift::Drift;
use mainstay_engine::managed::Part;
use mainstay_engine::notification::Message;
use mainstay_git::{Pushes, Repositories, Source};
use mainstay_object::Owner;

/// Number of Functions that write to the cluster concurrently.
const AT_ONCE: usize = 16;

/// Number of large Functions that are reconciled concurrently.
const LARGE_AT_ONCE: usize = 2;
/// Upper bounds in seconds of the histogram buckets for reconcile times. Reconciles wait for the API server and Git.
const RECONCILE_TIMES: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Maximum size in bytes of a Function that does not count against the memory limit.
const SMALL: usize = 16 << 10;
/// Number of copies of a source in memory: in the Function, and in its ConfigMap.
const COPIES: usize = 2;

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The newest state of one Function; `None` after its deletion.
pub type Input = watch::Receiver<Option<Arc<Function>>>;

/// The state that all Functions of an agent share.
pub struct Context {
    /// The writer of all managed objects.
    pub writer: Writer,
    /// The Git client.
    pub source: Source,
    /// The GitRepositories.
    pub repositories: Arc<Repositories>,
    settings: watch::Sender<Arc<Settings>>,
    /// Registry and Git credentials.
    pub secrets: Arc<Secrets>,
    /// Secrets that ServiceBindingUsages bind to Functions.
    pub bindings: Arc<Bindings>,
    /// The consumers that a push notifies.
    pub pushes: Arc<Pushes>,
    /// Increments when every remote has to be polled immediately.
    pub poll_now: watch::Sender<u64>,
    pub(super) cache: Arc<Cache>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) registry_waits: Arc<RegistryWaits>,
    /// The agent's namespace. The operator owns its default registry Secret.
    pub(super) own_namespace: String,
    /// Permits for Functions that write.
    pub(super) permits: Semaphore,
    announce: Box<Announce>,
    /// Liveness of the reconciles.
    pub(super) liveness: Component,
    metrics: Mutex<HashMap<Owner, FunctionMetrics>>,
    processed: AtomicU64,
    reconciliations: AtomicU64,
    reconcile_times: Histogram,
    /// Functions that did not fit into memory, with their size in bytes.
    refused: Mutex<HashMap<Owner, usize>>,
    /// Permits for reconciles of large Functions, because each reconcile makes several copies.
    pub(super) large: Semaphore,
}

/// The metrics of a Function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionMetrics {
    /// The Function's namespace.
    pub namespace: String,
    /// The Function's name.
    pub name: String,
    /// `inline` or `git`.
    pub source: &'static str,
    /// The Function's runtime.
    pub runtime: String,
    /// For each condition: the time from the Function's creation until it first became True. `None` if the Function was
    /// changed before the condition became True.
    pub took: [Option<Duration>; 3],
}

impl Context {
    /// Returns an empty context. `announce` receives every message and must not block.
    #[expect(clippy::too_many_arguments, reason = "wiring names every part once")]
    pub fn new(
        writer: Writer,
        source: Source,
        repositories: Arc<Repositories>,
        secrets: Arc<Secrets>,
        bindings: Arc<Bindings>,
        settings: Settings,
        own_namespace: String,
        liveness: Component,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            writer,
            pushes: Arc::clone(source.pushes()),
            source,
            repositories,
            secrets,
            bindings,
            poll_now: watch::Sender::new(0),
            cache: Arc::new(Cache::new(settings.max_simultaneous_jobs)),
            quotas: Arc::default(),
            registry_waits: Arc::default(),
            own_namespace,
            permits: Semaphore::new(AT_ONCE),
            announce: Box::new(announce),
            liveness,
            metrics: Mutex::default(),
            processed: AtomicU64::new(0),
            reconciliations: AtomicU64::new(0),
            reconcile_times: Histogram::new(RECONCILE_TIMES),
            refused: Mutex::default(),
            large: Semaphore::new(LARGE_AT_ONCE),
            settings: watch::Sender::new(Arc::new(settings)),
        }
    }

    /// Returns the operator's settings.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Sets the settings. Every Function is reconciled with them.
    pub fn set_settings(&self, settings: Settings) {
        self.cache.limit_builds(settings.max_simultaneous_jobs);
        self.secrets.set_everywhere(settings.purposes());
        self.settings.send_if_modified(|old| {
            let differ = **old != settings;
            *old = Arc::new(settings);
            differ
        });
    }

    /// Subscribes to changes of the settings.
    pub fn settings_changes(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// Returns the tasks that watch the dependencies of Functions until `stop`. `drift` receives every event of a
    /// child.
    pub fn watches(&self, drift: &Drift, stop: &CancellationToken) -> Vec<BoxFuture<'static, ()>> {
        let children = ChildKind::ALL.into_iter().map(|child_kind| {
            let (cache, writer, drift) = (Arc::clone(&self.cache), self.writer.clone(), drift.clone());
            observe::follow(cache, writer, drift, child_kind, stop.clone()).boxed()
        });
        let quotas = Arc::clone(&self.quotas).follow(self.writer.cluster().clone(), stop.clone());
        let registries = Arc::clone(&self.registry_waits).follow(stop.clone());
        let knative = knative::follow(Arc::clone(&self.cache), self.writer.clone(), drift.clone(), stop.clone());
        children.chain([quotas.boxed(), registries.boxed(), knative.boxed()]).collect()
    }

    /// Returns the lengths of the build queue.
    pub fn queue_lengths(&self) -> QueueLengths {
        self.cache.queue_lengths()
    }

    /// Returns the metrics of every Function.
    pub fn metrics(&self) -> Vec<FunctionMetrics> {
        self.metrics.lock().values().cloned().collect()
    }

    /// Returns the number of Functions that were reconciled since the start.
    pub fn processed(&self) -> u64 {
        self.processed.load(Ordering::Relaxed)
    }

    /// Returns the number of reconciles since the start.
    pub fn reconciliations(&self) -> u64 {
        self.reconciliations.load(Ordering::Relaxed)
    }

    /// Returns the histogram of reconcile times in seconds.
    pub fn reconcile_times(&self) -> Histogram {
        self.reconcile_times.clone()
    }

    /// Records the duration of a reconcile, from its start to the status write.
    pub(super) fn took(&self, time: Duration) {
        self.reconcile_times.observe(time.as_secs_f64());
    }

    /// Counts a reconcile. `is_first` marks the first one of a Function.
    pub(super) fn count(&self, is_first: bool) {
        self.processed.fetch_add(u64::from(is_first), Ordering::Relaxed);
        self.reconciliations.fetch_add(1, Ordering::Relaxed);
    }

    /// Reserves `bytes` of memory for a Function. If there is not enough, empties its spec and returns `false`.
    pub fn keep(&self, owner: &Owner, function: &mut Function, bytes: usize) -> bool {
        let is_kept = self.writer.keep_in_memory(owner, Part::Source, counted(bytes));
        if is_kept {
            self.refused.lock().remove(owner);
        } else {
            function.spec = FunctionSpec::default();
            (function.metadata.annotations, function.metadata.labels) = (None, None);
            self.refused.lock().insert(owner.clone(), bytes);
        }
        is_kept
    }

    /// Whether a Function of this size would fit into memory now.
    pub fn may_keep(&self, owner: &Owner, bytes: usize) -> bool {
        self.writer.may_keep_in_memory(owner, Part::Source, counted(bytes))
    }

    /// Returns the size of a Function that did not fit into memory.
    pub(super) fn refused(&self, owner: &Owner) -> Option<usize> {
        self.refused.lock().get(owner).copied()
    }

    /// Forgets a deleted Function.
    pub(super) fn forget(&self, owner: &Owner) {
        self.refused.lock().remove(owner);
    }

    pub(super) fn set_metrics(&self, owner: &Owner, metrics: Option<FunctionMetrics>) {
        let mut all = self.metrics.lock();
        match metrics {
            Some(metrics) => all.insert(owner.clone(), metrics),
            None => all.remove(owner),
        };
    }

    pub(super) fn emit(&self, owner: &Owner, message: &Message) {
        (self.announce)(&Announcement { owner, object: None, message });
    }

    #[expect(clippy::unused_self, reason = "the clock is the context's, wherever it comes from")]
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Returns the number of bytes that count against the memory limit.
fn counted(bytes: usize) -> usize {
    if bytes > SMALL { bytes * COPIES } else { 0 }
}

/// The message for a Function that does not fit into memory.
pub(super) fn no_memory(bytes: usize) -> String {
    format!(
        "it has {:.1} MiB and does not fit into the memory that the agent has left for this namespace; keep the code in a Git \
         repository (type: git), or raise limits.memory of the agent's Deployment",
        bytes as f64 / f64::from(1 << 20)
    )
}
