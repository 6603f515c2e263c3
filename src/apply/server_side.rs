//! One server-side apply: its answer becomes the last apply of the object.

use std::sync::Arc;

use serde_json::Value;

use super::Writer;
use crate::api::names::MANAGER;
use crate::cluster::{Apply, Error};
use crate::managed::desired::Desired;
use crate::managed::object::Answered;
use crate::managed::ownership;
use crate::managed::verdict::resource_version;
use crate::object::Digest;

impl Writer {
    /// Applies, and takes our paths out of `before-first-apply`.
    pub(super) async fn apply_now(
        &self,
        desired: &Arc<Desired>,
        body: &Value,
    ) -> Result<(Value, Option<Digest>), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut answer = self.cluster().apply(&desired.kind, namespace, name, body, Apply::forced(MANAGER)).await?;
        if let Some(entries) = ownership::without_first_apply_echo(&answer) {
            let version = resource_version(&answer).to_owned();
            match self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries).await {
                Ok(rewritten) => answer = rewritten,
                // Someone wrote meanwhile: the next apply finds the entry again.
                Err(error) if error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        // Read without the store's lock: others wait for that.
        let answered = Answered::of(desired, &answer, body);
        let digest = answered.last_applied.digest;
        self.store().verify(desired, answered);
        Ok((answer, digest))
    }

    /// Writes `managedFields`, if the object still has this version; the version that it has then.
    pub(super) async fn rewrite(&self, desired: &Desired, version: &str, entries: &Value) -> Result<String, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let answer = self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, version, entries).await?;
        Ok(resource_version(&answer).to_owned())
    }
}
