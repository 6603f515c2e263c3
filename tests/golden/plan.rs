//! The plan of a GitSync for a commit, with all guards of pruning, and the decision about an object right before its
//! deletion.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mainstay_engine::managed::inventory::{Entry, Inventory, uid_bytes};
use mainstay_engine::managed::{Appliers, Desired};
use mainstay_gitsync::plan::{Applies, Expect, Facts, Live, Observed, Plan, is_unchanged, plan};
use mainstay_gitsync::prune::{self, Permission};
use mainstay_gitsync::registry::{Registry, Row};
use mainstay_object::{Digest, Key, Owner};
use serde::Deserialize;
use serde_json::Value;

use crate::{LABEL, check, desired, key, key_of};

const COMMIT: &str = "c2";
const BRANCH: &str = "https://git.example.org/shop.git main";

fn own() -> Owner {
    Owner::git_sync("shop", "demo")
}

fn yes() -> bool {
    true
}

/// A commit for a GitSync.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    _title: String,
    /// Objects in the commit.
    #[serde(default)]
    git: Vec<Value>,
    /// Objects in the inventory: those applied as they are in Git now (`as_applied`), those applied differently
    /// (`changed`), and those whose first apply got no response (`intended`).
    #[serde(default)]
    as_applied: Vec<String>,
    #[serde(default)]
    changed: Vec<String>,
    #[serde(default)]
    intended: Vec<String>,
    /// Objects that failed and are not retried yet.
    #[serde(default)]
    waiting: Vec<String>,
    /// Objects that left the repository and were still being deleted when they were last examined.
    #[serde(default)]
    terminating: Vec<String>,
    /// Live objects that are not managed yet or are about to be deleted.
    #[serde(default)]
    live: Vec<Value>,
    /// Whether the drift loop enforces the applied objects; false after a restart.
    #[serde(default = "yes")]
    kept: bool,
    #[serde(default = "yes")]
    prune: bool,
    /// Value of `mainstay.dev/allow-prune`.
    #[serde(default)]
    allow_prune: String,
    #[serde(default)]
    others: Vec<Other>,
    /// Whether some objects of the commit could not be applied.
    #[serde(default)]
    failed: bool,
    /// Whether the inventory was rebuilt from labels.
    #[serde(default)]
    rebuilt: bool,
}

/// Another GitSync.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Other {
    name: String,
    #[serde(default)]
    follows_another_branch: bool,
    /// `null` until the inventory of this GitSync is read.
    manages: Option<Vec<String>>,
    /// `null` until a commit of this GitSync is decoded.
    wants: Option<Vec<String>>,
    planned: Option<String>,
    #[serde(default)]
    suspended: bool,
    #[serde(default = "yes")]
    tried: bool,
    confined_to: Option<String>,
}

