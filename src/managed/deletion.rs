//! Whether an object that left may be deleted, as it is found right before its deletion.
//!
//! Deliberately absent: which objects of a commit left, and the guards for the commit as a whole (`gitsync`).

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::inventory::{Entry, uid_bytes};
use super::verdict::{is_controlled, is_paused};
use crate::api::names::{DELETE_OBJECTS, KEEPS, MANAGER, ON_DELETE, SYNC_LABEL};
use crate::cluster::Terminating;
use crate::object::Key;

/// Why an object that left is kept as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// This annotation, with its value, keeps it.
    Annotation(&'static str),
    /// It is under break glass.
    Paused,
    /// Nobody knows whether we created it.
    Unproven,
    /// It is a GitSync whose objects go with it: the guards of none of them have been asked.
    TakesObjects,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation(annotation) => annotation,
            Self::Paused => "mainstay.dev/reconcile: disabled",
            Self::Unproven => {
                "it carries our label, but nothing proves that Mainstay applied it (its managedFields were wiped before its \
                 UID was noted, or somebody created it); without its label it is let go"
            }
            Self::TakesObjects => {
                "deleting it deletes everything that it has applied (mainstay.dev/on-delete: prune)"
            }
        })
    }
}

/// Whether somebody allowed, for just this commit, to delete what a guard would hold (`mainstay.dev/allow-prune`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nobody did.
    Unasked,
    /// Somebody did.
    Allowed,
}

/// Whether an object that left may be deleted as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It may, as long as it stays as it was found.
    Allowed,
    /// It is being deleted already.
    UnderWay(Terminating),
    /// It is somebody else's by now.
    NotOurs,
    /// It is kept, for a reason.
    Kept(Kept),
}

/// Whether an object of the inventory that left the repository may be deleted. `entry` is what is remembered of it,
/// `label` what our objects carry.
pub fn may_delete(
    key: &Key,
    meta: &ObjectMeta,
    label: &str,
    entry: &Entry,
    permission: Permission,
    now: Timestamp,
) -> Deletion {
    let own = meta.labels.as_ref().and_then(|labels| labels.get(SYNC_LABEL));
    if own.is_none_or(|own| own != label) || is_controlled(meta) {
        return Deletion::NotOurs;
    }
    if let Some(terminating) = Terminating::of(meta) {
        return Deletion::UnderWay(terminating);
    }
    if let Some(annotation) = kept_by(meta) {
        return Deletion::Kept(Kept::Annotation(annotation));
    }
    if is_paused(meta, now) {
        return Deletion::Kept(Kept::Paused);
    }
    // An object that we created, and whose UID nobody wrote down, is known by what we applied to it.
    let uid = meta.uid.as_deref().unwrap_or_default();
    let is_proven = entry.uid.is_some_and(|noted| noted == uid_bytes(uid)) || is_applied_by_us(meta);
    if permission == Permission::Allowed {
        return Deletion::Allowed;
    }
    if !is_proven {
        // Forgotten, it would carry our label for ever and nobody would know why.
        return Deletion::Kept(Kept::Unproven);
    }
    if key.is("mainstay.dev", "GitSync") && deletes_objects(meta) {
        return Deletion::Kept(Kept::TakesObjects);
    }
    Deletion::Allowed
}

/// Whether the objects of the GitSync with these metadata are to be deleted with it.
pub fn deletes_objects(sync: &ObjectMeta) -> bool {
    sync.annotations.as_ref().and_then(|all| all.get(ON_DELETE)).is_some_and(|value| value == DELETE_OBJECTS)
}

/// The annotation that keeps an object from being deleted. As Flux does, a label of that name counts too, and capitals do
/// not: what is kept by mistake is told, what is deleted by mistake is gone.
fn kept_by(meta: &ObjectMeta) -> Option<&'static str> {
    KEEPS.into_iter().find(|keeps| {
        let (name, value) = keeps.split_once(": ").unwrap_or((keeps, ""));
        let mut found = [&meta.annotations, &meta.labels].into_iter().flatten().filter_map(|all| all.get(name));
        found.any(|all| all.split(',').any(|one| one.trim().eq_ignore_ascii_case(value)))
    })
}

fn is_applied_by_us(meta: &ObjectMeta) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|e| e.manager.as_deref() == Some(MANAGER) && e.operation.as_deref() == Some("Apply"))
}
