//! The steps of a member from one view to the next. Time and the states of the Leases are arguments.
//!
//! Invariant: a view is published only after the work for lost GitSyncs has stopped.
//! Invariant: a view counts as published once the watch has shown it in the member's own Lease.
//! Invariant: a watch that does not show the renewals of the own Lease shows no others either. Until it does, the step, the
//! view and the live members stay as they were.
//! Invariant: a member shows that another one's Lease has expired before it counts that member as away. A successor takes the
//! Lease in between, and the share stays with its shard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::member::{Member, Members};
use super::ownership::{Ownership, Pins};
use super::view::{Expired, PushNote, Shown, View};

/// The part of the grace for which an expired Lease counts as live. A successor needs it to read that the Lease has expired,
/// and to take it. Otherwise the share would move to the other members and back. Without a successor, these begin later.
const FOR_SUCCESSOR: f64 = 0.3;
/// The part of a Lease's duration after which a watch that has shown no renewal of the own Lease is silent. The Lease is renewed
/// more often.
const SILENT: f64 = 1.0 / 3.0;

/// The step of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The work for lost GitSyncs stops.
    Dropping,
    /// The view is being published.
    Publishing,
    /// GitSyncs may be gained.
    Acting,
}

/// A Lease of a member.
#[derive(Clone, Debug)]
pub(super) struct Known {
    shown: Shown,
    /// Time at which the watch has shown the last renewal.
    renewed: Instant,
    /// The member may act until this time.
    until: Instant,
}

impl Known {
    /// Returns the Lease as it is shown `now`. `lease` is the duration of a Lease that states none. A Lease that was
    /// released since `before` counts for `grace`.
    pub(super) fn next(before: Option<&Self>, shown: Shown, lease: Duration, grace: Duration, now: Instant) -> Self {
        let seconds = shown.spec["leaseDurationSeconds"].as_u64().filter(|seconds| (1..=3600).contains(seconds));
        let lease = seconds.map_or(lease, Duration::from_secs);
        let renewed = before.filter(|before| before.shown.spec == shown.spec).map_or(now, |before| before.renewed);
        let until = match before {
            Some(before) if before.shown.spec == shown.spec => before.until,
            _ if !shown.holder().is_empty() => now + lease,
            Some(before) if before.shown.holder().is_empty() => before.until,
            Some(_) => now + grace,
            None => now,
        };
        Self { shown, renewed, until }
    }

    /// Returns until when the member may act.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns until when the member counts as live, with the time for a successor after an expiry.
    fn counts_until(&self, grace: Duration) -> Instant {
        if self.shown.holder().is_empty() { self.until } else { self.until + grace.mul_f64(FOR_SUCCESSOR) }
    }
}

/// The knowledge and the step of one member.
#[derive(Clone, Debug)]
pub(super) struct Board {
    me: Member,
    identity: String,
    /// Duration of Leases that state none.
    lease: Duration,
    /// Time for which a released shard counts as live, so that a successor takes it without moving its share.
    grace: Duration,
    leases: BTreeMap<Member, Known>,
    is_led: bool,
    /// Whether the watch has shown all Leases.
    is_complete: bool,
    step: Step,
    view: View,
    published: Option<View>,
    number: u64,
}

impl Board {
    /// Returns the board of a member, with the `leases` that this process has seen earlier. No other board of the member has
    /// used this generation or a higher one.
    pub(super) fn new(
        me: Member,
        identity: &str,
        generation: u64,
        (lease, grace): (Duration, Duration),
        leases: BTreeMap<Member, Known>,
    ) -> Self {
        Self {
            me,
            identity: identity.to_owned(),
            lease,
            grace,
            leases,
            is_led: false,
            is_complete: false,
            step: Step::Acting,
            view: View { generation, members: Members::default() },
            published: None,
            number: 0,
        }
    }

    /// Returns the known Leases.
    pub(super) fn leases(&self) -> &BTreeMap<Member, Known> {
        &self.leases
    }

    /// Records a Lease of a member.
    pub(super) fn see(&mut self, member: Member, shown: Shown, now: Instant) {
        let known = Known::next(self.leases.get(&member), shown, self.lease, self.grace, now);
        self.leases.insert(member, known);
    }

    /// Records the Lease of the leader; `None` if there is none.
    pub(super) fn see_leader(&mut self, shown: Option<&Shown>) {
        self.is_led = shown.is_some_and(Shown::is_led_by_member);
    }

