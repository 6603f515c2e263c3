//! When the task of a GitSync makes its next attempt, and when its status is looked at again.
//!
//! Invariant: after a failure of an object or of an attempt the next attempt does not come before its backoff has passed,
//! unless something changed that may have put it right; an object that is due and was not tried waits for the next one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::outcome::{Outcome, Refused};
use super::reconcile::Task;
use super::registry::CannotRead;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::names::REQUESTED_AT;
use mainstay_git::LookupDue;
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, Class, jitter};

/// How long changes of objects are gathered before the status is looked at.
const GATHER: Duration = Duration::from_millis(20);
/// How long until deletions that are under way are looked at again.
const DELETING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How long after a time of the calendar it is looked at, so that it is past by every clock.
const PAST_IT: Duration = Duration::from_millis(10);
/// Failed attempts in a row after which what passes by itself is not waited for any more.
const REMARKABLE: u32 = 3;
const FAR: Duration = Duration::from_secs(86_400);

impl Task {
    /// When the task has to be woken.
    pub(super) fn due(&self) -> Instant {
        let retry = self.state.failed.due();
        let first = [Some(self.next_look), retry, self.settling, self.push_due()].into_iter().flatten().min();
        first.unwrap_or_else(|| Instant::now() + FAR).min(Instant::now() + FAR)
    }

    /// A push, or a commit that another one has found, is to be looked up.
    pub(super) fn add_push(&mut self, due: Option<LookupDue>) {
        self.pushed = due.map(|due| due.and(self.pushed)).or(self.pushed);
    }

    /// When the remote is looked up because of that: as soon as its server wants to be asked.
    pub(super) fn push_due(&self) -> Option<Instant> {
        self.pushed.map(|due| due.at).max(self.not_before.filter(|_| self.pushed.is_some()))
    }

    /// Whether anything waits for what other GitSyncs do.
    pub(super) fn awaits_others(&self) -> bool {
        self.state.awaits_others || self.state.failed.awaits_others()
    }

    /// Another GitSync changed what it manages or wants, or a Namespace or definition came.
    pub(super) fn others_changed(&mut self) {
        let now = Instant::now();
        let has_lost = self.context.registry.with(&self.owner, |view| view.own().has_lost);
        if has_lost {
            // Some of what was carried out in full is another one's by now.
            self.state.settled = None;
        }
        if self.state.failed.retry_awaiting(now) || self.state.awaits_others || has_lost {
            self.next_look = now;
        }
    }

    /// What this GitSync depends on may be ready now, or another one waits until this one has seen a commit.
    pub(super) fn dependencies_changed(&mut self) {
        let waits = match &self.outcome {
            Some(Outcome::Waiting { .. }) => true,
            Some(Outcome::Refused { reason, .. }) => *reason == Reason::DependencyCycle,
            _ => false,
        };
        if self.context.dependencies.take_awaited(&self.owner) || waits {
            self.next_look = Instant::now();
        }
    }

    /// What was left for a break glass is applied when that ends, and what was to be gone first may be there now; everything else only changes the status.
    pub(super) fn objects_changed(&mut self) {
        if self.state.paused.iter().any(|key| !self.context.writer.is_paused(key)) {
            self.next_look = Instant::now();
        }
        let is_created = |key: &Key| !self.context.writer.has_successor(key);
        if self.state.failed.awaiting_deletion().any(is_created) {
            self.next_look = Instant::now();
        }
        // Gathers what changes together into one status.
        let soon = Instant::now() + GATHER;
        self.settling = Some(self.settling.map_or(soon, |at| at.min(soon)));
    }

    /// The host keys that hold for all repositories are others: what failed may be possible now, and what is pinned may be wrong.
    pub(super) fn host_keys_changed(&mut self) {
        if self.failures_in_a_row > 0 || self.is_pinned() {
            self.next_look = Instant::now();
        }
    }

