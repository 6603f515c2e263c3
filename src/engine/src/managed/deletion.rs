//! Decides whether a removed object may be deleted, from its state right before the deletion.
//!
//! Invariant: no object is deleted without proof that Mainstay applied it. The proof is Mainstay's entry in
//! `managedFields`, or the UID in the response to an apply. A label is no proof, because controllers copy labels.
//!
//! Not here: the removed objects of a commit, and the guards of a whole commit (`gitsync`).

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::inventory::{Entry, uid_bytes};
use super::verdict::{is_controlled, is_paused};
use mainstay_api::names::{DELETE_OBJECTS, KEEPS, MANAGER, ON_DELETE, SYNC_LABEL};
use mainstay_cluster::Terminating;
use mainstay_object::Key;

/// The reason for keeping a removed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// This annotation, with its value, protects the object.
    Annotation(&'static str),
    /// The object is paused.
    Paused,
    /// The GitSync of the object is suspended.
    Suspended,
    /// It is unknown whether Mainstay created the object.
    Unproven,
    /// The object is a GitSync whose objects are deleted with it, and no user has approved that.
    TakesObjects,
    /// The object belongs to the running Mainstay.
    Installed,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation(annotation) => annotation,
            Self::Paused => "mainstay.dev/reconcile: disabled",
            Self::Suspended => "the GitSync is suspended",
            Self::Unproven => {
                "it carries Mainstay's label, but nothing proves that Mainstay applied it (its managedFields were \
                 removed before its UID was recorded, or another client created it), so it is not deleted; remove its \
                 label to have Mainstay release it"
            }
            Self::TakesObjects => "deleting it deletes everything that it has applied (mainstay.dev/on-delete: prune)",
            Self::Installed => "it is part of the running installation of Mainstay; deleting it may stop the agent",
        })
    }
}

/// Whether a user permitted this commit to delete objects that a guard would hold (`mainstay.dev/allow-prune`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// No permission.
    Unasked,
    /// Permission for this commit.
    Allowed,
}

/// The decision about a removed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object may be deleted while it stays unchanged.
    Allowed,
    /// The object is already being deleted.
    UnderWay(Terminating),
    /// The object belongs to another owner now.
    NotOurs,
    /// The object is kept for this reason.
    Kept(Kept),
}

/// Decides whether a removed object may be deleted. `entry` is its inventory entry, and `label` is the label of the
/// owner's objects.
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
    // Mainstay may have created the object without recording the UID. Then the entry in `managedFields` is the proof.
    if !is_noted(entry, meta.uid.as_deref().unwrap_or_default()) && !is_applied_by_us(meta) {
        // If the inventory dropped the object, it would keep Mainstay's label forever without a visible reason.
        return Deletion::Kept(Kept::Unproven);
    }
    if permission == Permission::Allowed {
        return Deletion::Allowed;
    }
    if key.is("mainstay.dev", "GitSync") && deletes_objects(meta) {
        return Deletion::Kept(Kept::TakesObjects);
    }
    Deletion::Allowed
}

/// Decides whether a child that its Function no longer wants may be deleted. `function` and `uid` are the UIDs of the
/// Function and of the child. As for the garbage collector, the controller reference is enough, so copies of children
/// are deleted, too.
pub(crate) fn may_delete_child(meta: &ObjectMeta, function: &str, uid: &str, now: Timestamp) -> Deletion {
    let mut owners = meta.owner_references.iter().flatten();
    if meta.uid.as_deref() != Some(uid) || !owners.any(|one| one.controller == Some(true) && one.uid == function) {
        Deletion::NotOurs
    } else if let Some(terminating) = Terminating::of(meta) {
        Deletion::UnderWay(terminating)
    } else if is_paused(meta, now) {
        Deletion::Kept(Kept::Paused)
    } else {
        Deletion::Allowed
    }
}

/// Whether the objects of the GitSync with this metadata are deleted with it.
pub fn deletes_objects(sync: &ObjectMeta) -> bool {
    sync.annotations.as_ref().and_then(|all| all.get(ON_DELETE)).is_some_and(|value| value == DELETE_OBJECTS)
}

/// Returns the data or objects that a deletion would destroy and that no repository can restore.
pub fn takes_much(key: &Key) -> Option<&'static str> {
    match (&*key.group, &*key.kind) {
        ("", "Namespace") => Some("deleting a Namespace deletes everything in it"),
        ("", "PersistentVolume" | "PersistentVolumeClaim") => Some("deleting it deletes data"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Some("deleting it deletes every object of its kind"),
        _ => None,
    }
}

