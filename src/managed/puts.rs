//! Applies as the store knows them: for a commit or a Function, and the answers to all of them.

use std::sync::Arc;

use super::apply_state::ApplyState;
use super::desired::Desired;
use super::object::Answered;
use super::seen::Seen;
use super::store::Store;
use super::verdict::LastApplied;
use crate::object::{Key, Owner};

impl Store {
    /// Starts an apply that its owner wants. `None` when it is under break glass: then that
    /// is what it will be afterwards. What was seen of the object before the write says nothing once it has succeeded.
    pub(crate) fn begin_put(&mut self, owner: &Owner, desired: &Arc<Desired>) -> Option<(String, Option<Box<Seen>>)> {
        self.hold(owner, Arc::clone(desired), LastApplied::default());
        let mut managed = self.objects.get_mut(&desired.key)?;
        managed.phase.stay();
        if managed.phase.pause().is_some() {
            managed.desired = Arc::clone(desired);
            managed.applied.mark_outdated();
            return None;
        }
        let seen = managed.write.begin_put();
        let version = managed.applied.last().map(|last| last.resource_version.to_string());
        Some((version.unwrap_or_default(), seen))
    }

    /// Such an apply failed. If it may have been carried out all the same, the object must become what
    /// was written; else it stays what it was, and what was seen before counts again.
    pub(crate) fn put_failed(&mut self, desired: &Arc<Desired>, before: Option<Box<Seen>>, is_unknown: bool) {
        let Some(mut managed) = self.objects.get_mut(&desired.key) else { return };
        if is_unknown && managed.is_applied() {
            managed.desired = Arc::clone(desired);
            managed.applied.mark_outdated();
        }
        if let Some(before) = before {
            managed.write.restore_pending(before);
        }
    }

    /// The server's answer to an apply of `desired` is what the object must be from now on.
    pub(crate) fn verify(&mut self, desired: &Arc<Desired>, answered: Answered) {
        let key = &desired.key;
        let autoscaled = self.autoscaled.contains_key(key);
        let Some(mut managed) = self.objects.get_mut(key) else { return };
        managed.desired = Arc::clone(desired);
        managed.is_at_zero = answered.is_at_zero;
        managed.health = answered.health;
        managed.succeeded();
        // An autoscaler may have come while the count was on its way, or gone while it was left out.
        let is_outdated = if autoscaled { answered.sent_replicas } else { answered.left_out_replicas };
        managed.applied = if is_outdated {
            ApplyState::Outdated(answered.last_applied)
        } else {
            ApplyState::Desired(answered.last_applied)
        };
        managed.phase.end_pause();
        managed.reported = None;
        drop(managed);
        self.write_down(key);
    }

    /// The desired state of an object has changed without a new document.
    pub(crate) fn mark_outdated(&mut self, key: &Key) {
        if let Some(mut managed) = self.objects.get_mut(key) {
            managed.applied.mark_outdated();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{Kind, Scope};
    use crate::managed::Mark;
    use crate::managed::fixtures::{POLICY, live, verify};
    use crate::object::{Object, Place};

    #[test]
    fn an_autoscaler_that_goes_while_its_count_is_left_out_leaves_the_object_to_be_written_again() {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let kind = Arc::new(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced));
        let document =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        let mark = Mark::Label("shop.demo".into());
        let desired = Arc::new(Desired { key: kind.key(Some("shop"), "a"), kind, object, mark });
        store.set_policy(&owner, POLICY, 0, Vec::new());
        assert!(store.begin_put(&owner, &desired).is_some());
        let mut sent = desired.body();
        crate::managed::desired::without_replicas(&mut sent);
        verify(&mut store, &desired, &live(5, "1"), &sent);
        assert!(store.get(&desired.key).unwrap().applied.is_outdated());
        verify(&mut store, &desired, &live(6, "1"), &desired.body());
        assert!(!store.get(&desired.key).unwrap().applied.is_outdated());
    }
}
