//! The state of the current term that metrics show.

use std::sync::Arc;

use parking_lot::Mutex;

use super::metrics::{Gauges, ShardGauges, SyncGauges};
use super::notify::Notifier;
use super::retention::Counts;
use super::share;
use mainstay_cluster::{Cluster, Leadership};
use mainstay_function::admission::Admission;
use mainstay_gitsync::Context;
use mainstay_gitsync::receiver::Deliveries;

/// The contexts of all GitSyncs and of all Functions.
type Contexts = (Arc<Context>, Arc<mainstay_function::Context>);

/// The contexts of the current term, for the listener.
#[derive(Clone, Default)]
pub(super) struct Shown {
    contexts: Arc<Mutex<Option<Contexts>>>,
    /// Counters for the removal of unused images.
    pub(super) retention: Arc<Counts>,
    /// The numbers of the share in the GitSyncs.
    pub(super) share: Arc<share::Counts>,
}

impl Shown {
    pub(super) fn set(&self, contexts: Option<Contexts>) {
        *self.contexts.lock() = contexts;
    }

    pub(super) fn get(&self) -> Option<Contexts> {
        self.contexts.lock().clone()
    }
}

/// Returns the current values of the gauges.
pub(super) fn gauges(
    shown: &Shown,
    cluster: &Cluster,
    notifier: &Notifier,
    deliveries: &Deliveries,
    admission: Option<&Admission>,
    leadership: Option<&Leadership>,
) -> Gauges {
    let (context, functions) = shown.get().unzip();
    let syncs = context.iter().flat_map(|context| {
        context.facts().into_iter().map(|(owner, facts, writer)| {
            let summary = writer.summary(&owner);
            SyncGauges {
                objects: summary.objects as u64,
                health: [summary.healthy, summary.progressing.count, summary.broken.count, summary.absent.count]
                    .map(|count| count as u64),
                drifted: summary.drifted.count as u64,
                ready: facts.is_ready,
                suspended: facts.is_suspended,
                last_success: facts.last_success.map(|at| at.as_millisecond() as f64 / 1000.0),
                paused: summary.paused.count as u64,
                contended: summary.contended.count as u64,
                heated: summary.backing_off as u64,
                failed: (facts.failed + summary.failures.count) as u64,
                lag_seconds: facts.lag().as_secs_f64(),
                sync: owner.to_string(),
            }
        })
    });
    let queue = functions.as_ref().map(|functions| functions.queue_lengths()).unwrap_or_default();
    Gauges {
        leader: leadership.map_or(context.is_some(), Leadership::is_leading),
        requests: cluster.requests().snapshot(),
        lookups: context.as_ref().map_or(0, |context| context.source.traffic().lookups),
        fetches: context.as_ref().map_or(0, |context| context.source.traffic().fetches),
        renders: context.as_ref().map_or(0, |context| context.kustomize.renders()),
        reconciles: context.as_ref().map_or(0, |context| context.reconciles()),
        subjects: context.is_some().then(|| notifier.subjects().into_iter().collect()),
        syncs: syncs.collect(),
        functions: functions.as_ref().map(|functions| functions.metrics()).unwrap_or_default(),
        functions_processed: functions.as_ref().map_or(0, |functions| functions.processed()),
        reconciliations: functions.as_ref().map_or(0, |functions| functions.reconciliations()),
        reconcile_times: functions.as_ref().map(|functions| functions.reconcile_times()),
        builds_running: queue.building as u64,
        builds_held_up: queue.held_up as u64,
        builds_waiting: queue.waiting as u64,
        deliveries: deliveries.counts(),
        retention: shown.retention.gauges(),
        shards: ShardGauges::of(&shown.share),
        audits: context.as_ref().map(|context| context.writer.audits().all().to_vec()).unwrap_or_default(),
        reviews: admission.map(Admission::counts).unwrap_or_default(),
    }
}
