//! The time of a GitSync's next attempt and next status update.
//!
//! Invariant: after a failure of an object or an attempt, the next attempt waits for its backoff, unless a change may
//! have corrected the cause. A due object that was not tried waits for the next attempt.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::outcome::{Outcome, Refused};
use super::reconcile::Task;
use super::requested::asked;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_object::Key;
use mainstay_object::failure::{Backoff, Class, jitter};

/// Time for which object changes are collected before the status is updated.
const GATHER: Duration = Duration::from_millis(20);
/// Interval of rounds while deletions are pending.
const DELETING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Delay after a scheduled time, so that the time has passed on every clock.
const PAST_IT: Duration = Duration::from_millis(10);
/// Number of failed attempts after which a temporary failure counts as permanent.
const REMARKABLE: u32 = 3;
const FAR: Duration = Duration::from_secs(86_400);

impl Task {
    /// Returns the time of the next wake-up.
    pub(super) fn due(&self) -> Instant {
        self.timers.first(self.state.unfinished.failed.due()).min(Instant::now() + FAR)
    }

    /// Handles a change of another GitSync's row, or a new Namespace or CustomResourceDefinition.
    pub(super) fn others_changed(&mut self) {
        let now = Instant::now();
        let has_lost = self.context.registry.with(&self.owner, |view| view.own().has_lost);
        if has_lost {
            // Another GitSync has taken over some of the applied objects.
            self.state.commit.unsettle();
        }
        if self.state.unfinished.retry_awaiting(now) || has_lost {
            self.timers.look_at(now);
        }
    }

    /// Handles a change of a dependency, or a dependant that waits for a lookup.
    pub(super) fn dependencies_changed(&mut self) {
        let is_awaited = self.context.dependencies.take_awaited(&self.owner);
        if is_awaited || self.reported.waits_for_dependencies() {
            self.timers.look_at(Instant::now());
        }
    }

    /// Handles changes of live objects. The end of a pause causes an attempt, and so does a deletion that precedes a
    /// recreation. Other changes only update the status.
    pub(super) fn objects_changed(&mut self) {
        if self.state.unfinished.has_resumed(|key| self.context.writer.is_paused(key)) {
            self.timers.look_at(Instant::now());
        }
        let is_created = |key: &Key| !self.context.writer.has_successor(key);
        if self.state.unfinished.failed.awaiting_deletion().any(is_created) {
            self.timers.look_at(Instant::now());
        }
        // Collects changes for one status update.
        self.timers.settle_by(Instant::now() + GATHER);
    }

    /// Handles new host keys for all repositories: a failed lookup may succeed now, and a pinned key may be wrong.
    pub(super) fn host_keys_changed(&mut self) {
        if self.timers.failures() > 0 || self.seen.is_pinned() {
            self.timers.look_at(Instant::now());
        }
    }

    /// Records a sync request by annotation, and makes failed objects due. Returns whether a request is not handled
    /// yet.
    pub(super) fn note_request(&mut self, sync: &GitSync) -> bool {
        let asked = asked(&sync.metadata);
        let status = self.reported.status.get(sync);
        let handled = status.and_then(|status| status.last_handled_request.as_ref());
        let request = asked.filter(|asked| Some(*asked) != handled).cloned();
        let holds = status.is_some_and(|status| !status.held.is_empty());
        let is_asked = request.is_some();
        if self.seen.set_request(request) {
            self.reported.status.forget_failures();
        }
        if !is_asked {
            return false;
        }
        self.state.unfinished.failed.retry_all(Instant::now());
        if holds {
            // A user may have deleted or released a held object, which causes no event.
            self.state.commit.unsettle();
        }
        if self.reported.has_invalid_manifests() || self.state.compiled.charts.ask_the_cluster() {
            self.context.writer.cluster().kinds_changed();
        }
        true
    }

    /// Returns the wait until the next round while deletions are pending. The wait ends at the latest when one of them
    /// exceeds the timeout.
    pub(super) fn deletion_wait(&mut self, sync: &GitSync) -> Duration {
        let rounds = self.timers.count_round();
        let stuck = self.state.removal.next_stuck(sync.spec.timeout.0, Timestamp::now());
        DELETING.delay(rounds).min(stuck.map_or(FAR, |left| left + PAST_IT))
    }