    /// Records whether all Leases are known. No step is taken while they are not.
    pub(super) fn set_complete(&mut self, is_complete: bool) {
        self.is_complete = is_complete;
    }

    /// Returns the time at which the watch became silent: that of the last renewal of the own Lease that it has shown. The
    /// work of a member ends with its Lease, so the Lease is renewed while there is a board.
    pub(super) fn silent_since(&self, now: Instant) -> Option<Instant> {
        let own = self.leases.get(&self.me).filter(|own| own.shown.holder() == self.identity)?;
        (own.renewed + self.lease.mul_f64(SILENT) <= now).then_some(own.renewed)
    }

    /// Returns the time at which Leases are judged: `now`, or the time at which the watch became silent.
    fn known_at(&self, now: Instant) -> Instant {
        self.silent_since(now).unwrap_or(now)
    }

    /// Returns the live members. A Lease that was deleted counts as long as one that is not renewed.
    fn live(&self, now: Instant) -> Members {
        let at = self.known_at(now);
        let is_live = |known: &Known| at < known.counts_until(self.grace);
        self.leases.iter().filter(|(_, known)| is_live(known)).map(|(member, _)| *member).collect()
    }

    /// Returns the Leases of other members that have expired, as they were seen last. A Lease with another version was
    /// renewed meanwhile.
    fn expired(&self, now: Instant) -> Expired {
        let at = self.known_at(now);
        let is_expired = |known: &Known| known.until <= at && !known.shown.holder().is_empty();
        let others = self.leases.iter().filter(|(member, known)| **member != self.me && is_expired(known));
        let versions = others.map(|(member, known)| (*member, known.shown.version.clone()));
        versions.filter(|(_, version)| !version.is_empty()).collect()
    }

    /// Returns the members of the next view. Without an own Lease or a leader among the members, there are none.
    fn target(&self, now: Instant) -> Members {
        let own = self.leases.get(&self.me).is_some_and(|own| own.shown.holder() == self.identity);
        let live = self.live(now);
        if own && self.is_led && live.has(self.me) { live } else { Members::default() }
    }

    /// Takes the steps that are possible now.
    pub(super) fn turn(&mut self, now: Instant) {
        if !self.is_complete || (self.number > 0 && self.silent_since(now).is_some()) {
            return;
        }
        let target = self.target(now);
        if self.number == 0 || target != self.view.members {
            self.number += 1;
            self.view = View { generation: self.view.generation + 1, members: target };
            self.step = Step::Dropping;
        }
        let shown = self.leases.get(&self.me).and_then(|own| own.shown.view());
        if self.step == Step::Publishing && shown.is_some_and(|(view, _)| view == self.view) {
            self.step = Step::Acting;
        }
    }

    /// Records that the work for the GitSyncs that the view with this number loses has stopped.
    pub(super) fn dropped(&mut self, number: u64) {
        if self.step == Step::Dropping && number == self.number {
            self.step = Step::Publishing;
            self.published = Some(self.view);
        }
    }

    /// Returns the annotation of the own Lease, once there is a view.
    pub(super) fn note(&self, push_note: &PushNote, now: Instant) -> Option<String> {
        self.published.map(|view| view.text(push_note, &self.expired(now)))
    }

    /// Returns the next time at which a Lease expires, or an expired one does not count any more.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let times = self.leases.values().flat_map(|known| [known.until, known.counts_until(self.grace)]);
        times.filter(|time| *time > now).min()
    }

    /// Returns the pushes that the leader has received, as another member's Lease shows them.
    pub(super) fn push_note(&self, now: Instant) -> Option<PushNote> {
        let live = self.live(now);
        let others = self.leases.iter().filter(|(member, _)| **member != self.me && live.has(**member));
        let notes = others.filter_map(|(_, known)| known.shown.view()).map(|(_, push_note)| push_note);
        notes.max_by_key(|push_note| push_note.count)
    }

    /// Returns the GitSyncs that the member owns now.
    pub(super) fn ownership(&self, pins: &Arc<Pins>, now: Instant) -> Ownership {
        let live = self.live(now);
        let others = self.leases.iter().filter(|(member, _)| **member != self.me && live.has(**member));
        let others = others.filter_map(|(member, known)| Some((*member, known.shown.view()?.0.members)));
        Ownership {
            me: Some(self.me),
            number: self.number,
            members: self.view.members,
            // In a list that is not complete, members are missing.
            others: (self.is_complete && self.step == Step::Acting).then(|| others.collect()),
            pins: Arc::clone(pins),
        }
    }
}
