//! The plan for a commit: the objects to apply in order, the removed objects, the objects that it refuses to apply,
//! with the reason ([`Why`]), and the paused objects that are not managed yet.
//!
//! Invariant: an object that already matches the commit causes no request.
//!
//! Not here: reads and writes. The observed state is the input, the plan is the output. `prune` decides on deletions.
//! The registry is the only state that changes here: one step checks that no other GitSync claims an object, and
//! reserves it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use super::contents::Contents;
use super::contested::{Keeper, Signs};
use super::prune::{self, Held, Leaving, Prune};
use super::registry::{Claim, View};
use mainstay_api::names::{MANAGER, SYNC_LABEL};
pub use mainstay_engine::apply::{Expect, Step};
use mainstay_engine::managed::deletion::is_applied_by_us;
use mainstay_engine::managed::inventory::{Entry, Inventory};
use mainstay_engine::managed::verdict::is_controlled;
use mainstay_engine::managed::{Appliers, Desired, PauseEnd, pause_of};
use mainstay_git::{Commit, CommitHeader};
use mainstay_manifest::sops::KeyId;
use mainstay_object::{Digest, Key, Stage, stage};

/// The observed state of a live object that is not managed yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
    /// UID.
    pub uid: String,
    /// Resource version.
    pub resource_version: String,
    /// The ownership label.
    pub label: Option<String>,
    /// `metadata.managedFields`, for an object that this GitSync does not manage yet.
    pub managed_fields: Value,
    /// Whether Mainstay has applied the object, for this GitSync or another one.
    pub applied: bool,
    /// The end of the object's pause, if it is paused.
    pub paused: Option<PauseEnd>,
    /// Whether the object is being deleted.
    pub terminating: bool,
    /// Whether a controller owns the object.
    pub controlled: bool,
    /// Signs of other tools that may manage the object.
    pub signs: Signs,
}

impl Live {
    /// Reads the metadata of an object at `now`, for the GitSync with this `label`.
    pub fn of(meta: &ObjectMeta, label: &str, now: Timestamp) -> Self {
        let own = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL)).cloned();
        let managed_fields = match &meta.managed_fields {
            // A copied label alone does not show that this GitSync applied the object.
            Some(entries) if own.as_deref() != Some(label) || !entries.iter().any(is_ours) => {
                serde_json::to_value(entries).unwrap_or_default()
            }
            _ => Value::Null,
        };
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            label: own,
            applied: is_applied_by_us(meta),
            managed_fields,
            paused: pause_of(meta, now),
            terminating: meta.deletion_timestamp.is_some(),
            controlled: is_controlled(meta),
            signs: Signs::of(meta),
        }
    }

    /// Whether the object carries the label of the GitSync that wants it.
    pub(super) fn is_ours(&self, desired: &Desired) -> bool {
        self.label.is_some() && self.label.as_deref() == desired.label()
    }
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}

/// The cluster's state before a commit is applied.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The inventory, without objects that the GitSync may not touch.
    pub inventory: Inventory,
    /// Objects that the drift loop already keeps for this GitSync.
    pub kept: HashSet<Key>,
    /// Objects whose last apply failed and whose retry is not due.
    pub waiting: HashSet<Key>,
    /// The live objects that are neither unchanged nor in `kept` or `waiting`, as far as a read was necessary. An
    /// object that is not known to exist is applied as new; if the object exists, the server rejects the apply.
    pub live: HashMap<Key, Live>,
    /// Removed objects that were still being deleted in the last round.
    pub terminating: HashSet<Key>,
    /// The objects that other GitOps tools manage, each with its keeper.
    pub contested: HashMap<Key, Keeper>,
    /// Desired objects that the written status may still offer to GitSyncs of other agents.
    pub offered: HashSet<Key>,
    /// Desired objects that were offered until the last written status. A GitSync of another agent may just apply them.
    pub withdrawn: HashSet<Key>,
    /// Live objects that a GitSync of another agent offers. Its status was read after the objects.
    pub offers: HashSet<Key>,
}

/// The desired state of a commit.
#[derive(Clone)]
pub(super) struct DesiredState {
    pub(super) commit: Commit,
    /// Subject and author of the commit.
    pub(super) header: Arc<CommitHeader>,
    /// The contents; `None` if the directory is gone and its deletion was allowed.
    pub(super) tree: Option<Contents>,
    /// Whether submodules are fetched, and the submodules below `baseDir`.
    pub(super) submodules: (bool, Option<String>),
    /// Whether Git LFS files are fetched.
    pub(super) lfs: bool,
    pub(super) generation: Option<i64>,
    /// The capabilities of the cluster, if a chart reads them.
    pub(super) capabilities: Option<Digest>,
    /// The values of variables, if any are substituted.
    pub(super) values: Option<Digest>,
    /// The decryption keys, if there are any.
    pub(super) keys: Option<KeyId>,
    pub(super) objects: Vec<Arc<Desired>>,
}

