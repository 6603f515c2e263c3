//! Objects that change hands: between us and a controller of another system, without being deleted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Version, Writer};
use mainstay_cluster::{Error, Kind, Part};
use mainstay_object::{Key, Owner};

impl Writer {
    /// Writes the merge patch by which an object changes hands, if it is still as it was found; what it is then. From now on it is
    /// not kept for its owner, who applies it again where it is wanted.
    ///
    /// # Errors
    /// A conflict, if it has been written since it was found.
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

    /// Deletes an object of another system that is needed no longer, if it is still as it was found; whether it was.
    ///
    /// # Errors
    /// Whatever the server says but that it has changed or is gone.
    pub async fn delete_found(&self, kind: &Kind, key: &Key, found: Version) -> Result<bool, Error> {
        let deleted = self.delete_unowned(kind, key, Some(found), |_| Err(())).await?;
        Ok(!matches!(deleted, super::Deleted::Kept(())))
    }
}
