//! Handover of objects without a deletion: to or from a controller of another system, or to the agent of another shard.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Version, Writer};
use crate::managed::desired::Desired;
use crate::managed::ownership;
use crate::managed::verdict::{break_glass_of, controller, is_terminating, resource_version, uid};
use mainstay_api::names::SYNC_LABEL;
use mainstay_cluster::{Error, Kind, Part};
use mainstay_object::{Key, Owner};

/// Retries of a change of the version after a conflict.
const WRITTEN_MEANWHILE: usize = 2;

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
    /// itself stays, so that no other GitSync takes the object in between. The object `found` may have a later version
    /// than `version` if it still belongs to its owner: controllers may write it all the time.
    ///
    /// # Errors
    /// A conflict, if another owner has taken the object since `version`.
    pub(super) async fn change_version(&self, desired: &Desired, version: &str, found: &str) -> Result<String, Error> {
        let (mut version, mut conflicts) = (version.to_owned(), 0);
        loop {
            let live = self.read(desired).await?;
            let is_same = live.as_ref().is_some_and(|live| uid(live) == found && self.is_still_of(desired, live));
            if let Some(live) = live.as_ref().filter(|_| is_same) {
                resource_version(live).clone_into(&mut version);
            }
            // Without the ownership, the apply claims it and thus changes the version.
            let Some(entries) = live.as_ref().and_then(ownership::without_label) else { return Ok(version) };
            match self.rewrite(desired, &version, &entries).await {
                Err(error) if error.is_conflict() && is_same && conflicts < WRITTEN_MEANWHILE => conflicts += 1,
                rewritten => return rewritten.map(|rewritten| resource_version(&rewritten).to_owned()),
            }
        }
    }

    /// Whether an object still carries the label of its owner, and may be applied.
    fn is_still_of(&self, desired: &Desired, live: &Value) -> bool {
        let label = live.pointer("/metadata/labels").and_then(|labels| labels.get(SYNC_LABEL)?.as_str());
        let is_ours = label.is_some() && label == desired.label() && controller(live).is_none();
        is_ours && !is_terminating(live) && break_glass_of(live, self.now()).is_none()
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
