//! The Leases of members that this process has seen, with the times of their last changes by its clock.
//!
//! The work of a member begins again after a panic or when it ends to lead, and an agent that starts polls the Leases
//! before it becomes a member. Without these times, each beginning would wait for a dead member for the duration of another Lease.
//!
//! Invariant: a member counts as live for the duration of its Lease from when this process saw the last change first.
//! Invariant: a Lease that a member has shown as expired has not changed for its duration by that member's clock. This
//! holds for one version of the Lease, whose write is refused once there is a newer one.
//! Invariant: only a Lease with the name of a member and a holder shows expired Leases, and none shows itself. Members that
//! contradict each other do not replace what the others show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::board::Known;
use super::member::Member;
use super::view::{Expired, Shown, expired_by, member_of};

/// The Leases that this process has seen. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    leases: Arc<Mutex<BTreeMap<Member, Known>>>,
    /// The Leases that have expired by the clock of each member.
    expired: Arc<Mutex<BTreeMap<Member, Expired>>>,
    /// Notified when a member shows another expired Lease.
    shown: Arc<Notify>,
}

impl Seen {
    /// Records the Lease of a member that was read `now`. `duration` is that of a Lease that states none.
    pub(crate) fn see(&self, member: Member, lease: &Value, duration: Duration, now: Instant) {
        self.see_expired(lease);
        let mut all = self.leases.lock();
        if lease["spec"]["holderIdentity"].as_str().unwrap_or_default().is_empty() {
            // The share of a member that stopped before the work began is free.
            all.remove(&member);
        } else if let Some(shown) = Shown::of(lease) {
            let known = Known::next(all.get(&member), shown, duration, Duration::ZERO, now);
            all.insert(member, known);
        }
    }

    /// Records the expired Leases that the Lease of a member shows. A Lease without a holder shows none.
    pub(super) fn see_expired(&self, lease: &Value) {
        let Some(by) = lease["metadata"]["name"].as_str().and_then(member_of) else { return };
        let shown = expired_by(lease).unwrap_or_default();
        let mut all = self.expired.lock();
        let before = all.remove(&by).unwrap_or_default();
        if shown.iter().any(|(member, version)| before.get(member) != Some(version)) {
            self.shown.notify_one();
        }
        if !shown.is_empty() {
            all.insert(by, shown);
        }
    }

    /// Whether a member has shown that this Lease has expired. Members observe a Lease before a candidate that has just
    /// started. A Lease that was renewed has another version.
    pub(crate) fn has_expired(&self, member: Member, lease: &Value) -> bool {
        let version = lease["metadata"]["resourceVersion"].as_str();
        let is_shown = |shown: &Expired| shown.get(&member).map(String::as_str) == version;
        version.is_some() && self.expired.lock().values().any(is_shown)
    }

    /// Returns the members whose Leases were shown as expired.
    pub(crate) fn expired(&self) -> BTreeSet<Member> {
        self.expired.lock().values().flat_map(|shown| shown.keys().copied()).collect()
    }

    /// Waits until a member shows another expired Lease. Returns immediately if one did since the last call. Cancel-safe.
    pub(crate) async fn expires(&self) {
        self.shown.notified().await;
    }

    /// Returns the Leases.
    pub(super) fn leases(&self) -> BTreeMap<Member, Known> {
        self.leases.lock().clone()
    }

    /// Keeps the Leases that the work of a member has seen, unless a candidate of this process has seen a later change.
    pub(super) fn keep(&self, leases: &BTreeMap<Member, Known>) {
        let mut all = self.leases.lock();
        for (member, known) in leases {
            if all.get(member).is_none_or(|other| other.until() <= known.until()) {
                all.insert(*member, known.clone());
            }
        }
    }

