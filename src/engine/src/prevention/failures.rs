//! Failures and the time of their retry.
//!
//! Not here: clocks. Times are arguments.

use std::collections::HashMap;
use std::time::Instant;

use super::state::State;

/// The name that stands for all objects.
pub(super) const ALL: &str = "";

#[derive(Debug)]
struct Failure {
    /// Number of consecutive failures.
    count: u32,
    state: State,
    again: Instant,
}

/// Failures by object name or [`ALL`].
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<String, Failure>);

impl Failures {
    /// Returns the number of consecutive failures, if the name fails once more now.
    pub(super) fn next(&self, name: &str) -> u32 {
        self.0.get(name).map_or(1, |failure| failure.count + 1)
    }

    /// Records a failure and the time of its retry.
    pub(super) fn add(&mut self, name: &str, state: State, again: Instant) {
        let count = self.next(name);
        self.0.insert(name.to_owned(), Failure { count, state, again });
    }

    /// Removes a failure.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Removes all failures.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The state to show for a failure.
    pub(super) fn state(&self, name: &str) -> Option<&State> {
        self.0.get(name).map(|failure| &failure.state)
    }

    /// Whether a name waits for its retry at `now`.
    pub(super) fn waits(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_some_and(|failure| failure.again > now)
    }

    /// The time of the next retry: that of [`ALL`], or with `each` that of any name.
    pub(super) fn due(&self, each: bool) -> Option<Instant> {
        let counted = self.0.iter().filter(|(name, _)| each || *name == ALL);
        counted.map(|(_, failure)| failure.again).min()
    }

    /// Removes failures that were due at `now`, except that of [`ALL`]. Those names were retried or need no write any
    /// more.
    pub(super) fn forget_due(&mut self, now: Instant) {
        self.0.retain(|name, failure| name == ALL || failure.again > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_all_stays_until_the_next_attempt() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        for name in [ALL, "web"] {
            failures.add(name, State::Pending, now);
        }
        failures.forget_due(now);
        assert_eq!((failures.due(true), failures.due(false)), (Some(now), Some(now)));
        assert!(failures.state("web").is_none());
    }
}
