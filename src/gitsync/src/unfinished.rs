//! The objects that a round could not bring to their desired state, and what they wait for.
//!
//! Not here: the retry of each object (`failures`).

use std::collections::HashSet;
use std::time::Instant;

use super::contest_watch::ContestWatch;
use super::failures::Failures;
use mainstay_object::Key;

/// The unfinished objects of the last round.
#[derive(Default)]
pub(super) struct Unfinished {
    /// Objects whose last apply or deletion failed.
    pub(super) failed: Failures,
    /// The watches of other tools' objects that manage failed objects.
    pub(super) contest: Option<Box<ContestWatch>>,
    /// Paused objects that the commit changes.
    paused: HashSet<Key>,
    /// Whether another GitSync must act first.
    waits_for_others: bool,
}

impl Unfinished {
    /// Begins a round, which finds the paused objects again.
    pub(super) fn begin_round(&mut self) {
        self.paused.clear();
    }

    /// Records that a paused object waits for the end of its pause.
    pub(super) fn pause(&mut self, key: Key) {
        self.paused.insert(key);
    }

    /// Records whether another GitSync must act before the next round.
    pub(super) fn await_others(&mut self, awaits: bool) {
        self.waits_for_others = awaits;
    }

    /// Whether the round left no object paused, and waits for no other GitSync.
    pub(super) fn waits_for_nothing(&self) -> bool {
        self.paused.is_empty() && !self.waits_for_others
    }

    /// Whether the GitSync waits for others, as a whole or with one of its objects.
    pub(super) fn waits_for_others(&self) -> bool {
        self.waits_for_others || self.failed.waits_for_others()
    }

    /// Makes the objects due that wait for another GitSync. Returns whether the GitSync waits for one.
    pub(super) fn retry_awaiting(&mut self, now: Instant) -> bool {
        self.failed.retry_awaiting(now) || self.waits_for_others
    }

    /// Whether the pause of an object has ended.
    pub(super) fn has_resumed(&self, is_paused: impl Fn(&Key) -> bool) -> bool {
        self.paused.iter().any(|key| !is_paused(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::conditions::Reason;
    use mainstay_object::failure::Class;

    #[test]
    fn the_end_of_a_pause_is_seen_until_the_next_round() {
        let (mut unfinished, key) = (Unfinished::default(), Key::new("", "ConfigMap", Some("shop"), "a"));
        assert!(unfinished.waits_for_nothing() && !unfinished.has_resumed(|_| false));
        unfinished.pause(key);
        assert!(!unfinished.waits_for_nothing() && !unfinished.has_resumed(|_| true));
        assert!(unfinished.has_resumed(|_| false));
        unfinished.begin_round();
        assert!(unfinished.waits_for_nothing() && !unfinished.has_resumed(|_| false));
    }

    #[test]
    fn a_git_sync_waits_for_others_as_a_whole_or_with_an_object() {
        let mut unfinished = Unfinished::default();
        assert!(!unfinished.waits_for_others() && !unfinished.retry_awaiting(Instant::now()));
        unfinished.await_others(true);
        assert!(!unfinished.waits_for_nothing() && unfinished.waits_for_others());
        unfinished.await_others(false);
        let (key, message) = (Key::new("", "ConfigMap", Some("shop"), "a"), "waits".to_owned());
        unfinished.failed.add(&key, Class::NotReady, Reason::OwnershipConflict, message, None);
        assert!(unfinished.waits_for_nothing() && unfinished.waits_for_others());
        assert!(unfinished.retry_awaiting(Instant::now()));
    }
}
