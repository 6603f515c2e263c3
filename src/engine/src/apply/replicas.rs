//! The replica count of a workload, and who owns it: us, or an autoscaler.
//!
//! Dropping the count while we are its only owner would reset it to 1. So a second manager becomes its owner first, and
//! keeps it until the autoscaler writes.

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
    /// Leaves `spec.replicas` to an autoscaler, if the object has one, without letting the count fall to the default on the
    /// way. A count that leaves the document stays, for an autoscaler that may come later. What no autoscaler scales, because
    /// somebody scaled it to 0, is scaled up first. The versions of the object, if a count was given up.
    pub(super) async fn settle_replicas(&self, desired: &Desired, body: &mut Value) -> Result<Option<GivenUp>, Error> {
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
        let woken = self.store().woken(desired, &live);
        let owners = || fields::entries(&live).filter(|entry| fields::owns(entry.fields, &REPLICAS));
        // What people's tools and other appliers own may become ours with this apply, and go with it.
        let is_kept = owners().any(|entry| entry.manager == HANDOVER_MANAGER || entry.subresource == "scale");
        if let Some(count) = woken {
            let how = Apply::forced(HANDOVER_MANAGER);
            self.apply_replicas(&desired.kind, &desired.key, &json!(count), how).await?;
            return Ok(None);
        }
        if owners().next().is_none() || is_kept {
            return Ok(None);
        }
        let count = live.pointer("/spec/replicas").cloned().unwrap_or(json!(1));
        let how = Apply::unforced(HANDOVER_MANAGER);
        let answer = self.apply_replicas(&desired.kind, &desired.key, &count, how).await?;
        let version = |object: &Value| resource_version(object).to_owned();
        Ok(Some(GivenUp { before: version(&live), after: version(&answer) }))
    }

    /// Makes the handover manager an owner of the live count, beside us. A conflict if somebody else has changed it.
    pub async fn hand_over_replicas(&self, kind: &Arc<Kind>, key: &Key, live: &Value) -> Result<(), Error> {
        let _lock = self.lock_object(key).await;
        self.apply_replicas(kind, key, live, Apply::unforced(HANDOVER_MANAGER)).await.map(drop)
    }

    async fn apply_replicas(&self, kind: &Arc<Kind>, key: &Key, count: &Value, how: Apply<'_>) -> Result<Value, Error> {
        let (namespace, name) = (key.namespace.as_deref(), &*key.name);
        let body = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": count},
        });
        self.cluster().apply(kind, namespace, name, &body, how).await
    }
}
