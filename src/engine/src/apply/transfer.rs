//! Handover of objects between Mainstay and a controller of another system, or another agent, without a deletion.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Version, Writer};
use crate::managed::desired::Desired;
use crate::managed::ownership;
use crate::managed::verdict::resource_version;
use mainstay_cluster::{Error, Kind, Part};
use mainstay_object::{Key, Owner};

impl Writer {
    /// Removes an owner with all its objects, because another agent takes it over. Waits for reverts in flight: each
    /// revert looks into the store once it has the lock of its object, so that none follows. The request of an attempt
    /// that was cancelled is not waited for.
    pub async fn leave_to_other_agent(&self, owner: &Owner) {
        let keys: HashSet<Key> = self.store().objects.of(owner).map(|(key, _)| key.clone()).collect();
        self.forget_owner(owner);
        for key in self.objects_in_use().into_iter().filter(|key| keys.contains(key)) {
            drop(self.lock_object(&key).await);
        }
    }

    /// Transfers an object by a merge patch and returns it. From then on, `owner` does not enforce the object. If
    /// `owner` still desires the object, the next apply takes it back.
    ///
    /// # Errors
    /// A conflict, if the object changed since `found`.
    pub async fn transfer(
        &self,
        owner: &Owner,
        kind: &Arc<Kind>,
        key: &Key,
        found: &Version,
        mut patch: Value,
    ) -> Result<Value, Error> {
        self.store().leave(owner, key);
        let _lock = self.lock_object(key).await;
        patch["metadata"]["resourceVersion"] = json!(found.resource_version);
        let answer = self.cluster().patch_merge(kind, key.namespace.as_deref(), &key.name, Part::Main, &patch).await?;
        self.store().remove(owner, key);
        Ok(answer)
    }

    /// Changes the resource version of an object whose offer was withdrawn, and returns the new one. An apply of equal
    /// content does not change it, so another agent could still take the object at the version that it read while the
    /// object was offered. Only the ownership of the label is given up, which the next apply claims again: the label
    /// itself stays, so that no other GitSync takes the object in between.
    ///
    /// # Errors
    /// A conflict, if the object changed since `version`.
    pub(super) async fn change_version(&self, desired: &Desired, version: &str) -> Result<String, Error> {
        let live = self.read(desired).await?;
        // Without the ownership, the apply claims it and thus changes the version.
        match live.as_ref().and_then(ownership::without_label) {
            Some(entries) => Ok(resource_version(&self.rewrite(desired, version, &entries).await?).to_owned()),
            None => Ok(version.to_owned()),
        }
    }

    /// Deletes an obsolete object of another system if it still has the version `found`. Returns whether it had that
    /// version.
    ///
    /// # Errors
    /// Any error except that the object changed or is gone.
    pub async fn delete_found(&self, kind: &Kind, key: &Key, found: Version) -> Result<bool, Error> {
        let deleted = self.delete_unowned(kind, key, Some(found), |_| Err(())).await?;
        Ok(!matches!(deleted, super::Deleted::Kept(())))
    }
}
