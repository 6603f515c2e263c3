//! What an owner's status says of its objects.

use jiff::Timestamp;

use super::desired::Owner;
use super::ledger::Ledger;
use crate::api::git_sync::{Failure, Revert};
use crate::object::{Health, Key};

/// What a GitSync's status says of its objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Objects in the ledger that were applied.
    pub objects: usize,
    /// Of them, how many are healthy.
    pub healthy: usize,
    /// Objects that failed for good by their own word, with the reason.
    pub broken: Vec<(Key, String)>,
    /// Objects that are not healthy yet, with the reason.
    pub progressing: Vec<(Key, String)>,
    /// Reverts that failed.
    pub failures: Vec<Failure>,
    /// Objects under break glass.
    pub paused: Vec<(Key, Option<Timestamp>)>,
    /// Objects that are fought over, with the fields and the other manager.
    pub contended: Vec<(Key, Vec<String>, String)>,
    /// Reverts so far.
    pub reverted: i64,
    /// The last ones, newest first.
    pub last_reverts: Vec<Revert>,
}

impl Ledger {
    /// What an owner's status says.
    pub(super) fn summary(&mut self, owner: &Owner, clock: f64) -> Summary {
        let mut summary = Summary::default();
        if let Some(account) = self.accounts.get(owner) {
            summary.reverted = account.reverted;
            summary.last_reverts = account.last_reverts.iter().cloned().collect();
        }
        for (key, managed) in self.objects.iter_mut().filter(|(_, m)| m.owner == *owner && !m.tombstoned) {
            if let Some(until) = managed.paused {
                summary.paused.push((key.clone(), until));
            }
            if !managed.is_applied() {
                continue;
            }
            summary.objects += 1;
            match &managed.health {
                Health::Healthy => summary.healthy += 1,
                Health::Progressing(why) => summary.progressing.push((key.clone(), why.clone())),
                Health::Failed(why) => summary.broken.push((key.clone(), why.clone())),
            }
            summary.failures.extend(managed.failure.as_deref().cloned());
            if !managed.heat.as_mut().is_some_and(|heat| heat.contended(clock)) {
                managed.contended = None;
            }
            if managed.heat.as_ref().is_some_and(|heat| heat.cold(clock)) {
                managed.heat = None;
            }
            if let Some(contended) = &managed.contended {
                summary.contended.push((key.clone(), contended.0.clone(), contended.1.clone()));
            }
        }
        summary.progressing.sort_unstable();
        summary.broken.sort_unstable();
        summary.paused.sort_unstable();
        summary.contended.sort_unstable();
        summary
    }
}
