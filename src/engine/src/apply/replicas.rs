//! The replica count of a workload, and who owns it: us, or an autoscaler.
//!
//! Dropping the count while we are its only owner would reset it to 1. So a second manager becomes its owner first, and
//! keeps it until the autoscaler writes.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Writer;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::fields::{self, REPLICAS};
use mainstay_api::names::{HANDOVER_MANAGER, MANAGER};
use mainstay_cluster::{Apply, Error, Kind};
use mainstay_object::Key;

impl Writer {
    /// Leaves `spec.replicas` to an autoscaler, if the object has one, without letting the count fall to the default on the
    /// way. What it does not scale, because somebody scaled it to 0, is scaled up first. For objects that set the count, or
    /// are at 0.
    pub(super) async fn settle_replicas(&self, desired: &Desired, body: &mut Value) -> Result<(), Error> {
        self.know_autoscalers().await;
        if !self.store().is_autoscaled(&desired.key) {
            return Ok(());
        }
        without_replicas(body);
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(()) };
        let woken = self.store().woken(desired, &live);
        let ours = fields::applied_by(&live, MANAGER).is_some_and(|f| fields::owns(f, &REPLICAS));
        let shared = fields::entries(&live).any(|e| e.manager != MANAGER && fields::owns(e.fields, &REPLICAS));
        match woken {
            Some(count) => {
                let how = Apply::forced(HANDOVER_MANAGER);
                self.apply_replicas(&desired.kind, &desired.key, &json!(count), how).await
            }
            None if ours && !shared => {
                let count = live.pointer("/spec/replicas").cloned().unwrap_or(json!(1));
                let how = Apply::unforced(HANDOVER_MANAGER);
                self.apply_replicas(&desired.kind, &desired.key, &count, how).await
            }
            None => Ok(()),
        }
    }

    /// Makes the handover manager an owner of the live count, beside us. A conflict if somebody else has changed it.
    pub async fn hand_over_replicas(&self, kind: &Arc<Kind>, key: &Key, live: &Value) -> Result<(), Error> {
        let _lock = self.lock_object(key).await;
        self.apply_replicas(kind, key, live, Apply::unforced(HANDOVER_MANAGER)).await
    }

    async fn apply_replicas(&self, kind: &Arc<Kind>, key: &Key, count: &Value, how: Apply<'_>) -> Result<(), Error> {
        let (namespace, name) = (key.namespace.as_deref(), &*key.name);
        let body = json!({
            "apiVersion": kind.api_version(), "kind": &*kind.kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": count},
        });
        self.cluster().apply(kind, namespace, name, &body, how).await.map(drop)
    }
}
