//! What an owner's status says of its objects.

use jiff::Timestamp;

use super::desired::Owner;
use super::ledger::Ledger;
use super::managed::{Managed, REMARKABLE};
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
    /// Objects that could not be put back again and again, with the fields and the cause.
    pub not_put_back: Vec<(Key, String)>,
    /// Objects under break glass.
    pub paused: Vec<(Key, Option<Timestamp>)>,
    /// Objects that are fought over, with the fields and the other manager.
    pub contended: Vec<(Key, Vec<String>, String)>,
    /// Kinds of these objects that cannot be watched, with the cause.
    pub unwatched: Vec<(String, String)>,
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
        let Some(tally) = self.objects.tally(owner) else { return summary };
        (summary.objects, summary.healthy) = (tally.applied, tally.healthy);
        // In the order of their keys.
        let remarkable = tally.remarkable.iter().cloned().collect::<Vec<_>>();
        for key in remarkable {
            if let Some(mut managed) = self.objects.get_mut(&key) {
                managed.cool(clock);
                summary.tell(&key, &managed);
            }
        }
        summary
    }
}

impl Summary {
    fn tell(&mut self, key: &Key, managed: &Managed) {
        if let Some(until) = managed.paused {
            self.paused.push((key.clone(), until));
        }
        if !managed.is_applied() {
            return;
        }
        match &managed.health {
            Health::Healthy => {}
            Health::Progressing(why) => self.progressing.push((key.clone(), why.clone())),
            Health::Failed(why) => self.broken.push((key.clone(), why.clone())),
        }
        if let Some(failure) = &managed.failure {
            let reason = if failure.reports { "ReportFailed" } else { "RevertFailed" }.to_owned();
            let message = format!("{}: {}", failure.fields.join(", "), failure.cause);
            if !failure.reports && managed.attempts >= REMARKABLE {
                self.not_put_back.push((key.clone(), message.clone()));
            }
            self.failures.push(Failure { object: key.to_string(), reason, message });
        }
        if let Some(contended) = &managed.contended {
            self.contended.push((key.clone(), contended.0.clone(), contended.1.clone()));
        }
    }
}
