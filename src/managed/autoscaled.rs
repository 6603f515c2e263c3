//! The workloads of the store that an autoscaler scales.

use std::collections::HashMap;

use serde_json::Value;

use super::autoscaler::{Autoscaler, is_at_zero};
use super::desired::Desired;
use super::store::Store;
use crate::object::Key;

impl Store {
    /// Replaces the autoscaled workloads; returns the kept ones that have to be looked at for it, and whether it changes
    /// what is applied to them.
    pub(crate) fn set_autoscaled(&mut self, workloads: HashMap<Key, Autoscaler>) -> Vec<(Key, bool)> {
        let old = std::mem::replace(&mut self.autoscaled, workloads);
        let new = &self.autoscaled;
        let changed = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
        let look = |key: &Key| {
            let managed = self.objects.get(key)?;
            let came_or_went = old.contains_key(key) != new.contains_key(key);
            let is_outdated = came_or_went && managed.desired.sets_replicas(&managed.desired.body());
            let may_wake = managed.is_at_zero && old.get(key) != new.get(key);
            (is_outdated || may_wake).then(|| (key.clone(), is_outdated))
        };
        changed.filter_map(look).collect()
    }

    pub(crate) fn is_autoscaled(&self, key: &Key) -> bool {
        self.autoscaled.contains_key(key)
    }

    /// How many replicas an autoscaled workload that is at 0 must have; `None` when 0 is right.
    pub(crate) fn woken(&self, desired: &Desired, live: &Value) -> Option<i64> {
        let autoscaler = self.autoscaled.get(&desired.key).filter(|_| is_at_zero(live))?;
        autoscaler.woken(&desired.body(), live)
    }
}
