//! Reruns a Job or Pod that ended: deletes and recreates it on request.
//!
//! Invariant: an object is deleted only if it ended, is not paused, carries Mainstay's label, and was provably applied
//! by Mainstay.

use std::sync::Arc;

use serde_json::Value;

use super::Writer;
use super::delete::Deleted;
use super::put::{Change, Expect, Step};
use crate::managed::Appliers;
use crate::managed::deletion::is_noted;
use crate::managed::desired::Desired;
use crate::managed::fields::applied_by;
use crate::managed::verdict::{break_glass_of, controller, is_terminating, uid};
use crate::notification::{Message, WhyPruned};
use mainstay_api::names::{MANAGER, RERUN, SYNC_LABEL};
use mainstay_cluster::{Error, Removal};
use mainstay_object::{Key, Owner, can_end};

/// The outcome of a rerun request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// The object was recreated.
    Done,
    /// The object has not ended.
    Running,
    /// The object no longer belongs to the owner.
    NotOurs,
    /// The object is paused.
    Paused,
    /// The old object is still being deleted.
    Deleting,
}

impl Writer {
    /// Returns the owner's objects of this name whose kind can end.
    pub fn that_end(&self, owner: &Owner, namespace: &str, name: &str) -> Vec<Key> {
        let store = self.store();
        let is_meant = |key: &&Key| can_end(key) && *key.name == *name && key.namespace.as_deref() == Some(namespace);
        let kept = store.kept_for(owner).filter(|(_, managed)| !managed.phase.is_leaving());
        kept.map(|(key, _)| key).filter(is_meant).cloned().collect()
    }

    /// Runs an ended object again, even if it is gone.
    pub async fn run_again(&self, owner: &Owner, key: &Key) -> Result<Rerun, Error> {
        let Some(acting) = self.acting_for(owner) else { return Ok(Rerun::NotOurs) };
        let desired = {
            let _lock = self.lock_object(key).await;
            // Another owner may have taken the object while this task waited for the lock.
            let Some(desired) = self.desired_of(owner, key) else { return Ok(Rerun::NotOurs) };
            let judge = |live: &Value| self.may_run_again(owner, &desired, live);
            match acting.remove_ended(owner, &desired, judge).await? {
                Deleted::Kept(why) => return Ok(why),
                Deleted::Done { removal: Removal::Terminating(_), .. } => return Ok(Rerun::Deleting),
                Deleted::Absent | Deleted::Done { .. } => {}
            }
            desired
        };
        let put = self.put(owner, &Step { desired, expect: Expect::Ours, appliers: Appliers::default() }).await?;
        Ok(if put.change == Change::Anothers { Rerun::NotOurs } else { Rerun::Done })
    }

    /// Returns the desired state of an object of this owner.
    fn desired_of(&self, owner: &Owner, key: &Key) -> Option<Arc<Desired>> {
        let store = self.store();
        let managed = store.get(key).filter(|managed| managed.owner == *owner)?;
        Some(Arc::clone(&managed.desired))
    }

    /// Deletes an ended object whose manifest requests another run. Returns whether it is still being deleted.
    pub(super) async fn make_way_for_rerun(&self, owner: &Owner, desired: &Arc<Desired>) -> Result<bool, Error> {
        let Some(asked) = desired.rerun() else { return Ok(false) };
        let before = |live: &Value| {
            live.pointer("/metadata/annotations").and_then(|all| all.get(RERUN)?.as_str().map(str::to_owned))
        };
        let judge = |live: &Value| {
            if before(live).as_deref() == Some(&asked) {
                return Err(Rerun::Done);
            }
            self.may_run_again(owner, desired, live)
        };
        let deleted = self.remove_ended(owner, desired, judge).await?;
        Ok(matches!(deleted, Deleted::Kept(Rerun::Deleting) | Deleted::Done { removal: Removal::Terminating(_), .. }))
    }

    fn may_run_again(&self, owner: &Owner, desired: &Desired, live: &Value) -> Result<(), Rerun> {
        if !self.is_ours(owner, desired, live) {
            Err(Rerun::NotOurs)
        } else if break_glass_of(live, self.now()).is_some() {
            Err(Rerun::Paused)
        } else if is_terminating(live) {
            Err(Rerun::Deleting)
        } else if desired.ended(live).is_none() {
            Err(Rerun::Running)
        } else {
            Ok(())
        }
    }

    /// Whether the label names this owner, Mainstay applied the object, and no controller owns it.
    fn is_ours(&self, owner: &Owner, desired: &Desired, live: &Value) -> bool {
        let label = live.pointer("/metadata/labels").and_then(|labels| labels.get(SYNC_LABEL)?.as_str());
        let is_proven = || {
            let inventory = self.store().inventory(owner);
            let entry = inventory.as_ref().and_then(|inventory| inventory.0.get(&desired.key));
            entry.is_some_and(|entry| is_noted(entry, uid(live))) || applied_by(live, MANAGER).is_some()
        };
        label.is_some() && label == desired.label() && controller(live).is_none() && is_proven()
    }

    /// Deletes an ended object and announces it.
    async fn remove_ended(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        judge: impl Fn(&Value) -> Result<(), Rerun>,
    ) -> Result<Deleted<Value, Rerun>, Error> {
        let deleted = self.delete_as_found(&desired.kind, &desired.key, None, judge).await?;
        if let Deleted::Done { found, .. } = &deleted {
            let (subject, object) = (owner.clone(), desired.key.to_string());
            let message = Message::Pruned { subject, object, why: WhyPruned::RunsAgain };
            self.announce(owner, found.as_ref().map(|live| (desired, live)), &message);
        }
        Ok(deleted)
    }
}
