//! What may be deleted: of a commit as a whole, and of an object as it is found right before its deletion.
//!
//! Invariant: nothing is deleted that the inventory does not list, that another GitSync desires, or that a guard holds.
//! Invariant: a guard is lifted by `mainstay.dev/allow-prune` with the full id of the commit, and by nothing else.
//!
//! Deliberately absent: the deletions.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::plan::{Facts, Plan, is_controlled};
use crate::api::names::{ALLOW_PRUNE, DISABLED, MANAGER, PRUNE, SYNC_LABEL};
use crate::managed::inventory::{Entry, uid_bytes};
use crate::managed::is_paused;
use crate::object::{Key, prune_order};

/// Share of the inventory that one commit may delete unasked, from [`MANY`] objects on.
const SHARE: usize = 2;
const MANY: usize = 10;
/// How many objects the message about a guard names.
const NAMED: usize = 5;
/// Why an object that left is kept while another GitSync of its branch has not planned the commit.
pub const AWAITS_SIBLINGS: &str = "waits for the other GitSyncs of this branch";
/// Why an object is kept of which nobody knows whether we created it.
const UNPROVEN: &str = "it carries our label, but nothing proves that Mainstay applied it (its managedFields were wiped \
    before its UID was noted, or somebody created it); mainstay.dev/allow-prune deletes it, without its label it is let go";

/// What may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prune {
    /// Nothing: `prune: false`.
    Off,
    /// Nothing yet: another GitSync of the same branch has not planned this commit.
    Deferred,
    /// What the guards allow.
    Guarded,
    /// Everything that left: the commit was named in `mainstay.dev/allow-prune`.
    Allowed,
}

impl Prune {
    /// What a GitSync may delete: as its spec says (`is_on`), while another one may still take something over
    /// (`siblings_pending`), and with the annotation for this commit (`is_allowed`).
    pub fn of(is_on: bool, siblings_pending: bool, is_allowed: bool) -> Self {
        if !is_on {
            Self::Off
        } else if siblings_pending {
            Self::Deferred
        } else if is_allowed {
            Self::Allowed
        } else {
            Self::Guarded
        }
    }
}

/// Why objects that left are not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing would be left.
    Everything,
    /// More than half would go.
    TooMany,
}

/// What becomes of an object that carries our label although nothing proves that it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproven {
    /// It is kept.
    Keep,
    /// It is deleted: somebody allowed that.
    Delete,
}

/// Whether an object that left may be deleted as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It may, as long as it stays as it was found.
    Allowed,
    /// It is being deleted already.
    UnderWay,
    /// It is somebody else's by now.
    NotOurs,
    /// It is kept, for a reason.
    Kept(&'static str),
}

/// Whether an object of the inventory that left the repository may be deleted. `entry` is what is remembered of it,
/// `label` what our objects carry.
pub fn may_delete(meta: &ObjectMeta, label: &str, entry: &Entry, unproven: Unproven, now: Timestamp) -> Deletion {
    let own = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL));
    if own.is_none_or(|own| own != label) || is_controlled(meta) {
        return Deletion::NotOurs;
    }
    if meta.deletion_timestamp.is_some() {
        return Deletion::UnderWay;
    }
    if meta.annotations.as_ref().and_then(|all| all.get(PRUNE)).is_some_and(|value| value == DISABLED) {
        return Deletion::Kept("mainstay.dev/prune: disabled");
    }
    if is_paused(meta, now) {
        return Deletion::Kept("mainstay.dev/reconcile: disabled");
    }
    // An object that we created, and whose UID nobody wrote down, is known by what we applied to it.
    let uid = meta.uid.as_deref().unwrap_or_default();
    let is_proven = entry.uid.is_some_and(|noted| noted == uid_bytes(uid)) || is_applied_by_us(meta);
    if !is_proven && unproven == Unproven::Keep {
        // Forgotten, it would carry our label for ever and nobody would know why.
        return Deletion::Kept(UNPROVEN);
    }
    Deletion::Allowed
}

fn is_applied_by_us(meta: &ObjectMeta) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|e| e.manager.as_deref() == Some(MANAGER) && e.operation.as_deref() == Some("Apply"))
}

/// Whether anything is deleted after an apply: not where something of the same commit `failed` or was refused, and not by
/// an inventory that was `rebuilt` from labels.
pub fn follows(plan: &Plan, failed: bool, rebuilt: bool) -> bool {
    !failed && plan.refused.is_empty() && !rebuilt
}

/// What the status says of the guard that holds the objects of a plan.
pub fn guard_text(plan: &Plan, commit: &str) -> Option<String> {
    let names = plan.held.iter().take(NAMED).map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", ");
    let what = match plan.guard? {
        Guard::Everything => "the commit holds no objects; nothing is deleted".to_owned(),
        Guard::TooMany => format!("{} objects would be deleted, more than half of all; they are kept", plan.held.len()),
    };
    let more = if plan.held.len() > NAMED { ", …" } else { "" };
    Some(format!("{what} ({names}{more}). To delete them, annotate the GitSync with {ALLOW_PRUNE}={commit}"))
}

/// Decides for every object that left whether it is deleted, handed over or held.
pub(super) fn plan(facts: &Facts<'_>, plan: &mut Plan) {
    let desired = facts.desired.iter().map(|d| &d.key).collect::<HashSet<_>>();
    let mut leaving = facts.inventory.0.keys().filter(|key| !desired.contains(key)).cloned().collect::<Vec<_>>();
    leaving.sort_by(|a, b| prune_order(a).cmp(&prune_order(b)).then_with(|| b.cmp(a)));
    let (handed, leaving): (Vec<_>, Vec<_>) = leaving.into_iter().partition(|key| (facts.desired_elsewhere)(key));
    plan.handed_over = handed;
    if leaving.is_empty() {
        return;
    }
    let guard = if desired.is_empty() {
        Some(Guard::Everything)
    } else if leaving.len() >= MANY && leaving.len() * SHARE > facts.inventory.0.len() {
        Some(Guard::TooMany)
    } else {
        None
    };
    match (facts.prune, guard) {
        (Prune::Off, _) => plan.held = leaving.into_iter().map(|key| (key, "prune is off")).collect(),
        (Prune::Deferred, _) => {
            plan.held = leaving.into_iter().map(|key| (key, AWAITS_SIBLINGS)).collect();
        }
        (Prune::Allowed, _) => plan.prune = leaving,
        (Prune::Guarded, Some(guard)) => {
            plan.guard = Some(guard);
            plan.held = leaving.into_iter().map(|key| (key, "held by a guard")).collect();
        }
        (Prune::Guarded, None) => {
            for key in leaving {
                match holds_much(&key) {
                    Some(why) => plan.held.push((key, why)),
                    None => plan.prune.push(key),
                }
            }
        }
    }
}

/// Kinds whose deletion takes other things with it that no repository can bring back.
pub fn holds_much(key: &Key) -> Option<&'static str> {
    match (&*key.group, &*key.kind) {
        ("", "Namespace") => Some("deleting a Namespace deletes everything in it"),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => Some("deleting it deletes data"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("deleting it deletes every object of its kind"),
        _ => None,
    }
}
