//! Deletes objects that are no longer desired, and releases those that stay.
//!
//! Invariant: an object is deleted only in the state that [`may_delete`] or [`may_delete_child`] checked. No other
//! write to the object is in flight at that time.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::Writer;
use super::delete::{Deleted, Version};
use crate::managed::deletion::{Deletion, Kept, Permission, may_delete, may_delete_child};
use crate::managed::installation::Live;
use crate::managed::inventory::{Entry, Inventory};
use crate::managed::released;
use mainstay_api::names::SYNC_LABEL;
use mainstay_cluster::{Error, Kind, Part, Persistence, Removal, Terminating};
use mainstay_object::{Key, Owner, prune_order};

/// Maximum number of concurrent deletions or releases.
const AT_ONCE: usize = 16;
/// Retries of a release after a conflict.
const TRIES: usize = 3;

/// The outcome of a prune.
#[derive(Debug)]
pub enum Pruned {
    /// The object is gone or no longer belongs to the owner, so it is removed from the inventory.
    Gone {
        /// Whether this prune deleted the object.
        deleted: bool,
    },
    /// The object is being deleted.
    Terminating {
        /// Whether this prune requested the deletion; otherwise it was requested earlier.
        requested: bool,
        /// The finalizers or dependents that block the deletion.
        awaits: Terminating,
    },
    /// The object stays, with the reason.
    Kept(Kept),
    /// Another owner now desires the object, so it stays.
    Wanted,
    /// The deletion failed.
    Failed(Error),
}

impl Writer {
    /// Prunes objects in reverse apply order; `done` receives each outcome. `label` is the owner's label value.
    /// `stays` is called right before each deletion, and returns the reason not to delete the object: another owner may have
    /// started to desire it after the plan was made.
    pub async fn prune(
        &self,
        label: &str,
        leaving: Vec<(Key, Entry)>,
        permission: Permission,
        stays: impl Fn(&Key) -> Option<Pruned>,
        mut done: impl FnMut(Key, Pruned),
    ) {
        let stays = &stays;
        let mut leaving = leaving.into_iter().peekable();
        while let Some(first) = leaving.next() {
            let order = prune_order(&first.0);
            let mut together = vec![first];
            while let Some(next) = leaving.next_if(|(key, _)| prune_order(key) == order) {
                together.push(next);
            }
            let deletions = stream::iter(together).map(|(key, entry)| async move {
                // A revert in flight must not recreate the object after its deletion.
                let _lock = self.lock_object(&key).await;
                let pruned = self.prune_now(label, &key, &entry, permission, stays).await;
                (key, pruned.unwrap_or_else(Pruned::Failed))
            });
            let mut deletions = deletions.buffer_unordered(AT_ONCE);
            while let Some((key, pruned)) = deletions.next().await {
                done(key, pruned);
            }
        }
    }

