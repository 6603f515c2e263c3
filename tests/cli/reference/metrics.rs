//! The page of the metrics: each family that the agent and the processes of events register, with its type, unit, labels
//! and help.
//!
//! Invariant: every field of `Gauges` is filled in, and every family has a sample, so that its labels are known.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use mainstay::agent::metrics::{Gauges, Metrics, RetentionGauges, ShardGauges, SyncGauges};
use mainstay_api::function_conditions::Reason;
use mainstay_cluster::{Counted, Verb};
use mainstay_engine::notification::Message;
use mainstay_eventing::{Subscribed, SubscriberId};
use mainstay_function::{FunctionMetrics, admission};
use mainstay_gitsync::receiver;
use mainstay_object::Owner;
use prometheus_client::metrics::histogram::Histogram;

use super::{cell, check_page};

/// A family as a scrape shows it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    has_sample: bool,
}

#[test]
fn metrics_are_those_of_a_scrape() {
    let metrics = Metrics::new(all);
    for message in messages() {
        metrics.count(&message);
    }
    let families = families(&metrics.text().unwrap());
    let mut text =
        "The agent serves these metrics at `/metrics`, and the processes of events serve those of *Events*. \
                    [Metrics and alerts](../operate/metrics.md) explains how to scrape them. A counter ends in `_total`. A histogram `x` has the series `x_bucket`, `x_sum` and \
                    `x_count`.\n"
            .to_owned();
    for (title, is_in) in [
        ("GitSyncs", is_of_git_syncs as fn(&str, &Family) -> bool),
        ("Functions", |name, family| !is_of_git_syncs(name, family) && is_of_functions(name, family)),
        ("Agent", |name, family| !is_of_git_syncs(name, family) && !is_of_functions(name, family)),
    ] {
        write_table(&mut text, title, families.iter().filter(|(name, family)| is_in(name, family)));
    }
    write_table(&mut text, "Events", self::families(&of_events().text().unwrap()).iter());
    check_page("metrics", "Metrics", &text);
}

fn write_table<'f>(text: &mut String, title: &str, families: impl Iterator<Item = (&'f String, &'f Family)>) {
    write!(text, "\n## {title}\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n").unwrap();
    for (name, family) in families {
        assert!(family.has_sample, "this test gives {name} no value, so its labels are unknown");
        assert!(family.help.starts_with(|c: char| c.is_uppercase() || c == '1'), "{name}: {:?}", family.help);
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, unit, labels, help) = (&family.kind, unit(name), labels.join(", "), cell(&family.help));
        writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {help} |").unwrap();
    }
}

/// The metrics of a process of events, with a value for each family.
fn of_events() -> mainstay_eventing::Metrics {
    let metrics = mainstay_eventing::Metrics::default();
    let id = SubscriberId::parse("trigger/shop/orders").unwrap();
    let types = vec!["order.created.v1".to_owned()];
    metrics.set_subscribers(vec![Subscribed { id: id.clone(), is_ready: true, types }]);
    metrics.set_health(true);
    metrics.requested("POST", "/publish", 204, Duration::ZERO);
    metrics.published("order.created.v1", "shop", 204, "nats", Duration::ZERO);
    metrics.delivered(&id, "order.created.v1", "http://orders.shop", 200, Duration::ZERO);
    drop(metrics.in_flight(&id));
    metrics.given_up(&id);
    metrics
}

fn is_of_git_syncs(_: &str, family: &Family) -> bool {
    family.labels.contains("sync")
}

fn is_of_functions(name: &str, _: &Family) -> bool {
    ["function", "serverless"].iter().any(|word| name.contains(word))
}

fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let units = [
        ("_timestamp_seconds", "s since 1970"),
        ("_seconds", "s"),
        ("_millisecond", "ms"),
        ("_milliseconds", "ms"),
        ("_bytes", "bytes"),
    ];
    units.iter().find(|(suffix, _)| name.ends_with(suffix)).map_or("", |(_, unit)| unit)
}

/// Reads the text of a scrape.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families = BTreeMap::new();
    let (mut name, mut family) = (String::new(), Family::default());
    for line in text.lines() {
        if let Some((next, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.insert(std::mem::replace(&mut name, next.to_owned()), std::mem::take(&mut family));
            // The encoder ends each help with a period.
            help.trim_end_matches('.').clone_into(&mut family.help);
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kind.clone_into(&mut family.kind);
            if kind == "counter" {
                name += "_total";
            }
        } else if !line.starts_with('#') {
            family.has_sample = true;
            let labels =
                line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(labels, _)| labels);
            let names = labels.split("\",").filter_map(|label| label.split_once("=\""));
            family.labels.extend(names.map(|(label, _)| label.to_owned()).filter(|label| label != "le"));
        }
    }
    families.insert(name, family);
    families.remove("");
    families
}

/// A message for each family that counts messages.
fn messages() -> Vec<Message> {
    let sync = Owner::git_sync("shop", "web");
    let reverted = |subject: Owner| Message::Reverted {
        subject,
        object: "ConfigMap shop/a".into(),
        fields: vec![".data.a".into()],
        changes: Vec::new(),
        who: "kubectl-edit".into(),
        millis: 1.0,
    };
    vec![
        Message::CommitApplied {
            subject: sync.clone(),
            commit: "c".into(),
            created: 1,
            changed: 0,
            unchanged: 0,
            pruned: 0,
            millis: 1,
            is_elsewhere: false,
        },
        reverted(sync),
        reverted(Owner::function("shop", "hello")),
        Message::NotPutBack {
            subject: Owner::function("shop", "hello"),
            object: "Deployment shop/hello".into(),
            fields: Vec::new(),
            cause: "refused".into(),
        },
        Message::Stage {
            subject: Owner::function("shop", "hello"),
            condition: "BuildReady".into(),
            status: "True".into(),
            reason: Reason::JobFinished.into(),
            message: "built".into(),
        },
    ]
}

/// A value for each gauge.
fn all() -> Gauges {
    Gauges {
        leader: true,
        subjects: None,
        syncs: vec![SyncGauges { sync: "shop/web".into(), last_success: Some(1.0), ..SyncGauges::default() }],
        requests: vec![Counted { verb: Verb::Apply, resource: "configmaps".into(), count: 1 }],
        lookups: 1,
        fetches: 1,
        renders: 1,
        reconciles: 1,
        functions: vec![FunctionMetrics {
            namespace: "shop".into(),
            name: "hello".into(),
            source: "git",
            runtime: "nodejs22".into(),
            took: [Some(Duration::from_secs(1)); 3],
        }],
        functions_processed: 1,
        reconciliations: 1,
        reconcile_times: Some(Histogram::new([1.0])),
        builds_running: 1,
        builds_held_up: 1,
        builds_waiting: 1,
        deliveries: vec![receiver::Count { kind: "github", outcome: "woken", count: 1 }],
        reviews: vec![admission::Count { webhook: "validate-function", outcome: "denied", count: 1 }],
        retention: RetentionGauges { manifests: 1, bytes: 1, sweeps: 1, failures: 1, last: Some(1.0) },
        audits: vec![("confirmed", 1)],
        shards: ShardGauges { members: 1, own: 1, gained: 1, lost: 1 },
    }
}