    /// Updates the state after an attempt that started at `began`: the outcome, and the time of the next attempt.
    pub(super) fn after(&mut self, sync: &GitSync, attempted: Result<Option<Outcome>, Refused>, began: Timestamp) {
        // A temporary failure does not show whether the remote is right, so the consumer stays unresolved.
        let passes = |refused: &Refused| matches!(refused.class, Class::Unavailable | Class::Conflict);
        if !attempted.as_ref().is_err_and(passes) && self.sources.is_repository_settled() {
            self.context.source.resolved(&self.names.consumer);
        }
        self.state.progress.trace_end(&attempted);
        self.context.registry.update(&self.owner, |row| row.tried = true);
        let interval = sync.spec.interval.0.max(Duration::from_secs(1));
        match attempted {
            Err(refused) => {
                self.refuse(&refused, interval);
                self.publish_unreadable(refused.class);
            }
            Ok(outcome) => {
                // A commit that waits for dependencies may be unreadable until it is applied.
                if !matches!(outcome, Some(Outcome::Waiting { .. })) {
                    self.context.registry.update(&self.owner, |row| row.cannot_read = None);
                }
                self.timers.succeeded(Instant::now() + jitter(interval, fastrand::f64()));
                if let Some(outcome) = outcome {
                    // Another round follows, or a handed over object still has the label of this GitSync.
                    if outcome.goes_on() || self.state.removal.is_still_labelled {
                        let wait = self.deletion_wait(sync);
                        self.timers.look_by(Instant::now() + wait);
                    } else {
                        self.timers.end_rounds();
                    }
                    self.emit_failures(&outcome);
                    self.reported.outcome = Some(outcome);
                } else if !matches!(self.reported.outcome, Some(Outcome::Applied { .. })) {
                    // There was no work, and the earlier obstacle is gone.
                    self.reported.outcome = None;
                }
                if self.has_succeeded() {
                    self.reported.facts.last_success = Some(began);
                }
            }
        }
        self.look_at_next_time(sync, began);
    }

    /// Whether the cluster matches the commit as far as this agent can make it match.
    fn has_succeeded(&self) -> bool {
        match &self.reported.outcome {
            Some(Outcome::Applied { failures, guard, .. }) => failures.is_empty() && guard.is_none(),
            Some(Outcome::Frozen { .. }) => true,
            Some(Outcome::Suspended { .. } | Outcome::Waiting { .. } | Outcome::Refused { .. }) => false,
            None => self.state.applied.commit().is_some(),
        }
    }

    /// Publishes that the GitSync is unreadable, if only a user can correct the failure. Other GitSyncs then do not
    /// wait for it.
    fn publish_unreadable(&self, class: Class) {
        let passes = matches!(class, Class::Unavailable | Class::Conflict | Class::NotReady | Class::Bug);
        if passes && self.timers.failures() < REMARKABLE {
            return;
        }
        let cannot_read = self.state.reading.cannot_read();
        self.context.registry.update(&self.owner, |row| row.cannot_read = Some(cannot_read));
    }

    /// Postpones objects that were due at `then`, the start of the last attempt, and were not tried.
    pub(super) fn postpone_untried(&mut self, then: Instant) {
        self.state.unfinished.failed.postpone(then, self.timers.next_look());
    }

    /// Backs off after a failed attempt.
    pub(super) fn back_off(&mut self, refused: &Refused, interval: Duration) {
        let failures = self.timers.count_failure();
        let backoff = refused
            .class
            .backoff()
            .map(|backoff| backoff.delay(failures))
            .map_or(interval, |wait| wait.min(interval.max(Duration::from_secs(1))));
        // Free memory wakes an attempt that waits for it, so its polls use the interval.
        let waits_for_memory = self.state.reading.no_memory().is_some() && refused.reason == Reason::MemoryExhausted;
        let backoff = if waits_for_memory && failures > REMARKABLE { interval } else { backoff };
        let wait = jitter(backoff, fastrand::f64()).max(refused.retry_after.unwrap_or_default());
        self.timers.back_off(wait, refused.retry_after, Instant::now());
    }

    /// Limits the wait to the next scheduled change: a window, a scheduled sync, or the end of a suspension.
    pub(super) fn look_at_next_time(&mut self, sync: &GitSync, began: Timestamp) {
        let next = match sync.spec.suspended(began) {
            Some(until) => until,
            None => self.seen.resolved().and_then(|resolved| resolved.windows.next(began)),
        };
        if let Some(at) = next {
            let wait = at.duration_since(Timestamp::now()).unsigned_abs();
            self.timers.look_by(Instant::now() + wait + PAST_IT);
        }
    }

    /// Whether the remote must be looked up at `now` in spite of a recent lookup: since the last attempt a scheduled
    /// time passed, a window opened, or a suspension ended.
    pub(super) fn is_due(&mut self, sync: &GitSync, now: Timestamp) -> bool {
        let Some(last) = self.timers.tried(now) else { return false };
        let Some(resolved) = self.seen.resolved() else { return false };
        match self.reported.outcome {
            Some(Outcome::Frozen { .. }) if resolved.windows.is_open(now) => true,
            Some(Outcome::Suspended { .. }) => sync.spec.suspended(now).is_none(),
            _ => resolved.windows.is_due(last, now),
        }
    }
}