    async fn prune_now(
        &self,
        label: &str,
        key: &Key,
        entry: &Entry,
        permission: Permission,
        stays: &impl Fn(&Key) -> Option<Pruned>,
    ) -> Result<Pruned, Error> {
        // A kind that is not served any more has no objects.
        let Some(kind) = self.kind_of(key, entry).await? else { return Ok(Pruned::Gone { deleted: false }) };
        // Each check asks again, because another owner may have started to desire the object.
        let judge = |live: Live<'_>| match self.may_delete(key, live, label, entry, permission) {
            Deletion::Allowed => stays(key).map_or(Ok(()), Err),
            Deletion::UnderWay(awaits) => Err(Pruned::Terminating { requested: false, awaits }),
            Deletion::NotOurs => Err(Pruned::Gone { deleted: false }),
            Deletion::Kept(why) => Err(Pruned::Kept(why)),
        };
        let deleted = if self.installation().asks_for(key) {
            let judge_whole = |live: &Value| {
                let meta = live.get("metadata").cloned().unwrap_or_default();
                match serde_json::from_value::<ObjectMeta>(meta) {
                    Ok(meta) => judge(Live::Whole(&meta, live)),
                    // Metadata that cannot be parsed is no proof of ownership.
                    Err(_) => Err(Pruned::Kept(Kept::Unproven)),
                }
            };
            without_found(self.delete_as_found(&kind, key, None, judge_whole).await?)
        } else {
            without_found(self.delete_as_found(&kind, key, None, |meta| judge(Live::Metadata(meta))).await?)
        };
        Ok(match deleted {
            Deleted::Absent => Pruned::Gone { deleted: false },
            Deleted::Kept(pruned) => pruned,
            Deleted::Done { removal: Removal::Terminating(awaits), .. } => {
                Pruned::Terminating { requested: true, awaits }
            }
            Deleted::Done { .. } => Pruned::Gone { deleted: true },
        })
    }

    /// Whether an object of the inventory may be deleted in its live state. Objects of this installation of Mainstay
    /// are kept.
    pub fn may_delete(
        &self,
        key: &Key,
        live: Live<'_>,
        label: &str,
        entry: &Entry,
        permission: Permission,
    ) -> Deletion {
        let (Live::Metadata(meta) | Live::Whole(meta, _)) = live;
        let deletion = may_delete(key, meta, label, entry, permission, self.now());
        self.installation().spare(deletion, key, live, permission)
    }

    /// Deletes a child of a Function and forgets it. The child must still have this UID; `function` is the UID of the
    /// Function. `judged` is the version that the watch showed; the child is read only if it has changed since then.
    /// Returns the reason if the child is kept.
    pub async fn delete_child(
        &self,
        (owner, function): (&Owner, &str),
        kind: &Kind,
        key: &Key,
        uid: &str,
        judged: Option<Version>,
    ) -> Result<Option<Kept>, Error> {
        self.store().leave(owner, key);
        let _lock = self.lock_object(key).await;
        let judge = |meta: &ObjectMeta| match may_delete_child(meta, function, uid, self.now()) {
            Deletion::Allowed => Ok(()),
            Deletion::UnderWay(_) | Deletion::NotOurs => Err(None),
            Deletion::Kept(why) => Err(Some(why)),
        };
        let deleted = self.delete_as_found(kind, key, judged, judge).await?;
        self.store().remove(owner, key);
        Ok(if let Deleted::Kept(why) = deleted { why } else { None })
    }

    /// Releases objects: removes the label and Mainstay's field ownership, and changes no other field. `done` receives
    /// each outcome.
    pub async fn release(
        &self,
        label: &str,
        staying: Vec<(Key, Entry)>,
        mut done: impl FnMut(&Key, Result<(), Error>),
    ) {
        let releases = stream::iter(staying).map(|(key, entry)| async move {
            let released = self.release_now(label, &key, &entry).await;
            (key, released)
        });
        let mut releases = releases.buffer_unordered(AT_ONCE);
        while let Some((key, released)) = releases.next().await {
            done(&key, released);
        }
    }

    async fn release_now(&self, label: &str, key: &Key, entry: &Entry) -> Result<(), Error> {
        let _lock = self.lock_object(key).await;
        let Some(kind) = self.kind_of(key, entry).await? else { return Ok(()) };
        let namespace = key.namespace.as_deref();
        let mut tries = 0;
        loop {
            let Some(meta) = self.cluster().get_metadata(&kind, namespace, &key.name).await? else { return Ok(()) };
            let labels = meta.labels.as_ref();
            if labels.and_then(|labels| labels.get(SYNC_LABEL)).is_none_or(|value| value != label) {
                return Ok(());
            }
            let fields = serde_json::to_value(meta.managed_fields.unwrap_or_default()).unwrap_or_default();
            let pointer = SYNC_LABEL.replace('~', "~0").replace('/', "~1");
            let operations = json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
                {"op": "replace", "path": "/metadata/managedFields", "value": released(&fields)},
                {"op": "remove", "path": format!("/metadata/labels/{pointer}")},
            ]);
            match self
                .cluster()
                .patch_json(&kind, namespace, &key.name, Part::Main, &operations, Persistence::Kept)
                .await
            {
                Err(error) if error.is_conflict() && tries < TRIES => tries += 1,
                Err(error) if error.is_not_found() => return Ok(()),
                other => return other.map(drop),
            }
        }
    }

    /// Returns the objects that carry the label, including those that cannot be read.
    pub async fn still_labelled(&self, label: &str, inventory: &Inventory, keys: &[Key]) -> HashSet<Key> {
        let listed = keys.iter().filter_map(|key| Some((key.clone(), inventory.0.get(key)?.clone())));
        let looks = stream::iter(listed.collect::<Vec<_>>()).map(|(key, entry)| async move {
            let carries = self.carries(label, &key, &entry).await;
            (key, carries.unwrap_or(true))
        });
        let looked = looks.buffer_unordered(AT_ONCE);
        looked.filter_map(|(key, is_ours)| std::future::ready(is_ours.then_some(key))).collect().await
    }

    async fn carries(&self, label: &str, key: &Key, entry: &Entry) -> Result<bool, Error> {
        let Some(kind) = self.kind_of(key, entry).await? else { return Ok(false) };
        let meta = self.cluster().get_metadata(&kind, key.namespace.as_deref(), &key.name).await?;
        Ok(meta.and_then(|meta| meta.labels?.remove(SYNC_LABEL)).as_deref() == Some(label))
    }

    pub(super) async fn kind_of(&self, key: &Key, entry: &Entry) -> Result<Option<Arc<Kind>>, Error> {
        let version =
            if key.group.is_empty() { entry.version.to_string() } else { format!("{}/{}", key.group, entry.version) };
        match self.cluster().kind(&version, &key.kind).await? {
            Some(kind) => Ok(Some(kind)),
            None => self.cluster().preferred_kind(&key.group, &key.kind).await,
        }
    }
}

fn without_found<F, K>(deleted: Deleted<F, K>) -> Deleted<(), K> {
    match deleted {
        Deleted::Absent => Deleted::Absent,
        Deleted::Kept(why) => Deleted::Kept(why),
        Deleted::Done { removal, .. } => Deleted::Done { removal, found: None },
    }
}