    /// Notes the request for a sync that the annotation makes; whether there is one that is not answered yet. Something may
    /// have been put right, so what failed is tried again.
    pub(super) fn note_request(&mut self, sync: &GitSync) -> bool {
        let asked = sync.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REQUESTED_AT));
        let status = self.status.as_ref().or(sync.status.as_ref());
        let handled = status.and_then(|status| status.last_handled_request.as_ref());
        let request = asked.filter(|asked| Some(*asked) != handled).cloned();
        let holds = status.is_some_and(|status| !status.held.is_empty());
        if request != self.request {
            self.failed_writes = 0;
        }
        self.request = request;
        if self.request.is_none() {
            return false;
        }
        self.state.failed.retry_all(Instant::now());
        if holds {
            // A user may have deleted or released a held object: no event tells that.
            self.state.settled = None;
        }
        let is_invalid = matches!(&self.outcome, Some(Outcome::Refused { reason: Reason::ManifestInvalid, .. }));
        if is_invalid || self.state.charts.ask_the_cluster() {
            self.context.writer.cluster().kinds_changed();
        }
        true
    }

    /// How long until deletions that are under way are looked at again: not later than one of them takes too long.
    pub(super) fn deletion_wait(&mut self, sync: &GitSync) -> Duration {
        self.rounds += 1;
        let objects = self.state.terminating.as_ref();
        let stuck = objects.and_then(|objects| objects.next_stuck(sync.spec.timeout.0, Timestamp::now()));
        DELETING.delay(self.rounds).min(stuck.map_or(FAR, |left| left + PAST_IT))
    }

    /// What follows from an attempt that `began` then: what the status says of it, and when the next one is made.
    pub(super) fn after(&mut self, sync: &GitSync, attempted: Result<Option<Outcome>, Refused>, began: Timestamp) {
        // A failure that passes says nothing of the remote: its consumer is still waited for.
        let passes = |refused: &Refused| matches!(refused.class, Class::Unavailable | Class::Conflict);
        if !attempted.as_ref().is_err_and(passes) && self.secrets.are_settled() {
            self.context.source.resolved(&self.consumer);
        }
        self.context.registry.update(&self.owner, |row| row.tried = true);
        let interval = sync.spec.interval.0.max(Duration::from_secs(1));
        match attempted {
            Err(refused) => {
                self.refuse(&refused, interval);
                self.publish_unreadable(refused.class);
            }
            Ok(outcome) => {
                self.failures_in_a_row = 0;
                // A commit that waits may be one that cannot be read until it is its turn.
                if !matches!(outcome, Some(Outcome::Waiting { .. })) {
                    self.context.registry.update(&self.owner, |row| row.cannot_read = None);
                }
                self.next_look = Instant::now() + jitter(interval, fastrand::f64());
                if let Some(outcome) = outcome {
                    // What was given up still has our label, or there is another round to come.
                    if outcome.goes_on() || self.state.still_labelled {
                        self.next_look = (Instant::now() + self.deletion_wait(sync)).min(self.next_look);
                    } else {
                        self.rounds = 0;
                    }
                    self.emit_failures(&outcome);
                    self.outcome = Some(outcome);
                } else if !matches!(self.outcome, Some(Outcome::Applied { .. })) {
                    // Nothing is to do, and what kept us from seeing that is over.
                    self.outcome = None;
                }
                if self.has_succeeded() {
                    self.facts.last_success = Some(began);
                }
            }
        }
        self.look_at_next_time(sync, began);
    }

    /// Whether everything is as the commit wants it, as far as that depends on this agent.
    fn has_succeeded(&self) -> bool {
        match &self.outcome {
            Some(Outcome::Applied { failures, guard, .. }) => failures.is_empty() && guard.is_none(),
            Some(Outcome::Frozen { .. }) => true,
            Some(Outcome::Suspended { .. } | Outcome::Waiting { .. } | Outcome::Refused { .. }) => false,
            None => self.state.applied.is_some(),
        }
    }

    /// The other GitSyncs do not wait for this one while nothing but a person can help it.
    fn publish_unreadable(&self, class: Class) {
        let passes = matches!(class, Class::Unavailable | Class::Conflict | Class::NotReady | Class::Bug);
        if passes && self.failures_in_a_row < REMARKABLE {
            return;
        }
        let commit = self.state.reading.map(|commit| commit.to_string());
        let cannot_read = CannotRead { commit, readable: Arc::new(self.state.readable.clone()) };
        self.context.registry.update(&self.owner, |row| row.cannot_read = Some(cannot_read));
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
        // Whoever waits for memory is woken when there is some.
        let waits_for_memory = self.state.no_memory.is_some() && refused.reason == Reason::MemoryExhausted;
        let backoff = if waits_for_memory && self.failures_in_a_row > REMARKABLE { interval } else { backoff };
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

    /// Whether the remote has to be asked `now` although it was asked not long ago: since the last attempt a scheduled time
    /// has come, a window has opened, or a suspension has ended.
    pub(super) fn is_due(&mut self, sync: &GitSync, now: Timestamp) -> bool {
        let Some(last) = self.last_try.replace(now) else { return false };
        let Some(resolved) = self.resolved() else { return false };
        match self.outcome {
            Some(Outcome::Frozen { .. }) if resolved.windows.is_open(now) => true,
            Some(Outcome::Suspended { .. }) => sync.spec.suspended(now).is_none(),
            _ => resolved.windows.is_due(last, now),
        }
    }
}