/// The input of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The commit.
    pub commit: &'a str,
    /// The remote and reference that the GitSync follows, as one string.
    pub branch: &'a str,
    /// The desired objects of the commit.
    pub desired: &'a [Arc<Desired>],
    /// The cluster's state.
    pub observed: &'a Observed,
    /// Whether removed objects are deleted.
    pub prune: bool,
    /// Whether a user allowed all deletions of this commit.
    pub allows_prune: bool,
    /// The field managers whose fields are taken over when an object is adopted.
    pub former: &'a Appliers,
    /// The field managers whose fields are taken over in an object that an earlier version adopted.
    pub left: &'a Appliers,
    /// Whether fields of known appliers are taken over, too, if no tool manages the object.
    pub takes_over_known: bool,
}

/// An object that is not applied, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The object.
    pub key: Key,
    /// The reason.
    pub why: Why,
}

/// The reason why an object is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another GitSync manages the object.
    Claimed(String),
    /// Another GitSync of the same branch has yet to hand over the object.
    AwaitsHandover(String),
    /// The status still offers the object to GitSyncs of other agents.
    Offered,
    /// The object is being deleted.
    Terminating,
    /// A controller owns the object.
    Controlled,
    /// Another GitOps tool manages the object. The paths are fields that an apply would remove, for messages.
    Contested(Keeper, Vec<String>),
}

/// The plan for a commit.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Objects to apply, by stage.
    pub stages: BTreeMap<Stage, Vec<Step>>,
    /// Objects that match the commit.
    pub unchanged: Vec<Arc<Desired>>,
    /// Paused objects that this GitSync does not manage yet, with the ends of the pauses.
    pub paused: Vec<(Arc<Desired>, PauseEnd)>,
    /// Objects that cannot be applied now.
    pub refused: Vec<Refused>,
    /// The removed objects.
    pub leaving: Leaving,
    /// Whether a GitSync that other GitSyncs await is paused, or belongs to another owner. They must then plan again.
    pub leaves_syncs: bool,
    /// Whether the plan takes an object from a confined GitSync, or keeps one that such a GitSync does not know to be lost.
    /// The confined GitSync must then plan again.
    pub outranks: bool,
}

impl Plan {
    /// Whether objects are deleted after the applies. No object is deleted if an apply of the same commit failed or
    /// was refused, or if the inventory was rebuilt.
    pub fn may_prune(&self, applies: Applies) -> bool {
        !applies.failed && self.refused.is_empty() && !applies.rebuilt
    }

    /// Whether other GitSyncs have to plan or hand over first.
    pub(super) fn awaits_peers(&self) -> bool {
        self.refused.iter().any(|refused| matches!(refused.why, Why::AwaitsHandover(_)))
            || self.leaving.held.iter().any(|(_, why)| matches!(why, Held::Awaits(_)))
    }

    /// Whether a held object is one that another GitSync needs to read its repository. The other GitSync may stop using
    /// it.
    pub(super) fn awaits_readers(&self) -> bool {
        self.leaving.held.iter().any(|(_, why)| matches!(why, Held::Read(_)))
    }
}

/// The results of the applies that precede the deletions of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applies {
    /// An apply failed.
    pub failed: bool,
    /// The inventory was rebuilt from labels.
    pub rebuilt: bool,
}

/// Whether the object matches its last apply, so that no apply is necessary.
pub fn is_unchanged(desired: &Desired, entry: Option<&Entry>) -> bool {
    entry.is_some_and(|entry| entry.is_for(desired))
}

/// Plans a commit. Its objects are reserved for the GitSync of this view before another GitSync can plan to apply them.
pub fn plan(registry: &mut View<'_>, facts: &Facts<'_>) -> Plan {
    let Facts { commit, branch, desired, observed, .. } = *facts;
    let mut plan = Plan::default();
    plan_applies(registry, facts, &mut plan);
    plan.leaves_syncs = registry.leave_syncs(&left_alone(&plan));
    let desired = desired.iter().map(|d| &d.key).collect::<HashSet<_>>();
    // Without removed objects, the plan does not wait for other GitSyncs.
    let leaves = observed.inventory.0.keys().any(|key| !desired.contains(key));
    let pending = leaves.then(|| registry.sibling_pending(branch, commit)).flatten();
    let prune = match pending {
        _ if !facts.prune => Prune::Off,
        Some(pending) => Prune::Deferred(pending),
        None if facts.allows_prune => Prune::Allowed,
        None => Prune::Guarded,
    };
    let elsewhere = |key: &Key| registry.desired_elsewhere(key);
    let read_by = |key: &Key, going: &HashSet<Key>| registry.reader_of(key, going);
    let (own, inventory) = (registry.key(), &observed.inventory);
    plan.leaving = prune::decide(&own, &desired, inventory, &observed.terminating, &elsewhere, &read_by, prune);
    plan.outranks = registry.reserve(plan.stages.values().flatten().map(|step| step.desired.key.clone()));
    // After a restart, a confined GitSync may not know yet that it has lost one of these objects.
    plan.outranks |= registry.keep_outranked(plan.unchanged.iter().map(|desired| &desired.key));
    plan
}