fn keys(texts: &[String]) -> HashSet<Key> {
    texts.iter().map(|text| key(text)).collect()
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Returns the UID of the object with a key.
fn uid(key: &Key) -> String {
    format!("uid of {key}")
}

fn inventory(case: &Case, wanted: &[Arc<Desired>]) -> Inventory {
    let mut inventory = Inventory::default();
    let entry = |key: &Key, document: Digest| Entry {
        version: "v1".into(),
        uid: Some(uid_bytes(&uid(key))),
        digest: Some(document),
        source: document.as_bytes()[..8].try_into().ok(),
        ended: None,
    };
    for key in keys(&case.as_applied) {
        let document = wanted.iter().find(|desired| desired.key == key).map(|desired| desired.source());
        let entry = entry(&key, document.unwrap_or_else(|| Digest::of(b"as it was")));
        inventory.0.insert(key, entry);
    }
    for key in keys(&case.changed) {
        let entry = entry(&key, Digest::of(b"as it was"));
        inventory.0.insert(key, entry);
    }
    for key in keys(&case.intended) {
        inventory.0.insert(key, Entry { version: "v1".into(), ..Entry::default() });
    }
    inventory
}

fn enter(registry: &Registry, other: &Other) {
    let row = Row {
        label: other.name.replace('/', ".").into(),
        branch: Some(if other.follows_another_branch { "elsewhere".into() } else { BRANCH.into() }),
        managed: other.manages.as_ref().map(|all| Arc::new(keys(all))),
        desired: other.wants.as_ref().map(|all| Arc::new(keys(all))),
        planned: other.planned.clone(),
        confined_to: other.confined_to.as_deref().map(Into::into),
        suspended: other.suspended,
        tried: other.tried,
        ..Row::default()
    };
    let (namespace, name) = other.name.split_once('/').unwrap();
    registry.update(&Owner::git_sync(namespace, name), |own| *own = row);
}

fn meta(live: &Value) -> ObjectMeta {
    serde_json::from_value(live["metadata"].clone()).unwrap()
}

fn decide(case: &Case) -> String {
    let wanted = case.git.iter().map(desired).collect::<Vec<_>>();
    let inventory = inventory(case, &wanted);
    let kept =
        if case.kept { keys(&case.as_applied).union(&keys(&case.changed)).cloned().collect() } else { HashSet::new() };
    // The cluster is asked only for objects that are neither enforced nor known to be unchanged.
    let asked = wanted.iter().filter(|d| !is_unchanged(d, inventory.0.get(&d.key)) && !kept.contains(&d.key));
    let asked = asked.map(|desired| desired.key.clone()).collect::<HashSet<_>>();
    let found = case.live.iter().map(|live| (key_of(live), meta(live))).collect::<HashMap<_, _>>();
    let live = found.iter().filter(|(key, _)| asked.contains(key));
    let live = live.map(|(key, meta)| (key.clone(), Live::of(meta, LABEL, now()))).collect();
    let allowed = case.allow_prune == COMMIT;
    let registry = Registry::default();
    registry.enter(&own(), LABEL.into(), None);
    registry.update(&own(), |row| row.managed = Some(Arc::new(inventory.0.keys().cloned().collect())));
    for other in &case.others {
        enter(&registry, other);
    }
    let terminating = keys(&case.terminating);
    let observed = Observed {
        inventory: inventory.clone(),
        kept,
        waiting: keys(&case.waiting),
        live,
        terminating,
        ..Observed::default()
    };
    let plan = registry.with(&own(), |view| {
        let (prune, allows_prune) = (case.prune, allowed);
        let desired = &wanted;
        let facts = Facts {
            commit: COMMIT,
            branch: BRANCH,
            desired,
            observed: &observed,
            prune,
            allows_prune,
            former: &Appliers::former(Arc::default()),
            left: &Appliers::default(),
            takes_over_known: true,
        };
        plan(view, &facts)
    });
    let mut text = applies(&plan);
    let follows = plan.may_prune(Applies { failed: case.failed, rebuilt: case.rebuilt });
    for key in &plan.leaving.prune {
        if !follows {
            let _ = writeln!(text, "kept until everything else is applied: {key}");
            continue;
        }
        let permission = if allowed { Permission::Allowed } else { Permission::Unasked };
        let becomes =
            found.get(key).map(|meta| prune::may_delete(key, meta, LABEL, &inventory.0[key], permission, now()));
        match becomes {
            Some(becomes) => _ = writeln!(text, "delete: {key}, found so: {becomes:?}"),
            None => _ = writeln!(text, "delete: {key}"),
        }
    }
    for key in &plan.leaving.handed_over {
        let _ = writeln!(text, "hand over: {key}");
    }
    for (key, why) in &plan.leaving.held {
        let _ = writeln!(text, "hold: {key}: {}", why.text(&own(), COMMIT));
    }
    if let Some(guard) = plan.leaving.guard_text(&own(), COMMIT) {
        let _ = writeln!(text, "guard: {guard}");
    }
    if text.is_empty() { "nothing".to_owned() } else { text }
}

fn applies(plan: &Plan) -> String {
    let mut text = String::new();
    for (stage, steps) in &plan.stages {
        for step in steps {
            let how = match &step.expect {
                Expect::Ours => "ours".to_owned(),
                Expect::Absent => "only if it is not there".to_owned(),
                Expect::Withdrawn { version, .. } => {
                    format!("only over version {version}, after a change of the version")
                }
                Expect::Version { version, managed_fields } | Expect::Offered { version, managed_fields } => {
                    let is_taken = step.appliers.would_remove(managed_fields, &step.desired).is_some();
                    let taken = if is_taken { ", after taking over what former appliers wrote" } else { "" };
                    format!("only over version {version}{taken}")
                }
            };
            let _ = writeln!(text, "apply in stage {}.{}: {}, {how}", stage.number, stage.rank, step.desired.key);
        }
    }
    for desired in &plan.unchanged {
        let _ = writeln!(text, "unchanged: {}", desired.key);
    }
    for (desired, _) in &plan.paused {
        let _ = writeln!(text, "under break glass: {}", desired.key);
    }
    for refused in &plan.refused {
        let _ = writeln!(text, "refused: {}: {:?}", refused.key, refused.why);
    }
    text
}

#[test]
fn a_commit_becomes_a_plan() {
    check("plan", decide);
}
