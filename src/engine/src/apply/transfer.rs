//! Handover of objects between Mainstay and a controller of another system, without a deletion.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Version, Writer};
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
