//! Whether members act, for a candidate without shards that waits for their end.
//!
//! Invariant: the answer that none acts requires that the Leases of all members were read after that of their leader.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{Elector, LeaseAction, Observed, decide, members, observe};
use crate::error::Error;

impl Elector {
    /// Whether a member may still act, whose leader has ended. Others than those that acted before are read only if none of
    /// these acts any more. After an error, all are read again.
    pub(super) async fn members_act(&self, seen: &mut Observed) -> Result<bool, Error> {
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
        let Some(lease) = found else { return Ok(false) };
        let now = observe(seen.members.remove(&index), &lease, answered);
        let acts = decide(&now, &self.identity, self.timing.lease, answered) == LeaseAction::Wait;
        seen.members.insert(index, now);
        Ok(acts)
    }
}
