//! Prometheus metrics: counters and histograms fed by messages, and gauges that are read at each scrape.
//!
//! Invariant: the number of time series is bounded by the number of GitSyncs, Functions and kinds, not of objects.
//! Invariant: the series of a deleted GitSync or Function are dropped at the next scrape.
//!
//! Not here: rates and alerts, which are defined in Prometheus.

use std::{collections::BTreeSet, fmt, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

pub use super::retention::Gauges as RetentionGauges;
use super::retention_metrics;
use super::serverless_metrics::{ServerlessMetrics, Values, encode_gauge};
pub use super::shard_metrics::ShardGauges;
use mainstay_api::function_conditions::Reason;
use mainstay_cluster::Counted;
use mainstay_engine::notification::Message;
use mainstay_function::admission;
use mainstay_gitsync::receiver::Count;
use mainstay_object::Owner;
use mainstay_object::failure::caught_now;

/// Bucket bounds of the revert latency, in seconds. Reverts of contended objects are delayed up to minutes.
const LATENCIES: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 300.0];

type Labels = [(&'static str, String); 1];

/// The values of the gauges at a scrape.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    /// Whether this agent holds the Lease.
    pub leader: bool,
    /// The existing GitSyncs and Functions; `None` if this agent does not know them. Series of other objects are
    /// dropped.
    pub subjects: Option<BTreeSet<Owner>>,
    /// One row per GitSync.
    pub syncs: Vec<SyncGauges>,
    /// API requests since the start, by verb and resource.
    pub requests: Vec<Counted>,
    /// Ref lookups at Git remotes since the start.
    pub lookups: u64,
    /// Fetches from Git remotes since the start.
    pub fetches: u64,
    /// Kustomizations built and charts rendered since the start.
    pub renders: u64,
    /// Reconciles of GitSyncs since the start.
    pub reconciles: u64,
    /// One row per Function.
    pub functions: Vec<mainstay_function::FunctionMetrics>,
    /// Functions reconciled since the start.
    pub functions_processed: u64,
    /// Reconciles of Functions since the start.
    pub reconciliations: u64,
    /// Durations of reconciles of Functions; `None` while no Function can be reconciled.
    pub reconcile_times: Option<Histogram>,
    /// Builds whose pods run or may start.
    pub builds_running: u64,
    /// Builds whose pods cannot start.
    pub builds_held_up: u64,
    /// Functions in the build queue.
    pub builds_waiting: u64,
    /// Deliveries to Receivers since the start, by type and outcome.
    pub deliveries: Vec<Count>,
    /// Admission requests since the start, by webhook and outcome.
    pub reviews: Vec<admission::Count>,
    /// Metrics of the removal of unused images.
    pub retention: RetentionGauges,
    /// Audits of objects in this term, by outcome.
    pub audits: Vec<(&'static str, u64)>,
    /// Metrics of agents that share the GitSyncs.
    pub shards: ShardGauges,
}

/// The gauges of one GitSync.
#[derive(Clone, Debug, Default)]
pub struct SyncGauges {
    /// `namespace/name`.
    pub sync: String,
    /// Managed objects.
    pub objects: u64,
    /// Numbers of healthy, progressing, failed and missing objects among the managed ones.
    pub health: [u64; 4],
    /// Objects that drifted from the repository and were not reverted.
    pub drifted: u64,
    /// Whether the condition Ready is True.
    pub ready: bool,
    /// Whether the GitSync is suspended.
    pub suspended: bool,
    /// Time of the last successful attempt, in seconds since 1970; `None` if no attempt has succeeded since this agent
    /// leads.
    pub last_success: Option<f64>,
    /// Paused objects.
    pub paused: u64,
    /// Objects whose reverts are delayed, because another client keeps writing to them.
    pub contended: u64,
    /// Recently reverted objects.
    pub heated: u64,
    /// Objects whose last apply or deletion failed.
    pub failed: u64,
    /// Seconds since the agent first saw the oldest commit that is not fully applied; 0 if the newest commit is
    /// applied.
    pub lag_seconds: f64,
}

/// All metrics of the agent.
pub struct Metrics {
    registry: Registry,
    read: Arc<ReadGauges>,
    seen: Family<Labels, Counter>,
    commits: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    reverts: Family<Labels, Counter>,
    drifts: Family<Labels, Counter>,
    missed_drifts: Family<Labels, Counter>,
    replacements: Family<Labels, Counter>,
    applies: Family<Labels, Counter>,
    builds: Family<Labels, Counter>,
    revert_latency: Histogram,
    apply_duration: Histogram,
    missed: Counter,
    /// GitSyncs and Functions that have series.
    known: Mutex<BTreeSet<Owner>>,
}

type ReadGauges = dyn Fn() -> Gauges + Send + Sync;

impl Metrics {
    /// Creates the metrics. The gauges are read by `read`, which must not block.
    pub fn new(read: impl Fn() -> Gauges + Send + Sync + 'static) -> Self {
        let mut all = Registry::default();
        let registry = all.sub_registry_with_prefix("mainstay");
        let mut family = |name: &str, help: &str| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let seen = family("commits_seen", "New commits of the followed reference");
        let commits = family("commits_applied", "Commits that were applied in full");
        let failures = family("failures", "Attempts that failed, in whole or in part");
        let reverts = family("reverts", "Reverts of managed objects");
        let drifts = family("drifts_left", "Drifts that were detected and, by policy, not reverted");
        let missed_drifts = family("drifts_missed", "Drifts that the watch missed and an audit found");
        let replacements = family("replacements", "Objects that were replaced because of an immutable field");
        let applies = family("applies", "Objects of applied commits, by outcome");
        let builds = family("function_builds", "Builds of Functions, by outcome");
        let revert_latency = Histogram::new(LATENCIES);
        let help = "Time from the watch event of a drift to the response to the write that reverted it";
        registry.register_with_unit("revert_latency", help, Unit::Seconds, revert_latency.clone());
        let apply_duration = Histogram::new(LATENCIES);
        let help = "Time from the lookup that found a commit to the response to the last write for it";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, apply_duration.clone());
        let missed = Counter::default();
        registry.register(
            "messages_missed",
            "Internal messages that the metrics dropped; the counters of events are too low by this number",
            missed.clone(),
        );
        let read: Arc<ReadGauges> = Arc::new(read);
        registry.register_collector(Box::new(AtScrape(Arc::clone(&read))));
        let gauges = Arc::clone(&read);
        all.register_collector(Box::new(ServerlessMetrics(Box::new(move || {
            let Gauges { functions, functions_processed: processed, reconciliations, reconcile_times, .. } = gauges();
            Values { functions, processed, reconciliations, reconcile_times }
        }))));
        let known = Mutex::default();
        Self {
            registry: all,
            read,
            seen,
            commits,
            failures,
            reverts,
            drifts,
            missed_drifts,
            replacements,
            applies,
            builds,
            revert_latency,
            apply_duration,
            missed,
            known,
        }
    }

    /// Counts messages until `stop`.
    pub async fn follow(&self, mut messages: broadcast::Receiver<Message>, stop: CancellationToken) {
        loop {
            let message = tokio::select! {
                () = stop.cancelled() => return,
                message = messages.recv() => message,
            };
            match message {
                Ok(message) => {
                    if let Err(panicked) = caught_now(|| self.count(&message)) {
                        tracing::error!(
                            reason = "InternalError",
                            why = panicked.to_string(),
                            "a message was not counted"
                        );
                    }
                }
                Err(RecvError::Lagged(missed)) => _ = self.missed.inc_by(missed),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Counts one message.
    pub fn count(&self, message: &Message) {
        match message {
            Message::CommitSeen { subject, .. } => self.increment(&self.seen, subject),
            Message::CommitApplied { subject, created, changed, unchanged, pruned, millis, .. } => {
                self.increment(&self.commits, subject);
                self.apply_duration.observe(*millis as f64 / 1000.0);
                for (outcome, number) in
                    [("created", created), ("changed", changed), ("unchanged", unchanged), ("pruned", pruned)]
                {
                    self.applies.get_or_create(&[("outcome", outcome.to_owned())]).inc_by(*number as u64);
                }
            }
            Message::Reverted { subject, millis, .. } => {
                self.increment(&self.reverts, subject);
                self.revert_latency.observe(millis / 1000.0);
            }
            Message::DriftSeen { subject, .. } => self.increment(&self.drifts, subject),
            Message::DriftMissed { subject, .. } => self.increment(&self.missed_drifts, subject),
            Message::Replaced { subject, .. } => self.increment(&self.replacements, subject),
            Message::Failed { subject, problems, .. } => {
                self.increment(&self.failures, subject);
                self.applies.get_or_create(&[("outcome", "failed".to_owned())]).inc_by(problems.len() as u64);
            }
            Message::NotPutBack { subject, .. } | Message::NotRemoved { subject, .. } => {
                self.increment(&self.failures, subject);
            }
            Message::Stage { reason, .. } => {
                let outcomes = [(Reason::JobFinished, "finished"), (Reason::JobFailed, "failed")];
                if let Some((_, outcome)) = outcomes.iter().find(|(known, _)| *reason == (*known).into()) {
                    self.builds.get_or_create(&[("outcome", (*outcome).to_owned())]).inc();
                }
            }
            // Other messages are not counted. The numbers of contended and paused objects are gauges.
            _ => {}
        }
    }

    /// Drops the series of deleted GitSyncs and Functions.
    fn drop_deleted(&self) {
        let Some(subjects) = (self.read)().subjects else { return };
        self.known.lock().retain(|known| {
            let exists = subjects.contains(known);
            if !exists {
                for family in self.per_subject() {
                    family.remove(&labels(known));
                }
            }
            exists
        });
    }

    /// Returns the families with one series per GitSync or Function.
    fn per_subject(&self) -> [&Family<Labels, Counter>; 7] {
        let [reverts, drifts, missed] = [&self.reverts, &self.drifts, &self.missed_drifts];
        [&self.seen, &self.commits, &self.failures, reverts, drifts, missed, &self.replacements]
    }

    /// Returns the response to a scrape, in the format OpenMetrics 1.0.
    pub fn text(&self) -> Result<String, fmt::Error> {
        self.drop_deleted();
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn increment(&self, family: &Family<Labels, Counter>, subject: &Owner) {
        let labels = labels(subject);
        let new = self.known.lock().insert(subject.clone());
        if new && matches!(subject, Owner::GitSync(_)) {
            // A counter that starts at 0 shows its first increase as a rate. A counter that appears with the value 1
            // does not.
            for family in self.per_subject() {
                drop(family.get_or_create(&labels));
            }
        }
        family.get_or_create(&labels).inc();
    }
}

/// Returns the label for a GitSync (`sync`), a Function (`function`), a Receiver (`receiver`), a GitRepository
/// (`repository`), an APIRule (`apirule`), an OCIRepository (`ocirepository`), a HelmChart (`helmchart`), an
/// ImageRepository (`imagerepository`), an ImagePolicy (`imagepolicy`) or an ImageUpdateAutomation
/// (`imageupdateautomation`).
fn labels(subject: &Owner) -> Labels {
    match subject {
        Owner::GitSync(name) => [("sync", name.to_string())],
        Owner::Function(name) => [("function", name.to_string())],
        Owner::Receiver(name) => [("receiver", name.to_string())],
        Owner::GitRepository(name) => [("repository", name.to_string())],
        Owner::ApiRule(name) => [("apirule", name.to_string())],
        Owner::OciRepository(name) => [("ocirepository", name.to_string())],
        Owner::HelmChart(name) => [("helmchart", name.to_string())],
        Owner::ImageRepository(name) => [("imagerepository", name.to_string())],
        Owner::ImagePolicy(name) => [("imagepolicy", name.to_string())],
        Owner::ImageUpdateAutomation(name) => [("imageupdateautomation", name.to_string())],
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Encodes the gauges at each scrape.
struct AtScrape(Arc<ReadGauges>);

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

/// One gauge per GitSync: name, help, value.
type PerSync = (&'static str, &'static str, fn(&SyncGauges) -> f64);

const PER_SYNC: [PerSync; 9] = [
    ("objects", "Managed objects", |gauges| gauges.objects as f64),
    ("paused_objects", "Paused objects", |gauges| gauges.paused as f64),
    (
        "contended_objects",
        "Objects whose reverts are slowed down because another client keeps writing to them",
        |gauges| gauges.contended as f64,
    ),
    ("heated_objects", "Objects that were reverted recently", |gauges| gauges.heated as f64),
    ("drifted_objects", "Objects that differ from the repository and were not reverted", |gauges| {
        gauges.drifted as f64
    }),
    ("sync_ready", "1 if the condition Ready is True", |gauges| f64::from(u8::from(gauges.ready))),
    ("sync_suspended", "1 if the GitSync is suspended", |gauges| f64::from(u8::from(gauges.suspended))),
    ("failed_objects", "Objects whose last write failed", |gauges| gauges.failed as f64),
    ("sync_lag_seconds", "Age of the oldest commit that is not applied; 0 when in sync", |gauges| gauges.lag_seconds),
];

/// The health states by which objects are counted. The last state is that of missing objects.
const HEALTH: [&str; 4] = ["healthy", "progressing", "failed", "missing"];

fn encode_syncs(encoder: &mut DescriptorEncoder<'_>, syncs: &[SyncGauges]) -> Result<(), fmt::Error> {
    let kind = ConstGauge::new(0.0).metric_type();
    for (name, help, value) in PER_SYNC {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for sync in syncs {
            ConstGauge::new(value(sync)).encode(family.encode_family(&[("sync", sync.sync.as_str())])?)?;
        }
    }
    let help = "Time of the last successful attempt of a GitSync";
    let mut family = encoder.encode_descriptor("sync_last_success_timestamp_seconds", help, None, kind)?;
    for sync in syncs {
        let Some(at) = sync.last_success else { continue };
        ConstGauge::new(at).encode(family.encode_family(&[("sync", sync.sync.as_str())])?)?;
    }
    let mut family = encoder.encode_descriptor("objects_by_health", "Managed objects, by health", None, kind)?;
    for sync in syncs {
        for (health, count) in HEALTH.into_iter().zip(sync.health) {
            let labels = [("sync", sync.sync.as_str()), ("health", health)];
            ConstGauge::new(count as f64).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Metrics of the time until a new Function reached a condition: name and help.
const PER_CONDITION: [(&str, &str); 3] = [
    ("configured", "Time from the creation of a Function until it was configured"),
    ("built", "Time from the creation of a Function until its image was built"),
    ("running", "Time from the creation of a Function until it ran"),
];

/// Encodes the counters with labels.
fn encode_counts(encoder: &mut DescriptorEncoder<'_>, gauges: &Gauges) -> Result<(), fmt::Error> {
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family =
        encoder.encode_descriptor("api_requests", "Requests to the API server, by verb and resource", None, kind)?;
    for counted in &gauges.requests {
        let labels = [("verb", counted.verb.as_str()), ("resource", &*counted.resource)];
        ConstCounter::new(counted.count).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor(
        "receiver_deliveries",
        "Deliveries of webhooks to Receivers, by type and outcome",
        None,
        kind,
    )?;
    for counted in &gauges.deliveries {
        let labels = [("type", counted.kind), ("outcome", counted.outcome)];
        ConstCounter::new(counted.count).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor("audits", "Audits of managed objects, by outcome", None, kind)?;
    for (outcome, count) in &gauges.audits {
        ConstCounter::new(*count).encode(family.encode_family(&[("outcome", *outcome)])?)?;
    }
    let help = "Admission reviews, by webhook and outcome";
    let mut family = encoder.encode_descriptor("admission_reviews", help, None, kind)?;
    for counted in &gauges.reviews {
        let labels = [("webhook", counted.webhook), ("outcome", counted.outcome)];
        ConstCounter::new(counted.count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = (self.0)();
        let leader = ConstGauge::new(i64::from(gauges.leader));
        leader.encode(encoder.encode_descriptor(
            "leader",
            "1 if this agent holds the Lease",
            None,
            leader.metric_type(),
        )?)?;
        for (name, help, number) in [
            ("git_lookups", "Ref lookups at Git remotes", gauges.lookups),
            ("git_fetches", "Fetches from Git remotes", gauges.fetches),
            ("renders", "Rendered kustomizations and charts", gauges.renders),
            ("reconciles", "Reconciles of GitSyncs, including those without a change", gauges.reconciles),
        ] {
            let counter = ConstCounter::new(number);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        encode_counts(&mut encoder, &gauges)?;
        for (name, help, number) in [
            ("function_builds_running", "Builds of Functions whose pods run or may start", gauges.builds_running),
            ("function_builds_held_up", "Builds of Functions whose pods cannot start", gauges.builds_held_up),
            ("function_builds_waiting", "Functions in the build queue", gauges.builds_waiting),
        ] {
            let gauge = ConstGauge::new(number);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (at, (word, help)) in PER_CONDITION.into_iter().enumerate() {
            let name = format!("function_{word}_status_duration_seconds");
            let value = |function: &mainstay_function::FunctionMetrics| Some(function.took[at]?.as_secs_f64());
            encode_gauge(&mut encoder, (&name, help), &gauges.functions, value)?;
        }
        retention_metrics::encode(&mut encoder, gauges.retention)?;
        gauges.shards.encode(&mut encoder)?;
        encode_syncs(&mut encoder, &gauges.syncs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_cluster::Verb;
    use std::time::Duration;

    fn sync(name: &str) -> Owner {
        Owner::git_sync("shop", name)
    }

    fn applied(name: &str) -> Message {
        Message::CommitApplied {
            subject: sync(name),
            commit: "c".into(),
            created: 3,
            changed: 2,
            unchanged: 1,
            pruned: 0,
            millis: 40,
            is_elsewhere: false,
        }
    }

    fn reverted(subject: Owner, millis: f64) -> Message {
        Message::Reverted {
            subject,
            object: "ConfigMap shop/a".into(),
            fields: vec![".data.a".into()],
            changes: Vec::new(),
            who: "kubectl-edit".into(),
            millis,
        }
    }

    fn has(text: &str, line: &str) -> bool {
        text.lines().any(|l| l == line)
    }

    #[test]
    fn counts_messages_of_a_sync() {
        let metrics = Metrics::new(Gauges::default);
        metrics.count(&applied("web"));
        metrics.count(&reverted(sync("web"), 3.2));
        metrics.count(&reverted(sync("web"), 70_000.0));
        let text = metrics.text().unwrap();
        for line in [
            r#"mainstay_commits_applied_total{sync="shop/web"} 1"#,
            r#"mainstay_failures_total{sync="shop/web"} 0"#,
            r#"mainstay_applies_total{outcome="created"} 3"#,
            r#"mainstay_reverts_total{sync="shop/web"} 2"#,
            r#"mainstay_revert_latency_seconds_bucket{le="0.005"} 1"#,
            r#"mainstay_revert_latency_seconds_bucket{le="120.0"} 2"#,
        ] {
            assert!(has(&text, line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn reads_gauges_at_the_scrape() {
        let times = Histogram::new([0.1, 1.0]);
        times.observe(0.25);
        let metrics = Metrics::new(move || Gauges {
            leader: true,
            subjects: None,
            syncs: vec![SyncGauges { sync: "a/b".into(), objects: 7, lag_seconds: 1.5, ..SyncGauges::default() }],
            requests: vec![Counted { verb: Verb::Apply, resource: "configmaps".into(), count: 12 }],
            lookups: 5,
            fetches: 1,
            renders: 2,
            reconciles: 6,
            functions: vec![mainstay_function::FunctionMetrics {
                namespace: "shop".into(),
                name: "hello".into(),
                source: "git",
                runtime: "nodejs22".into(),
                took: [Some(Duration::from_millis(1500)), None, None],
            }],
            functions_processed: 3,
            reconciliations: 9,
            reconcile_times: Some(times.clone()),
            builds_running: 5,
            builds_held_up: 6,
            builds_waiting: 7,
            deliveries: vec![Count { kind: "github", outcome: "woken", count: 8 }],
            reviews: vec![admission::Count { webhook: "validate-function", outcome: "denied", count: 4 }],
            retention: RetentionGauges { manifests: 3, bytes: 4096, sweeps: 2, failures: 1, last: Some(1.5) },
            audits: vec![("confirmed", 11)],
            shards: ShardGauges { members: 3, own: 21, gained: 30, lost: 9 },
        });
        let text = metrics.text().unwrap();
        for line in [
            "mainstay_leader 1",
            "mainstay_git_lookups_total 5",
            "mainstay_renders_total 2",
            "mainstay_reconciles_total 6",
            "mainstay_function_builds_running 5",
            "mainstay_function_builds_held_up 6",
            "mainstay_function_builds_waiting 7",
            r#"mainstay_function_configured_status_duration_seconds{name="hello",namespace="shop",type="git",runtime="nodejs22"} 1.5"#,
            r#"function_configured_status_duration_millisecond{name="hello",namespace="shop",type="git",runtime="nodejs22"} 1500.0"#,
            r#"serverless_state_reach_time_seconds{name="hello",namespace="shop",type="git",runtime="nodejs22",condition="ConfigurationReady"} 1.5"#,
            "serverless_function_processed_total 3",
            "serverless_reconciliations_total 9",
            "serverless_reconciliation_time_seconds_count 1",
            "serverless_reconciliation_time_seconds_sum 0.25",
            r#"serverless_reconciliation_time_seconds_bucket{le="0.1"} 0"#,
            r#"serverless_reconciliation_time_seconds_bucket{le="1.0"} 1"#,
            r#"mainstay_api_requests_total{verb="apply",resource="configmaps"} 12"#,
            r#"mainstay_receiver_deliveries_total{type="github",outcome="woken"} 8"#,
            r#"mainstay_admission_reviews_total{webhook="validate-function",outcome="denied"} 4"#,
            r#"mainstay_objects{sync="a/b"} 7.0"#,
            r#"mainstay_audits_total{outcome="confirmed"} 11"#,
            "mainstay_images_removed_total 3",
            "mainstay_images_removed_bytes_total 4096",
            "mainstay_image_sweeps_total 2",
            "mainstay_image_sweep_failures_total 1",
            "mainstay_image_retention_last_timestamp_seconds 1.5",
            r#"mainstay_sync_lag_seconds{sync="a/b"} 1.5"#,
            "mainstay_shard_members 3",
            "mainstay_shard_syncs 21",
            "mainstay_shard_gained_total 30",
            "mainstay_shard_lost_total 9",
            "# EOF",
        ] {
            assert!(has(&text, line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_revert_is_counted_for_the_function_or_the_sync_that_owns_the_object() {
        let metrics = Metrics::new(Gauges::default);
        metrics.count(&reverted(Owner::function("shop", "hello"), 1.0));
        metrics.count(&reverted(sync("hello"), 1.0));
        let text = metrics.text().unwrap();
        for line in
            [r#"mainstay_reverts_total{function="shop/hello"} 1"#, r#"mainstay_reverts_total{sync="shop/hello"} 1"#]
        {
            assert!(has(&text, line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r"mainstay_commits_applied_total{function="), "a Function has no commits\n{text}");
    }

    #[test]
    fn a_scrape_drops_the_series_of_what_was_deleted() {
        let subjects = Arc::new(Mutex::new(None));
        let metrics = Metrics::new({
            let subjects = Arc::clone(&subjects);
            move || Gauges { subjects: subjects.lock().clone(), ..Gauges::default() }
        });
        metrics.count(&applied("web"));
        metrics.count(&applied("other"));
        metrics.count(&reverted(Owner::function("shop", "web"), 1.0));
        assert!(metrics.text().unwrap().contains("shop/web"), "nothing is dropped while the subjects are unknown");
        *subjects.lock() = Some(BTreeSet::from([sync("other")]));
        let text = metrics.text().unwrap();
        assert!(!text.contains("shop/web") && text.contains("shop/other"), "{text}");
        metrics.count(&applied("web"));
        assert!(!metrics.text().unwrap().contains("shop/web"), "a late message leaves nothing behind");
    }
}
