//! What to do for a commit: which objects to apply, in which order, which to delete, and which to leave for a reason.
//!
//! Invariant: an object that is already as the commit says costs nothing.
//!
//! Deliberately absent: reading and writing. What is known of the cluster comes in; what is to be done goes out. What is
//! deleted is decided in `prune`. The one thing that changes here is the registry, in which the objects of the plan are
//! reserved in the same step in which it is checked that no other GitSync has them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use super::contents::Contents;
use super::contested::{Keeper, Signs};
use super::prune::{self, Leaving, Prune};
use super::registry::{Claim, View};
use mainstay_api::names::{MANAGER, SYNC_LABEL};
pub use mainstay_engine::apply::{Expect, Step};
use mainstay_engine::managed::inventory::{Entry, Inventory};
use mainstay_engine::managed::verdict::is_controlled;
use mainstay_engine::managed::{Appliers, Desired, is_paused};
use mainstay_git::Commit;
use mainstay_manifest::sops::KeyId;
use mainstay_object::{Digest, Key, Stage, stage};

/// What is known of a live object that is not kept yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// Label that says whose it is.
    pub label: Option<String>,
    /// `metadata.managedFields`, for an object that is not ours yet.
    pub managed_fields: Value,
    /// Break glass.
    pub paused: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// A controller owns it.
    pub controlled: bool,
    /// Who may keep it besides.
    pub signs: Signs,
}

impl Live {
    /// What the metadata of an object say at `now` to the GitSync whose objects carry `label`.
    pub fn of(meta: &ObjectMeta, label: &str, now: Timestamp) -> Self {
        let own = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL)).cloned();
        let managed_fields = match &meta.managed_fields {
            // A copied label makes no object ours.
            Some(entries) if own.as_deref() != Some(label) || !entries.iter().any(is_ours) => {
                serde_json::to_value(entries).unwrap_or_default()
            }
            _ => Value::Null,
        };
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            label: own,
            managed_fields,
            paused: is_paused(meta, now),
            terminating: meta.deletion_timestamp.is_some(),
            controlled: is_controlled(meta),
            signs: Signs::of(meta),
        }
    }

    /// Whether it carries the label of the GitSync that wants it.
    pub(super) fn is_ours(&self, desired: &Desired) -> bool {
        self.label.is_some() && self.label.as_deref() == desired.label()
    }
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}

/// What is there before a commit is applied.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// What is managed so far, as far as the GitSync may touch it.
    pub inventory: Inventory,
    /// Objects that the drift loop already keeps for this GitSync.
    pub kept: HashSet<Key>,
    /// Objects whose last apply failed and whose next try is not due.
    pub waiting: HashSet<Key>,
    /// What is there of the objects that are neither unchanged nor in one of the two, as far as somebody had to look: an object
    /// of which nothing is known is applied as new, and one that is there refuses that.
    pub live: HashMap<Key, Live>,
    /// Objects that left and were still being deleted when they were last looked at.
    pub terminating: HashSet<Key>,
    /// What other GitOps tools keep of it, and who does.
    pub contested: HashMap<Key, Keeper>,
}

/// The desired state of a commit.
#[derive(Clone)]
pub(super) struct DesiredState {
    pub(super) commit: Commit,
    /// What is read; `None` when the directory is gone and its deletion was allowed.
    pub(super) tree: Option<Contents>,
    /// Whether submodules are fetched, and which of them are below `baseDir`.
    pub(super) submodules: (bool, Option<String>),
    /// Whether files in Git LFS are fetched.
    pub(super) lfs: bool,
    pub(super) generation: Option<i64>,
    /// What the cluster is, if a chart asks for that.
    pub(super) capabilities: Option<Digest>,
    /// The values of variables, if any are substituted.
    pub(super) values: Option<Digest>,
    /// The keys that decrypt it, if there are any.
    pub(super) keys: Option<KeyId>,
    pub(super) objects: Vec<Arc<Desired>>,
}

/// What the plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The commit.
    pub commit: &'a str,
    /// What the GitSync follows, as one text.
    pub branch: &'a str,
    /// What the commit wants.
    pub desired: &'a [Arc<Desired>],
    /// What is there.
    pub observed: &'a Observed,
    /// Whether objects that left are deleted.
    pub prune: bool,
    /// Whether somebody allowed to delete whatever leaves with this commit.
    pub allows_prune: bool,
    /// Whose fields become ours in an object that is adopted.
    pub former: &'a Appliers,
    /// Whose fields become ours in an object that an earlier version adopted.
    pub left: &'a Appliers,
    /// Whether those of known appliers do as well, where nobody keeps the object.
    pub takes_over_known: bool,
}

/// An object that is not applied, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The object.
    pub key: Key,
    /// What keeps it from being applied.
    pub why: Why,
}

/// Why an object is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another GitSync manages it.
    Claimed(String),
    /// Another GitSync of the same branch has yet to give it up.
    AwaitsHandover(String),
    /// It is being deleted.
    Terminating,
    /// A controller owns it.
    Controlled,
    /// Another GitOps tool keeps it. What an apply would remove, as paths for people.
    Contested(Keeper, Vec<String>),
}

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Objects to apply, stage by stage.
    pub stages: BTreeMap<Stage, Vec<Step>>,
    /// Objects that are as the commit says.
    pub unchanged: Vec<Arc<Desired>>,
    /// Objects that are not ours yet and under break glass.
    pub paused: Vec<Arc<Desired>>,
    /// Objects that cannot be applied now.
    pub refused: Vec<Refused>,
    /// What becomes of the objects that left.
    pub leaving: Leaving,
    /// Something of it is taken from a GitSync that is confined, which has to plan anew.
    pub outranks: bool,
}

