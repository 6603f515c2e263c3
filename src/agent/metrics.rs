//! What Prometheus scrapes: counters and a histogram fed by the messages of both loops, and facts read at each scrape.
//!
//! Invariant: the number of time series is bounded by the numbers of GitSyncs, Functions and kinds, never by that of
//! objects.
//! Invariant: a GitSync that is gone leaves no series behind.
//!
//! Deliberately absent: rates and alerts, which belong to whoever scrapes.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, PoisonError},
};

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

use crate::{api::function_conditions::Reason, cluster::Counted, function, notification::Message};

/// Upper bounds of the revert latency's buckets, in seconds. Slowed reverts of contended objects reach minutes.
const LATENCIES: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0, 300.0];

type Labels = [(&'static str, String); 1];

/// What is true at the moment of a scrape.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether this agent holds the Lease.
    pub leader: bool,
    /// One row per GitSync.
    pub syncs: Vec<SyncFacts>,
    /// API requests since the start, by verb and resource.
    pub requests: Vec<Counted>,
    /// Ref lookups at Git remotes since the start.
    pub lookups: u64,
    /// Fetches from Git remotes since the start.
    pub fetches: u64,
    /// One row per Function.
    pub functions: Vec<function::Facts>,
    /// Builds that work or may begin.
    pub builds_running: u64,
    /// Builds whose pods are known to be kept from their work.
    pub builds_held_up: u64,
    /// Functions that wait for their turn to build.
    pub builds_waiting: u64,
}

/// What is true of one GitSync.
#[derive(Clone, Debug, Default)]
pub struct SyncFacts {
    /// `namespace/name`.
    pub sync: String,
    /// Managed objects.
    pub objects: u64,
    /// Objects under break glass.
    pub paused: u64,
    /// Objects whose reverts are slowed because somebody keeps writing to them.
    pub contended: u64,
    /// Objects with any heat.
    pub heated: u64,
    /// Objects whose last apply or deletion failed.
    pub failed: u64,
    /// Seconds since a commit was seen that is not applied in full; 0 when the newest is.
    pub lag_seconds: f64,
}

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    seen: Family<Labels, Counter>,
    commits: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    reverts: Family<Labels, Counter>,
    drifts: Family<Labels, Counter>,
    applies: Family<Labels, Counter>,
    builds: Family<Labels, Counter>,
    revert_latency: Histogram,
    apply_duration: Histogram,
    missed: Counter,
    /// The GitSyncs that have series.
    known: Mutex<BTreeSet<String>>,
}