/// Returns the objects that keep their state until a user or another owner acts.
fn left_alone(plan: &Plan) -> HashSet<&Key> {
    let is_left = |why: &Why| matches!(why, Why::Claimed(_) | Why::Contested(..) | Why::Controlled);
    let refused = plan.refused.iter().filter(|refused| is_left(&refused.why)).map(|refused| &refused.key);
    refused.chain(plan.paused.iter().map(|(desired, _)| &desired.key)).collect()
}

/// Plans objects of a commit that were planned as new but exist, by their observed state.
pub(super) fn plan_found(registry: &mut View<'_>, facts: &Facts<'_>) -> Plan {
    let mut plan = Plan::default();
    plan_applies(registry, facts, &mut plan);
    plan
}

/// Plans the applies of the desired objects, and the refusals.
fn plan_applies(registry: &mut View<'_>, facts: &Facts<'_>, plan: &mut Plan) {
    let mut sorted = facts.desired.iter().map(|d| (stage(&d.key), d)).collect::<Vec<(Stage, _)>>();
    sorted.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.key.cmp(&y.key)));
    let mut regained = Vec::new();
    for (stage, desired) in sorted {
        let key = &desired.key;
        let live = facts.observed.live.get(key);
        // An object that another GitSync took over does not match this GitSync's last apply.
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
            Some(Live { paused: Some(until), .. }) => {
                plan.paused.push((Arc::clone(desired), *until));
                continue;
            }
            None if facts.observed.kept.contains(key) => Expect::Ours,
            None => Expect::Absent,
            Some(live) if is_managed(facts, desired, live) && facts.observed.withdrawn.contains(key) => {
                Expect::Withdrawn { version: live.resource_version.clone(), uid: live.uid.clone() }
            }
            Some(live) if is_managed(facts, desired, live) => Expect::Ours,
            Some(live) => {
                let (version, managed_fields) = (live.resource_version.clone(), live.managed_fields.clone());
                if facts.observed.offers.contains(key) {
                    Expect::Offered { version, managed_fields }
                } else {
                    Expect::Version { version, managed_fields }
                }
            }
        };
        let appliers = appliers(facts, desired, live, &expect);
        plan.stages.entry(stage).or_default().push(Step { desired: Arc::clone(desired), expect, appliers });
    }
    registry.regain(&regained);
}

/// Returns the reason why an object is not applied.
fn refused(registry: &View<'_>, facts: &Facts<'_>, desired: &Desired, live: Option<&Live>) -> Option<Why> {
    let label = live.and_then(|live| live.label.as_deref());
    // A copied label alone does not show that the other GitSync applied the object.
    let proven = label.filter(|_| live.is_some_and(|live| live.applied && !live.controlled));
    if let Some(other) = proven.and_then(|label| registry.holder_of_other_agent(&desired.key, label)) {
        return Some(Why::Claimed(other));
    }
    // The watch may be ahead of the object that was read, or behind the status. Each change of the registry is a retry.
    let offer = proven.and_then(|label| registry.offers_of_other_agent(&desired.key, label));
    if let Some(other) = offer.filter(|_| !facts.observed.offers.contains(&desired.key)) {
        return Some(Why::Claimed(other.to_string()));
    }
    if facts.observed.offered.contains(&desired.key) {
        return Some(Why::Offered);
    }
    match registry.claim(&desired.key, label, facts.branch, facts.commit) {
        Claim::Held(other) => Some(Why::Claimed(other)),
        Claim::Undecided(other) => Some(Why::AwaitsHandover(other)),
        Claim::Free if live.is_some_and(|live| live.controlled) => Some(Why::Controlled),
        Claim::Free if live.is_some_and(|live| live.terminating) => Some(Why::Terminating),
        Claim::Free => contested(facts, desired, live),
    }
}

/// Returns the reason why an object that this GitSync does not manage yet is left to the tool that manages it.
fn contested(facts: &Facts<'_>, desired: &Desired, live: Option<&Live>) -> Option<Why> {
    let live = live.filter(|live| !is_managed(facts, desired, live))?;
    let keeper = facts.observed.contested.get(&desired.key)?;
    let removed = facts.former.and_known().would_remove(&live.managed_fields, desired);
    Some(Why::Contested(keeper.clone(), removed.unwrap_or_default()))
}

fn is_managed(facts: &Facts<'_>, desired: &Desired, live: &Live) -> bool {
    live.is_ours(desired) && facts.observed.inventory.0.contains_key(&desired.key)
}

/// Returns the field managers whose fields are taken over by an apply.
fn appliers(facts: &Facts<'_>, desired: &Desired, live: Option<&Live>, expect: &Expect) -> Appliers {
    let is_left = facts.takes_over_known && live.is_some() && !facts.observed.contested.contains_key(&desired.key);
    let some = match expect {
        Expect::Absent => return Appliers::default(),
        // An object that returns to its owner is not adopted again: fields that users have set since then stay.
        Expect::Ours | Expect::Withdrawn { .. } => facts.left,
        Expect::Version { .. } | Expect::Offered { .. } => facts.former,
    };
    if is_left { some.and_known() } else { some.clone() }
}

#[cfg(test)]
mod tests;
