//! Whether members act, for a candidate without shards that waits for their end.
//!
//! Invariant: the result that none acts requires that the Leases of all members were read after that of their leader.
//! Invariant: a candidate without shards begins a term only if none acts after it has taken the Lease of the leader. A member
//! that begins later sees first that it is not led. If a member acts, or if that is unknown, the candidate gives the Lease back.
//! Invariant: the label of the leader stays on the Lease until then, so that a restarted candidate waits, too.
//!
//! Not here: a Lease of the leader that is missing. It is created without reads of the members, so that a new installation does
//! not send a request for each possible shard. If a user deletes the Lease of acting members, they may act beside the new leader
//! until they read that its Lease leads no members.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::observed::{LeaseAction, Observed, decide, observe};
use super::{Elector, held, members};
use crate::error::Error;
use crate::shards::released;

impl Elector {
    /// Takes the Lease of a leader that has ended, as it was read, if no member acts before and after that. Returns the Lease,
    /// which still has the label of the leader. Otherwise, releases the Lease if this candidate holds it.
    pub(super) async fn take_from_members(&self, lease: &Value, seen: &mut Observed) -> Result<Option<Value>, Error> {
        let acts = self.members_act(seen).await;
        if !matches!(acts, Ok(false)) {
            // An earlier process of this candidate has taken the Lease, and has not led.
            if lease["spec"]["holderIdentity"] == *self.identity {
                self.release(lease).await;
            }
            return acts.map(|_| None);
        }
        let mut taken = held(lease, &self.identity, self.timing, Timestamp::now());
        // Without the annotation, the members count as not led.
        released(&mut taken);
        let taken = self.write(&taken).await?;
        let acts = self.members_act(seen).await;
        if !matches!(acts, Ok(false)) {
            // A member may have begun since its Lease was read. It continues with a released Lease of the leader.
            self.release(&taken).await;
            return acts.map(|_| None);
        }
        Ok(Some(taken))
    }

    /// Whether a member may still act, whose leader has ended. Others than those that acted before are read only if none of
    /// these acts any more. After an error, all are read again.
    async fn members_act(&self, seen: &mut Observed) -> Result<bool, Error> {
        let before = std::mem::take(&mut seen.acting);
        let (again, others): (Vec<_>, Vec<_>) = members().enumerate().partition(|(index, _)| before.contains(index));
        let mut acting = BTreeSet::new();
        for leases in [again, others] {
            if !acting.is_empty() {
                break;
            }
            // Reads also those after one that acts, so that all expire together.
            for (index, name) in leases {
                if self.acts((index, name.as_str()), seen).await? {
                    acting.insert(index);
                }
            }
        }
        seen.acting = acting;
        Ok(!seen.acting.is_empty())
    }

    /// Reads the Lease of a member. Returns whether the member may act.
    async fn acts(&self, (index, name): (usize, &str), seen: &mut Observed) -> Result<bool, Error> {
        let found = self.cluster.get(&self.kind, Some(&self.namespace), name).await?;
        let answered = Instant::now();
        // A Lease before one that is held may be missing: it was deleted, or an error prevented its creation.
        let Some(now) = observe(seen.members.remove(&index), found.as_ref(), answered) else { return Ok(false) };
        let acts = decide(&now, &self.identity, self.timing.lease, answered) == LeaseAction::Wait;
        seen.members.insert(index, now);
        Ok(acts)
    }
}
