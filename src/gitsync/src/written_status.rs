//! The status of a GitSync as this agent last wrote it, and when the next one may be written.
//!
//! Not here: the content of a status (`status`), and its urgency (`urgency`).

use std::time::{Duration, Instant};

use super::status_turn::StatusTurn;
use super::urgency::{Urgency, WriteBudget};
use mainstay_api::GitSync;
use mainstay_api::git_sync::GitSyncStatus;
use mainstay_object::failure::Class;

/// The written status of one GitSync.
#[derive(Debug, Default)]
pub(super) struct WrittenStatus {
    /// The last written status; `None` until this agent has written one, or has found its own unchanged.
    status: Option<GitSyncStatus>,
    budget: WriteBudget,
    /// Number of consecutive failed writes.
    failures: u32,
    /// The turn of a status that only names a new commit.
    pub(super) turn: StatusTurn,
    /// End of the delay of a status that shows unhealthy objects, counted from the first such status.
    grace: Option<Instant>,
}

impl WrittenStatus {
    pub(super) fn new(turn: StatusTurn) -> Self {
        Self { turn, ..Self::default() }
    }

    /// Returns the last written status: that of this agent, otherwise that of an earlier one.
    pub(super) fn get<'a>(&'a self, sync: &'a GitSync) -> Option<&'a GitSyncStatus> {
        self.status.as_ref().or(sync.status.as_ref())
    }

    /// Records the status that the GitSync has.
    pub(super) fn set(&mut self, status: GitSyncStatus) {
        self.status = Some(status);
        self.grace = None;
        self.turn.end();
    }

    /// Returns the time of the next allowed write with this urgency, at least `now`; `None` if no write is necessary.
    pub(super) fn due(&self, urgency: Urgency, now: Instant) -> Option<Instant> {
        self.budget.due(urgency, now)
    }

    /// Whether this agent has neither written a status nor failed to.
    pub(super) fn is_first(&self) -> bool {
        self.budget.is_untouched()
    }

    /// Records a successful write.
    pub(super) fn succeeded(&mut self, now: Instant) {
        self.budget.written(now);
        self.failures = 0;
    }

    /// Records a failed write, which ends the turn. Returns the time of the next one. `chance` is from 0 to 1.
    pub(super) fn failed(
        &mut self,
        class: Class,
        retry_after: Option<Duration>,
        (now, chance): (Instant, f64),
    ) -> Instant {
        self.turn.end();
        self.failures += 1;
        let again = now + class.status_delay(self.failures, retry_after, chance);
        self.budget.refused(again);
        again
    }

    /// Whether the last write failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Makes the next request count as if no write had failed.
    pub(super) fn forget_failures(&mut self) {
        self.failures = 0;
    }

    /// Delays a status that shows unhealthy objects until this time. The delay only becomes shorter. Returns its end.
    pub(super) fn delay_until(&mut self, at: Instant) -> Instant {
        let until = self.grace.map_or(at, |until| until.min(at));
        self.grace = Some(until);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_becomes_shorter_until_a_status_is_written() {
        let (start, mut written) = (Instant::now(), WrittenStatus::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!([4, 2, 3].map(|seconds| written.delay_until(at(seconds))), [at(4), at(2), at(2)]);
        written.set(GitSyncStatus::default());
        assert_eq!(written.delay_until(at(5)), at(5));
    }

    #[test]
    fn a_failed_write_is_repeated_later_and_a_success_ends_the_failures() {
        let (now, mut written) = (Instant::now(), WrittenStatus::default());
        assert!(written.is_first() && !written.has_failed());
        let again = written.failed(Class::Unavailable, Some(Duration::from_secs(600)), (now, 0.5));
        assert!(again >= now + Duration::from_secs(600), "the server asked for it");
        assert!(!written.is_first() && written.has_failed());
        assert_eq!(written.due(Urgency::Now, now), Some(again));
        written.succeeded(again);
        assert!(!written.has_failed());
    }
}