/// Returns the annotation that protects an object from deletion. As in Flux, a label of that name has the same effect,
/// in any case: an object that is kept by mistake is reported, but a deleted one is lost.
pub(super) fn kept_by(meta: &ObjectMeta) -> Option<&'static str> {
    KEEPS.into_iter().find(|keeps| {
        let (name, value) = keeps.split_once(": ").unwrap_or((keeps, ""));
        let mut found = [&meta.annotations, &meta.labels].into_iter().flatten().filter_map(|all| all.get(name));
        found.any(|all| all.split(',').any(|one| one.trim().eq_ignore_ascii_case(value)))
    })
}

/// Whether the inventory has this UID, from the response to an apply.
pub(crate) fn is_noted(entry: &Entry, uid: &str) -> bool {
    entry.uid.is_some_and(|noted| noted == uid_bytes(uid))
}

/// Whether an object has Mainstay's entry in its `managedFields`.
pub fn is_applied_by_us(meta: &ObjectMeta) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|e| e.manager.as_deref() == Some(MANAGER) && e.operation.as_deref() == Some("Apply"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns random metadata with Mainstay's label, of an object with `uid`.
    fn any_meta(random: &mut fastrand::Rng, uid: &str) -> ObjectMeta {
        let mut meta = json!({"name": "a", "uid": uid, "labels": {SYNC_LABEL: "shop.demo"}});
        let managers = [("mainstay", "Update"), ("kubectl", "Apply"), ("mainstay", "Apply"), ("reflector", "Update")];
        let managers = managers.into_iter().filter(|_| random.u8(..3) == 0);
        let fields = managers.map(|(manager, operation)| json!({"manager": manager, "operation": operation}));
        meta["managedFields"] = fields.collect();
        for (name, value) in [(ON_DELETE, DELETE_OBJECTS), ("mainstay.dev/prune", "disabled"), ("a", "b")] {
            if random.u8(..5) == 0 {
                meta["annotations"][name] = value.into();
            }
        }
        if random.u8(..5) == 0 {
            let controller = random.bool();
            meta["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": controller}]);
        }
        serde_json::from_value(meta).unwrap()
    }

    #[test]
    fn never_deletes_without_our_entry_or_a_recorded_uid() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut deleted, mut children, mut unproven) = (0, 0, 0);
        for step in 0..20_000 {
            let (uid, noted) = (random.choice(["one", "two"]).unwrap(), random.choice(["one", "two", ""]).unwrap());
            let entry = Entry { uid: (!noted.is_empty()).then(|| uid_bytes(noted)), ..Entry::default() };
            let meta = any_meta(&mut random, uid);
            let kind = random.choice(["ConfigMap", "Secret", "GitSync"]).unwrap();
            let group = if kind == "GitSync" { "mainstay.dev" } else { "" };
            let key = Key::new(group, kind, Some("shop"), "a");
            let permission = random.choice([Permission::Unasked, Permission::Allowed]).unwrap();
            let decided = may_delete(&key, &meta, "shop.demo", &entry, permission, Timestamp::UNIX_EPOCH);
            let has_our_entry = meta.managed_fields.iter().flatten().any(|entry| {
                entry.manager.as_deref() == Some("mainstay") && entry.operation.as_deref() == Some("Apply")
            });
            let is_proven = has_our_entry || uid == noted;
            assert!(decided != Deletion::Allowed || is_proven, "seed {seed}, step {step}: {meta:?}, {entry:?}");
            let decided_child = may_delete_child(&meta, "x", uid, Timestamp::UNIX_EPOCH);
            assert_eq!(decided_child == Deletion::Allowed, is_controlled(&meta), "seed {seed}, step {step}: {meta:?}");
            assert_ne!(may_delete_child(&meta, "y", uid, Timestamp::UNIX_EPOCH), Deletion::Allowed, "another's");
            children += usize::from(decided_child == Deletion::Allowed);
            deleted += usize::from(decided == Deletion::Allowed);
            unproven += usize::from(!is_proven);
        }
        assert!(deleted > 1000 && unproven > 1000, "seed {seed}: {deleted} deleted, {unproven} unproven");
        assert!(children > 100, "seed {seed}: {children} children deleted");
    }
}