impl Metrics {
    /// Metrics whose present facts come from `read`, called once per scrape; it must not block.
    pub fn new(read: impl Fn() -> Facts + Send + Sync + 'static) -> Self {
        let mut registry = Registry::with_prefix("mainstay");
        let mut family = |name: &str, help: &str| {
            let family = Family::<Labels, Counter>::default();
            registry.register(name, help, family.clone());
            family
        };
        let seen = family("commits_seen", "Commits that were found at the followed reference");
        let commits = family("commits_applied", "Commits that were applied in full");
        let failures = family("failures", "Attempts that failed, in whole or in part");
        let reverts = family("reverts", "Objects that were put back");
        let drifts = family("drifts_left", "Changes that were seen and, by policy, left");
        let applies = family("applies", "Objects of applied commits by outcome");
        let builds = family("function_builds", "Builds of Functions by outcome");
        let revert_latency = Histogram::new(LATENCIES);
        let help = "From the receipt of a change to the answer of the write that put it back";
        registry.register_with_unit("revert_latency", help, Unit::Seconds, revert_latency.clone());
        let apply_duration = Histogram::new(LATENCIES);
        let help = "From the moment a commit was seen to its last write's answer";
        registry.register_with_unit("commit_duration", help, Unit::Seconds, apply_duration.clone());
        let missed = Counter::default();
        registry.register("messages_missed", "Messages that these metrics were too slow to count", missed.clone());
        registry.register_collector(Box::new(AtScrape(Box::new(read))));
        let known = Mutex::default();
        Self {
            registry,
            seen,
            commits,
            failures,
            reverts,
            drifts,
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
                Ok(message) => self.count(&message),
                Err(RecvError::Lagged(missed)) => _ = self.missed.inc_by(missed),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Counts one message.
    pub fn count(&self, message: &Message) {
        match message {
            Message::CommitSeen { sync, .. } => self.one_more(&self.seen, sync),
            Message::CommitApplied { sync, created, changed, unchanged, pruned, millis, .. } => {
                self.one_more(&self.commits, sync);
                self.apply_duration.observe(*millis as f64 / 1000.0);
                for (outcome, number) in
                    [("created", created), ("changed", changed), ("unchanged", unchanged), ("pruned", pruned)]
                {
                    self.applies.get_or_create(&[("outcome", outcome.to_owned())]).inc_by(*number as u64);
                }
            }
            Message::Reverted { sync, millis, .. } => {
                self.one_more(&self.reverts, sync);
                self.revert_latency.observe(millis / 1000.0);
            }
            Message::DriftSeen { sync, .. } => self.one_more(&self.drifts, sync),
            Message::Failed { sync, problems, .. } => {
                self.one_more(&self.failures, sync);
                self.applies.get_or_create(&[("outcome", "failed".to_owned())]).inc_by(problems.len() as u64);
            }
            Message::NotPutBack { sync, .. } => self.one_more(&self.failures, sync),
            Message::Stage { reason, .. } => {
                let outcomes = [(Reason::JobFinished, "finished"), (Reason::JobFailed, "failed")];
                if let Some((_, outcome)) = outcomes.iter().find(|(known, _)| known.as_str() == *reason) {
                    self.builds.get_or_create(&[("outcome", (*outcome).to_owned())]).inc();
                }
            }
            // How many are contended or paused now is a fact of the moment, read at the scrape.
            Message::Contended { .. } | Message::Paused { .. } | Message::Noticed { .. } => {}
        }
    }

    /// Drops the series of a GitSync that is gone.
    pub fn forget(&self, sync: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(sync);
        for family in [&self.seen, &self.commits, &self.failures, &self.reverts, &self.drifts] {
            family.remove(&[("sync", sync.to_owned())]);
        }
    }

    /// The text of a scrape (OpenMetrics 1.0).
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn one_more(&self, family: &Family<Labels, Counter>, sync: &str) {
        let new = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(sync.to_owned());
        let labels = [("sync", sync.to_owned())];
        if new {
            // A counter that starts at 0 shows its first increase as a rate; one that appears at 1 does not.
            for family in [&self.seen, &self.commits, &self.failures, &self.reverts, &self.drifts] {
                drop(family.get_or_create(&labels));
            }
        }
        family.get_or_create(&labels).inc();
    }
}

/// The facts, read anew at each scrape.
struct AtScrape(Box<dyn Fn() -> Facts + Send + Sync>);

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

/// One gauge per GitSync: name, help, value.
type PerSync = (&'static str, &'static str, fn(&SyncFacts) -> f64);

const PER_SYNC: [PerSync; 6] = [
    ("objects", "Managed objects", |facts| facts.objects as f64),
    ("paused_objects", "Objects under break glass", |facts| facts.paused as f64),
    ("contended_objects", "Objects whose reverts are slowed by a fight", |facts| facts.contended as f64),
    ("heated_objects", "Objects that were put back lately", |facts| facts.heated as f64),
    ("failed_objects", "Objects whose last apply or deletion failed", |facts| facts.failed as f64),
    ("sync_lag_seconds", "Age of the oldest commit that is not applied; 0 when in sync", |facts| facts.lag_seconds),
];

/// How long a new Function took, by condition.
const PER_CONDITION: [(&str, &str); 3] = [
    ("configured", "From the creation of a Function until it was configured"),
    ("built", "From the creation of a Function until its image was built"),
    ("running", "From the creation of a Function until it ran"),
];

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let facts = (self.0)();
        let leader = ConstGauge::new(i64::from(facts.leader));
        leader.encode(encoder.encode_descriptor(
            "leader",
            "Whether this agent holds the Lease",
            None,
            leader.metric_type(),
        )?)?;
        for (name, help, number) in [
            ("git_lookups", "Ref lookups at Git remotes", facts.lookups),
            ("git_fetches", "Fetches from Git remotes", facts.fetches),
        ] {
            let counter = ConstCounter::new(number);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("api_requests", "Requests to the API server", None, kind)?;
        for counted in &facts.requests {
            let labels = [("verb", counted.verb.as_str()), ("resource", &*counted.resource)];
            ConstCounter::new(counted.count).encode(family.encode_family(&labels)?)?;
        }
        for (name, help, number) in [
            ("function_builds_running", "Builds of Functions that work or may begin", facts.builds_running),
            ("function_builds_held_up", "Builds of Functions whose pods cannot do their work", facts.builds_held_up),
            ("function_builds_waiting", "Functions that wait for their turn to build", facts.builds_waiting),
        ] {
            let gauge = ConstGauge::new(number);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (at, (word, help)) in PER_CONDITION.into_iter().enumerate() {
            let kind = ConstGauge::new(0.0).metric_type();
            let name = format!("function_{word}_status_duration_seconds");
            let mut family = encoder.encode_descriptor(&name, help, None, kind)?;
            for function in &facts.functions {
                let Some(took) = function.took[at] else { continue };
                let labels = [
                    ("name", function.name.as_str()),
                    ("namespace", function.namespace.as_str()),
                    ("type", function.source),
                    ("runtime", function.runtime.as_str()),
                ];
                ConstGauge::new(took.as_secs_f64()).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, value) in PER_SYNC {
            let kind = ConstGauge::new(0.0).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for sync in &facts.syncs {
                ConstGauge::new(value(sync)).encode(family.encode_family(&[("sync", sync.sync.as_str())])?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Verb;
    use std::time::Duration;

    fn applied(sync: &str) -> Message {
        Message::CommitApplied {
            sync: sync.into(),
            commit: "c".into(),
            created: 3,
            changed: 2,
            unchanged: 1,
            pruned: 0,
            millis: 40,
        }
    }

    fn reverted(sync: &str, millis: f64) -> Message {
        Message::Reverted {
            sync: sync.into(),
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
    fn counts_what_the_loops_tell() {
        let metrics = Metrics::new(Facts::default);
        metrics.count(&applied("shop/web"));
        metrics.count(&reverted("shop/web", 3.2));
        metrics.count(&reverted("shop/web", 70_000.0));
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
    fn reads_facts_at_the_scrape() {
        let metrics = Metrics::new(|| Facts {
            leader: true,
            syncs: vec![SyncFacts { sync: "a/b".into(), objects: 7, lag_seconds: 1.5, ..SyncFacts::default() }],
            requests: vec![Counted { verb: Verb::Apply, resource: "configmaps".into(), count: 12 }],
            lookups: 5,
            fetches: 1,
            functions: vec![function::Facts {
                namespace: "shop".into(),
                name: "hello".into(),
                source: "git",
                runtime: "nodejs22".into(),
                took: [Some(Duration::from_millis(1500)), None, None],
            }],
            builds_running: 5,
            builds_held_up: 6,
            builds_waiting: 7,
        });
        let text = metrics.text().unwrap();
        for line in [
            "mainstay_leader 1",
            "mainstay_git_lookups_total 5",
            "mainstay_function_builds_running 5",
            "mainstay_function_builds_held_up 6",
            "mainstay_function_builds_waiting 7",
            r#"mainstay_function_configured_status_duration_seconds{name="hello",namespace="shop",type="git",runtime="nodejs22"} 1.5"#,
            r#"mainstay_api_requests_total{verb="apply",resource="configmaps"} 12"#,
            r#"mainstay_objects{sync="a/b"} 7.0"#,
            r#"mainstay_sync_lag_seconds{sync="a/b"} 1.5"#,
            "# EOF",
        ] {
            assert!(has(&text, line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn forgets_the_series_of_a_sync_that_is_gone() {
        let metrics = Metrics::new(Facts::default);
        metrics.count(&applied("shop/web"));
        metrics.count(&applied("shop/other"));
        metrics.forget("shop/web");
        let text = metrics.text().unwrap();
        assert!(!text.contains("shop/web") && text.contains("shop/other"), "{text}");
    }
}