impl Plan {
    /// Whether anything is deleted after an apply: not where something of the same commit `failed` or was refused, and
    /// not by an inventory that was `rebuilt` from labels.
    pub fn may_prune(&self, failed: bool, rebuilt: bool) -> bool {
        !failed && self.refused.is_empty() && !rebuilt
    }
}

/// Whether an object has to be applied for a commit: it is new, changed, or not known to be as it was applied.
pub fn is_unchanged(desired: &Desired, entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.is_for(desired))
}

/// The plan for a commit. From now on its objects count as those of the GitSync whose view of the registry this is, before
/// another one can plan to apply them.
pub fn plan(registry: &mut View<'_>, facts: &Facts<'_>) -> Plan {
    let Facts { commit, branch, desired, observed, .. } = *facts;
    let mut plan = Plan::default();
    plan_applies(registry, facts, &mut plan);
    let desired = desired.iter().map(|d| &d.key).collect::<HashSet<_>>();
    // Nobody is waited for where nothing left.
    let leaves = observed.inventory.0.keys().any(|key| !desired.contains(key));
    let pending = leaves.then(|| registry.sibling_pending(branch, commit)).flatten();
    let prune = Prune::of(facts.prune, pending, facts.allows_prune);
    let elsewhere = |key: &Key| registry.desired_elsewhere(key);
    let read_by = |key: &Key, going: &HashSet<Key>| registry.reader_of(key, going);
    let (own, inventory) = (registry.key(), &observed.inventory);
    plan.leaving = prune::decide(&own, &desired, inventory, &observed.terminating, &elsewhere, &read_by, prune);
    plan.outranks = registry.reserve(plan.stages.values().flatten().map(|step| step.desired.key.clone()));
    plan
}

/// The plan for objects of a commit that were to be new and are there: what `facts` say is observed of them decides.
pub(super) fn plan_found(registry: &mut View<'_>, facts: &Facts<'_>) -> Plan {
    let mut plan = Plan::default();
    plan_applies(registry, facts, &mut plan);
    plan
}

/// What is applied of the desired objects, and what keeps the others from that.
fn plan_applies(registry: &mut View<'_>, facts: &Facts<'_>, plan: &mut Plan) {
    let mut sorted = facts.desired.iter().map(|d| (stage(&d.key), d)).collect::<Vec<(Stage, _)>>();
    sorted.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.key.cmp(&y.key)));
    let mut regained = Vec::new();
    for (stage, desired) in sorted {
        let key = &desired.key;
        let live = facts.observed.live.get(key);
        // What was taken from us is not as we left it.
        let is_outranked = registry.is_outranked(key);
        if !is_outranked && is_unchanged(desired, facts.observed.inventory.0.get(key)) && live.is_none() {
            plan.unchanged.push(Arc::clone(desired));
            continue;
        }
        if facts.observed.waiting.contains(key) && !is_outranked {
            continue;
        }
        if let Some(why) = refused(registry, facts, desired, live) {
            plan.refused.push(Refused { key: key.clone(), why });
            continue;
        }
        if is_outranked {
            regained.push(key.clone());
        }
        let expect = match live {
            Some(live) if live.paused => {
                plan.paused.push(Arc::clone(desired));
                continue;
            }
            None if facts.observed.kept.contains(key) => Expect::Ours,
            None => Expect::Absent,
            Some(live) if is_managed(facts, desired, live) => Expect::Ours,
            Some(live) => {
                Expect::Version { version: live.resource_version.clone(), managed_fields: live.managed_fields.clone() }
            }
        };
        let appliers = appliers(facts, desired, live, &expect);
        plan.stages.entry(stage).or_default().push(Step { desired: Arc::clone(desired), expect, appliers });
    }
    registry.regain(&regained);
}

/// What keeps an object from being applied.
fn refused(registry: &View<'_>, facts: &Facts<'_>, desired: &Desired, live: Option<&Live>) -> Option<Why> {
    let label = live.and_then(|live| live.label.as_deref());
    match registry.claim(&desired.key, label, facts.branch, facts.commit) {
        Claim::Held(other) => Some(Why::Claimed(other)),
        Claim::Undecided(other) => Some(Why::AwaitsHandover(other)),
        Claim::Free if live.is_some_and(|live| live.controlled) => Some(Why::Controlled),
        Claim::Free if live.is_some_and(|live| live.terminating) => Some(Why::Terminating),
        Claim::Free => contested(facts, desired, live),
    }
}

/// Why an object that is not ours yet is left to whoever keeps it.
fn contested(facts: &Facts<'_>, desired: &Desired, live: Option<&Live>) -> Option<Why> {
    let live = live.filter(|live| !is_managed(facts, desired, live))?;
    let keeper = facts.observed.contested.get(&desired.key)?;
    let removed = facts.former.and_known().would_remove(&live.managed_fields, desired);
    Some(Why::Contested(keeper.clone(), removed.unwrap_or_default()))
}

fn is_managed(facts: &Facts<'_>, desired: &Desired, live: &Live) -> bool {
    live.is_ours(desired) && facts.observed.inventory.0.contains_key(&desired.key)
}

/// Whose fields become ours with an apply.
fn appliers(facts: &Facts<'_>, desired: &Desired, live: Option<&Live>, expect: &Expect) -> Appliers {
    let is_left = facts.takes_over_known && live.is_some() && !facts.observed.contested.contains_key(&desired.key);
    let some = match expect {
        Expect::Absent => return Appliers::default(),
        Expect::Ours => facts.left,
        Expect::Version { .. } => facts.former,
    };
    if is_left { some.and_known() } else { some.clone() }
}

#[cfg(test)]
mod tests;
