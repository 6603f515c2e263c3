//! The workloads in the store that an autoscaler scales.

use std::sync::Arc;

use serde_json::Value;

use super::autoscaler::{Autoscaler, has_default_count, is_at_zero};
use super::desired::Desired;
use super::store::Store;
use mainstay_object::{Key, Owner};

impl Store {
    /// Sets or removes the autoscaler of a workload. Returns `None` if the workload needs no check, otherwise whether
    /// the applied state may differ from the desired one.
    pub(crate) fn set_autoscaler(&mut self, workload: &Key, autoscaler: Option<Autoscaler>) -> Option<bool> {
        let old = match autoscaler {
            Some(autoscaler) => self.autoscaled.insert(workload.clone(), autoscaler),
            None => self.autoscaled.remove(workload),
        };
        let managed = self.objects.get(workload)?;
        let came_or_went = old.is_some() != autoscaler.is_some();
        let is_outdated = came_or_went && managed.desired.sets_replicas(&managed.desired.body());
        let may_wake = managed.is_at_zero && old != autoscaler;
        (is_outdated || may_wake).then_some(is_outdated)
    }

    /// Returns the workloads that an autoscaler scales.
    pub(crate) fn autoscaled(&self) -> impl Iterator<Item = &Key> {
        self.autoscaled.keys()
    }

    /// Sets the autoscalers of an owner from its manifests.
    pub(crate) fn expect_autoscalers(&mut self, owner: &Owner, desired: &[Arc<Desired>]) {
        if let Some(account) = self.accounts.get_mut(owner) {
            let targets = desired.iter().filter_map(|one| Autoscaler::target(&one.key, || one.object.value()));
            account.scaled = targets.collect();
        }
    }

    /// Whether an apply without a count may change the live count: the agent owns the count, or the count is 0.
    pub(crate) fn may_lose_count(&self, key: &Key) -> bool {
        self.objects.get(key).is_none_or(|managed| {
            managed.is_at_zero
                || managed.may_differ_from_desired()
                || managed.desired.sets_replicas(&managed.desired.body())
        })
    }

    /// Whether the live count stays although the document does not set it. A count above the server's default of 1
    /// stays, because an autoscaler may come from another owner or a later commit.
    pub(crate) fn keeps_count(&self, key: &Key, live: &Value) -> bool {
        let is_above_default = || live.pointer("/spec/replicas").and_then(Value::as_i64) > Some(1);
        self.is_autoscaled(key)
            || (has_default_count(key) && is_above_default())
            || self.accounts.values().any(|account| account.scaled.contains(key))
    }

    pub(crate) fn is_autoscaled(&self, key: &Key) -> bool {
        self.autoscaled.contains_key(key)
    }

    /// Whether the autoscaler of a workload may scale it to 0.
    pub(crate) fn may_rest(&self, workload: &Key) -> bool {
        self.autoscaled.get(workload).is_some_and(|autoscaler| autoscaler.may_rest())
    }

    /// Returns the replica count for an autoscaled workload that is at 0; `None` if it stays at 0.
    pub(crate) fn woken(&self, desired: &Desired, live: &Value) -> Option<i64> {
        let autoscaler =
            self.autoscaled.get(&desired.key).filter(|_| is_at_zero(live) && !desired.ignores_replicas())?;
        autoscaler.woken(&desired.body(), live)
    }
}
