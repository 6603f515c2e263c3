//! The Leases that a candidate has read, its next step, and the pause before it. Time and chance are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::timing::Timing;

/// The observed Leases of a candidate.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) own: BTreeMap<usize, ObservedLease>,
    /// The Leases of members, for a candidate without shards.
    pub(super) members: BTreeMap<usize, ObservedLease>,
    /// The members that acted when their Leases were read last.
    pub(super) acting: BTreeSet<usize>,
    /// The Lease that this candidate may hold: its write has failed and may have been carried out, or its response was late.
    pub(super) unsure: Option<usize>,
    /// The number of such outcomes since this candidate last read a Lease that it does not hold.
    pub(super) doubts: u32,
    /// The own Leases whose reads failed in this round.
    pub(super) unread: BTreeSet<usize>,
    /// The number of other failed attempts of this round.
    pub(super) refused: u32,
    /// The number of rounds in a row with such attempts.
    pub(super) refusals: u32,
}

/// The Lease, and the time of its last observed change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObservedLease {
    pub(super) spec: Value,
    pub(super) at: Instant,
}

impl Observed {
    /// Records that the candidate may hold a Lease without leading.
    pub(super) fn doubt(&mut self, index: usize) {
        self.unsure = Some(index);
        self.doubts = self.doubts.saturating_add(1);
    }

    /// Records the end of a round.
    pub(super) fn end_round(&mut self) {
        self.refusals = if self.refused > 0 { self.refusals.saturating_add(1) } else { 0 };
    }
}

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Take the Lease: it is free or expired.
    Take,
    /// Wait: another process holds the Lease.
    Wait,
}

impl ObservedLease {
    pub(super) fn holder(&self) -> &str {
        self.spec["holderIdentity"].as_str().unwrap_or_default()
    }
}

/// Returns the time at which the Lease expires unless it changes. `own` is the duration of a Lease that states none.
fn expiry(seen: &ObservedLease, own: Duration) -> Instant {
    let theirs = seen.spec["leaseDurationSeconds"].as_u64().filter(|seconds| (1..=3600).contains(seconds));
    seen.at + theirs.map_or(own, Duration::from_secs)
}

/// Returns the pause of a candidate until its next attempt. It grows with the number of failures of this round, and with the
/// number of rounds in a row in which an attempt was refused, up to the duration of a Lease. If a Lease
/// that could be read expires earlier, the pause ends just after that, unless a write was refused or its result is unknown.
/// `chance` is from 0 to 1, so that candidates do not write simultaneously. If this candidate holds the Lease repeatedly
/// without leading, the pause is so long that the Lease expires for others, who see its last change up to a pause later.
pub(super) fn pause(seen: &Observed, timing: Timing, now: Instant, chance: f64) -> Duration {
    if seen.unsure.is_some() && seen.doubts > 1 && seen.unread.is_empty() {
        return (timing.lease + timing.retry * 2).mul_f64(1.0 + 0.2 * chance);
    }
    let failed = seen.refused.saturating_add(u32::try_from(seen.unread.len()).unwrap_or(u32::MAX)).max(seen.refusals);
    let regular = timing.retry.saturating_mul(failed.max(1)).min(timing.lease).mul_f64(1.0 + 0.2 * chance);
    if seen.refused > 0 || seen.unsure.is_some() {
        return regular;
    }
    let own = seen.own.iter().filter(|(index, _)| !seen.unread.contains(index)).map(|(_, lease)| lease);
    let all = own.chain(seen.members.values());
    let next = all.map(|lease| expiry(lease, timing.lease)).filter(|expiry| *expiry > now).min();
    next.map_or(regular, |expiry| regular.min(expiry - now + timing.retry.mul_f64(0.1 * chance)))
}

/// Decides on the next step. The Lease may be taken if it was released, if this candidate holds it, or if it has not
/// changed for its duration since its last observed change.
pub(super) fn decide(seen: &ObservedLease, me: &str, own: Duration, now: Instant) -> LeaseAction {
    if seen.holder().is_empty() || seen.holder() == me || now >= expiry(seen, own) {
        LeaseAction::Take
    } else {
        LeaseAction::Wait
    }
}

/// Records a change of the Lease, with the time of this candidate's clock. A Lease that was deleted stays as it was, so that
/// it is respected until it would have expired.
pub(super) fn observe(seen: Option<ObservedLease>, found: Option<&Value>, now: Instant) -> Option<ObservedLease> {
    match (seen, found) {
        (Some(seen), Some(lease)) if seen.spec == lease["spec"] => Some(seen),
        (_, Some(lease)) => Some(ObservedLease { spec: lease["spec"].clone(), at: now }),
        (seen, None) => seen,
    }
}
