//! The times at which the task of a GitSync wakes, and the counts that its backoffs need.
//!
//! Not here: which change moves a time (`schedule`).

use std::time::{Duration, Instant};

use jiff::Timestamp;

use mainstay_git::{Commit, LookupDue};

/// The times of one task.
#[derive(Debug)]
pub(super) struct Timers {
    /// Time of the next attempt.
    next_look: Instant,
    /// Time of a lookup because of a push, or because another consumer found a commit.
    pushed: Option<LookupDue>,
    /// Time of a change of the remote that was not looked up yet. Earlier responses of the remote are outdated.
    expired: Option<Instant>,
    /// The server's `Retry-After`: no lookup because of a push before this time.
    not_before: Option<Instant>,
    /// Time of the next status update.
    settling: Option<Instant>,
    /// Start of the last attempt.
    last_try: Option<Timestamp>,
    /// Number of consecutive failed attempts.
    failures: u32,
    /// Number of consecutive rounds that ended with pending deletions.
    rounds: u32,
}

impl Timers {
    /// Returns the times of a task that starts at `now` with an attempt.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next_look: now,
            pushed: None,
            expired: None,
            not_before: None,
            settling: None,
            last_try: None,
            failures: 0,
            rounds: 0,
        }
    }

    /// Returns the first of all times. `retry` is that of the first failed object.
    pub(super) fn first(&self, retry: Option<Instant>) -> Instant {
        [retry, self.settling, self.push_due()].into_iter().flatten().fold(self.next_look, Instant::min)
    }

    /// Sets the time of the next attempt.
    pub(super) fn look_at(&mut self, at: Instant) {
        self.next_look = at;
    }

    /// Makes the next attempt at this time, unless it is earlier.
    pub(super) fn look_by(&mut self, at: Instant) {
        self.next_look = self.next_look.min(at);
    }

    /// Returns the time of the next attempt.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// Adds a lookup because of a push, or because another consumer found a commit.
    pub(super) fn add_push(&mut self, due: Option<LookupDue>) {
        self.pushed = due.map(|due| due.and(self.pushed)).or(self.pushed);
    }

    /// Returns the time of that lookup, not before the server's `Retry-After`.
    fn push_due(&self) -> Option<Instant> {
        self.pushed.map(|due| due.at).max(self.not_before.filter(|_| self.pushed.is_some()))
    }

    /// Takes that lookup if it is due at `now`. Returns whether it may find a commit other than the known one.
    pub(super) fn take_push(&mut self, now: Instant, known: Option<Commit>) -> bool {
        let pushed = self.push_due().filter(|due| *due <= now).and_then(|_| self.pushed.take());
        let pushed = pushed.filter(|due| !due.is_known(known));
        self.expired = self.expired.max(pushed.map(|due| due.after));
        pushed.is_some()
    }

    /// Takes the time of a change of the remote that was not looked up yet.
    pub(super) fn take_expired(&mut self) -> Option<Instant> {
        self.expired.take()
    }

    /// Sets the time of the next status update.
    pub(super) fn settle_at(&mut self, at: Option<Instant>) {
        self.settling = at;
    }

    /// Makes the next status update at this time, unless it is earlier.
    pub(super) fn settle_by(&mut self, at: Instant) {
        self.settling = Some(self.settling.map_or(at, |known| known.min(at)));
    }

    /// Records the start of an attempt. Returns that of the last one.
    pub(super) fn tried(&mut self, at: Timestamp) -> Option<Timestamp> {
        self.last_try.replace(at)
    }

    /// Counts a failed attempt. Returns the number of consecutive ones.
    pub(super) fn count_failure(&mut self) -> u32 {
        self.failures += 1;
        self.failures
    }

    /// Returns the number of consecutive failed attempts.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Records an attempt that did not fail. The next one is at this time.
    pub(super) fn succeeded(&mut self, next: Instant) {
        self.failures = 0;
        self.next_look = next;
    }

    /// Makes the next attempt after this wait. Pushes wait for the server's `Retry-After`.
    pub(super) fn back_off(&mut self, wait: Duration, retry_after: Option<Duration>, now: Instant) {
        self.next_look = now + wait;
        self.not_before = retry_after.map(|wait| now + wait);
    }

    /// Counts a round that ended with pending deletions. Returns the number of consecutive ones.
    pub(super) fn count_round(&mut self) -> u32 {
        self.rounds += 1;
        self.rounds
    }

    /// Records a round that ended without pending deletions.
    pub(super) fn end_rounds(&mut self) {
        self.rounds = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_wakes_at_the_first_of_its_times() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::new(at(9));
        assert_eq!(timers.first(None), at(9));
        timers.look_by(at(20));
        assert_eq!(timers.next_look(), at(9));
        timers.look_by(at(8));
        timers.settle_by(at(7));
        timers.settle_by(at(10));
        assert_eq!((timers.first(None), timers.first(Some(at(6)))), (at(7), at(6)));
        timers.settle_at(None);
        assert_eq!(timers.first(None), at(8));
        timers.look_at(at(30));
        assert_eq!(timers.first(None), at(30));
    }

    #[test]
    fn a_success_resets_the_failures_and_a_complete_round_the_rounds() {
        let start = Instant::now();
        let mut timers = Timers::new(start);
        assert_eq!((timers.count_failure(), timers.count_failure(), timers.failures()), (1, 2, 2));
        timers.back_off(Duration::from_secs(5), None, start);
        assert_eq!(timers.next_look(), start + Duration::from_secs(5));
        timers.succeeded(start);
        assert_eq!((timers.failures(), timers.next_look()), (0, start));
        assert_eq!((timers.count_round(), timers.count_round()), (1, 2));
        timers.end_rounds();
        assert_eq!(timers.count_round(), 1);
    }
}
