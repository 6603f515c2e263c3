//! When the task of a GitSync makes its next attempt, and when its status is looked at again.
//!
//! Invariant: after a failure of an object or of an attempt the next attempt does not come before its backoff has passed,
//! unless something changed that may have put it right; an object that is due and was not tried waits for the next one.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::outcome::{Outcome, Refused};
use super::reconcile::Task;
use crate::api::GitSync;
use crate::api::conditions::Reason;
use crate::failure::{Backoff, jitter};

/// How long changes of objects are gathered before the status is looked at.
const GATHER: Duration = Duration::from_millis(20);
/// How long until deletions that are under way are looked at again.
const DELETING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How long after a time of the calendar it is looked at, so that it is past by every clock.
const PAST_IT: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_secs(86_400);

impl Task {
    /// When the task has to be woken.
    pub(super) fn due(&self) -> Instant {
        let retry = self.state.failed.due();
        let first = [Some(self.next_look), retry, self.settling, self.push_due()].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    /// When the remote is looked up because of a push: as soon as its server wants to be asked.
    pub(super) fn push_due(&self) -> Option<Instant> {
        self.pushed.max(self.not_before.filter(|_| self.pushed.is_some()))
    }

    /// Another GitSync changed what it manages or wants, or a Namespace or definition came.
    pub(super) fn others_changed(&mut self) {
        let now = Instant::now();
        if self.state.failed.retry_awaiting(now) || self.state.awaits_others {
            self.next_look = now;
        }
    }

    /// What was left for a break glass is applied when that ends; everything else only changes the status.
    pub(super) fn objects_changed(&mut self) {
        if self.state.paused.iter().any(|key| !self.context.writer.is_paused(key)) {
            self.next_look = Instant::now();
        }
        // Gathers what changes together into one status.
        let soon = Instant::now() + GATHER;
        self.settling = Some(self.settling.map_or(soon, |at| at.min(soon)));
    }

    /// The host keys that hold for all repositories are others.
    pub(super) fn host_keys_changed(&mut self) {
        if self.failures_in_a_row > 0 {
            self.next_look = Instant::now();
        }
    }

    /// Somebody asks for a sync because something may have been put right.
    pub(super) fn forget_waits(&mut self) {
        self.state.failed.retry_all(Instant::now());
        if matches!(&self.outcome, Some(Outcome::Refused { reason: Reason::ManifestInvalid, .. })) {
            self.context.writer.cluster().kinds_changed();
        }
    }

    /// How long until deletions that are under way are looked at again.
    pub(super) fn deletion_wait(&mut self) -> Duration {
        self.rounds += 1;
        DELETING.delay(self.rounds)
    }

    /// After an attempt that was not refused.
    pub(super) fn look_after(&mut self, interval: Duration, outcome: Option<&Outcome>) {
        self.failures_in_a_row = 0;
        self.next_look = Instant::now() + jitter(interval, fastrand::f64());
        let Some(outcome) = outcome else { return };
        // Deletions are under way, an inventory was put together, or what was given up still has our label: there is
        // another round to come.
        let goes_on = matches!(outcome, Outcome::Applied { pruning: 1.., .. } | Outcome::Applied { note: Some(_), .. });
        if goes_on || self.state.still_labelled {
            self.next_look = (Instant::now() + self.deletion_wait()).min(self.next_look);
        } else {
            self.rounds = 0;
        }
    }

    /// Objects that were due when the last attempt began, `then`, and that it did not come to wait for the next one.
    pub(super) fn postpone_untried(&mut self, then: Instant) {
        self.state.failed.postpone(then, self.next_look);
    }

    /// After an attempt that was refused.
    pub(super) fn back_off(&mut self, refused: &Refused, interval: Duration) {
        self.failures_in_a_row += 1;
        let backoff = refused
            .class
            .backoff()
            .map(|backoff| backoff.delay(self.failures_in_a_row))
            .map_or(interval, |wait| wait.min(interval.max(Duration::from_secs(1))));
        let wait = jitter(backoff, fastrand::f64()).max(refused.retry_after.unwrap_or_default());
        self.next_look = Instant::now() + wait;
        self.not_before = refused.retry_after.map(|wait| Instant::now() + wait);
    }

    /// Not later than something changes by itself: a window, a scheduled sync, the end of a suspension.
    pub(super) fn look_at_next_time(&mut self, sync: &GitSync, began: Timestamp) {
        let next = match sync.spec.suspended(began) {
            Some(until) => until,
            None => self.resolved().and_then(|resolved| resolved.windows.next(began)),
        };
        if let Some(at) = next {
            let wait = at.duration_since(Timestamp::now()).unsigned_abs();
            self.next_look = self.next_look.min(Instant::now() + wait + PAST_IT);
        }
    }

    /// Whether the remote has to be asked although it was asked not long ago: a scheduled time has come since, a window
    /// has opened, or a suspension has ended.
    pub(super) fn is_due(&self, last: Timestamp, now: Timestamp) -> bool {
        let Some(resolved) = self.resolved() else { return false };
        match self.outcome {
            Some(Outcome::Frozen { .. }) if resolved.windows.is_open(now) => true,
            Some(Outcome::Suspended { .. }) => true,
            _ => resolved.windows.is_due(last, now),
        }
    }
}