    /// Returns the members whose Leases are recorded.
    #[cfg(test)]
    pub(crate) fn members(&self) -> Vec<Member> {
        self.leases.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::board::Board;
    use super::*;
    use mainstay_api::names::{SHARD_LEASE, SHARD_VIEW};

    const LEASE: Duration = Duration::from_secs(15);

    fn lease(holder: &str, renewed: u64) -> Value {
        json!({
            "metadata": {"labels": {SHARD_LEASE: "member"}},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        })
    }

    /// Returns the board of another member that knows these Leases.
    fn knowing(seen: &Seen) -> Board {
        Board::new(Member::new(0).unwrap(), "me", 1, (LEASE, LEASE / 3), seen.leases())
    }

    #[test]
    fn a_lease_expires_at_the_same_time_for_work_that_begins_later() {
        let (start, other) = (Instant::now(), Member::new(1).unwrap());
        let at = |seconds| start + Duration::from_secs(seconds);
        let seen = Seen::default();
        seen.see(other, &lease("one", 1), LEASE, at(0));
        seen.see(other, &lease("one", 2), LEASE, at(2));
        seen.see(other, &lease("one", 2), LEASE, at(12));
        let due = |renewed, now| {
            let mut board = knowing(&seen);
            board.see(other, Shown::of(&lease("one", renewed)).unwrap(), now);
            seen.keep(board.leases());
            board.due(now)
        };
        assert_eq!((due(2, at(14)), due(2, at(16))), (Some(at(17)), Some(at(17))));
        assert_eq!(due(3, at(16)), Some(at(31)), "it was renewed");
        seen.see(other, &lease("", 3), LEASE, at(17));
        assert!(seen.leases().is_empty());
    }

    /// Returns the Lease of a member that shows that the Lease of shard 1 has expired at this version.
    fn showing(name: &str, version: &str) -> Value {
        let note = json!({"generation": 1, "members": [], "expired": {"shard-1": version}}).to_string();
        let metadata = json!({"name": name, "labels": {SHARD_LEASE: "member"}, "annotations": {SHARD_VIEW: note}});
        json!({"metadata": metadata, "spec": {"holderIdentity": "other"}})
    }

    fn at_version(version: &str) -> Value {
        let mut lease = lease("one", 1);
        lease["metadata"]["resourceVersion"] = json!(version);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_has_expired_only_at_the_version_that_a_member_has_shown() {
        let (other, seen) = (Member::new(1).unwrap(), Seen::default());
        let lease = at_version("41");
        let of_member = |version: &str| showing("mainstay-shard-0", version);
        assert!(!seen.has_expired(other, &lease) && seen.expired().is_empty());
        assert!(!seen.has_expired(other, &json!({})), "it does not exist");
        seen.see_expired(&of_member("40"));
        seen.expires().await;
        assert!(!seen.has_expired(other, &lease), "it was renewed");
        seen.see_expired(&of_member("41"));
        seen.see_expired(&of_member("41"));
        seen.expires().await;
        assert!(seen.has_expired(other, &lease) && !seen.has_expired(Member::new(0).unwrap(), &lease));
        assert_eq!(seen.expired(), BTreeSet::from([other]));
        let again = tokio::time::timeout(Duration::from_secs(3600), seen.expires()).await;
        assert!(again.is_err(), "it was shown before");
    }

    #[test]
    fn a_lease_is_shown_as_expired_only_by_another_member_that_holds_one() {
        let (other, seen) = (Member::new(1).unwrap(), Seen::default());
        let has_expired = |shown: &Value| {
            seen.see_expired(shown);
            seen.has_expired(other, &at_version("41"))
        };
        for name in ["mainstay", "mainstay-shard-64", "other", "mainstay-shard-1"] {
            assert!(!has_expired(&showing(name, "41")), "{name}");
        }
        let shown = || showing("mainstay-shard-0", "41");
        let (mut released, mut leader, mut unlabelled) = (shown(), shown(), shown());
        released["spec"]["holderIdentity"] = json!("");
        leader["metadata"]["labels"][SHARD_LEASE] = json!("leader");
        unlabelled["metadata"]["labels"] = json!({});
        for shown in [&released, &leader, &unlabelled] {
            assert!(!has_expired(shown), "{shown}");
        }
        assert!(has_expired(&shown()));
        assert!(!has_expired(&released), "its member has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn members_that_contradict_each_other_wake_a_candidate_once_each() {
        let (other, seen, mut wakes) = (Member::new(1).unwrap(), Seen::default(), 0);
        for _ in 0..100 {
            for (name, version) in [("mainstay-shard-0", "41"), ("mainstay-shard-2", "42")] {
                seen.see_expired(&showing(name, version));
                wakes += u32::from(tokio::time::timeout(Duration::from_secs(1), seen.expires()).await.is_ok());
            }
        }
        assert_eq!(wakes, 2);
        assert!(["41", "42"].iter().all(|version| seen.has_expired(other, &at_version(version))));
    }

    #[test]
    fn work_that_ends_does_not_replace_a_later_change() {
        let (start, other) = (Instant::now(), Member::new(1).unwrap());
        let at = |seconds| start + Duration::from_secs(seconds);
        let (seen, mut board) = (Seen::default(), knowing(&Seen::default()));
        board.see(other, Shown::of(&lease("one", 1)).unwrap(), at(0));
        seen.see(other, &lease("one", 2), LEASE, at(4));
        seen.keep(board.leases());
        assert_eq!(knowing(&seen).due(at(5)), Some(at(19)));
        board.see(other, Shown::of(&lease("one", 3)).unwrap(), at(6));
        seen.keep(board.leases());
        assert_eq!(knowing(&seen).due(at(7)), Some(at(21)));
    }

    #[test]
    fn a_held_lease_without_its_label_stays_known() {
        let (start, other) = (Instant::now(), Member::new(1).unwrap());
        let seen = Seen::default();
        seen.see(other, &lease("one", 1), LEASE, start);
        let mut unlabelled = lease("one", 2);
        unlabelled["metadata"] = json!({});
        seen.see(other, &unlabelled, LEASE, start);
        assert_eq!(seen.members(), [other]);
        unlabelled["spec"]["holderIdentity"] = json!("");
        seen.see(other, &unlabelled, LEASE, start);
        assert!(seen.members().is_empty());
    }
}
