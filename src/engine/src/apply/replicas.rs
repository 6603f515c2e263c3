//! Handover of a replica count between Mainstay and an autoscaler.
//!
//! An apply that omits the count while Mainstay is its only owner resets it to 1. A second field manager therefore
//! takes ownership first and keeps it until the autoscaler writes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Writer;
use super::ignored::GivenUp;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::fields::{self, REPLICAS};
use crate::managed::verdict::resource_version;
use mainstay_api::names::HANDOVER_MANAGER;
use mainstay_cluster::{Apply, Error, Kind};
use mainstay_object::Key;

impl Writer {
    /// Omits `spec.replicas` from the body of an autoscaled workload and keeps the live count. Also keeps a count that
    /// was removed from the manifest, for a later autoscaler. Scales up a workload that is at 0 if its autoscaler would
    /// not. Returns the versions if the count was handed over. If `is_fenced`, writes only at the version that was read.
    pub(super) async fn settle_replicas(
        &self,
        desired: &Desired,
        body: &mut Value,
        is_fenced: bool,
    ) -> Result<Option<GivenUp>, Error> {
        self.know_autoscalers().await;
        if desired.sets_replicas(body) {
            if !self.store().is_autoscaled(&desired.key) {
                return Ok(None);
            }
            without_replicas(body);
        } else if desired.ignores_replicas() || !self.store().may_lose_count(&desired.key) {
            return Ok(None);
        }
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(None) };
        if !self.store().keeps_count(&desired.key, &live) {
            return Ok(None);
        }
        let at = is_fenced.then(|| resource_version(&live));
        let woken = self.store().woken(desired, &live);
        let owners = || fields::entries(&live).filter(|entry| fields::owns(entry.fields, &REPLICAS));
        // This apply may take over fields of `kubectl` and former appliers. The count would then be removed with them.
        let is_kept = owners().any(|entry| entry.manager == HANDOVER_MANAGER || entry.subresource == "scale");
        if let Some(count) = woken {
            let how = Apply::forced(HANDOVER_MANAGER);
            self.apply_replicas(&desired.kind, &desired.key, &json!(count), how, at).await?;
            return Ok(None);
        }
        if owners().next().is_none() || is_kept {
            return Ok(None);
        }
        let count = live.pointer("/spec/replicas").cloned().unwrap_or(json!(1));
        let how = Apply::unforced(HANDOVER_MANAGER);
        let answer = self.apply_replicas(&desired.kind, &desired.key, &count, how, at).await?;
        let version = |object: &Value| resource_version(object).to_owned();
        Ok(Some(GivenUp { before: version(&live), rewritten: version(&live), after: version(&answer) }))
    }

    /// Makes the handover manager a co-owner of the live count. Fails with a conflict if the count changed.
    pub async fn hand_over_replicas(&self, kind: &Arc<Kind>, key: &Key, live: &Value) -> Result<(), Error> {
        let _lock = self.lock_object(key).await;
        self.apply_replicas(kind, key, live, Apply::unforced(HANDOVER_MANAGER), None).await.map(drop)
    }

    /// Applies a replica count, at the version `at` if there is one.
    async fn apply_replicas(
        &self,
        kind: &Arc<Kind>,
        key: &Key,
        count: &Value,
        how: Apply<'_>,
        at: Option<&str>,
    ) -> Result<Value, Error> {
        let (namespace, name) = (key.namespace.as_deref(), &*key.name);
        let mut body = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": count},
        });
        if let Some(version) = at {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        self.cluster().apply(kind, namespace, name, &body, how).await
    }
}
