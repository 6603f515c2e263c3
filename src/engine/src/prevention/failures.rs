//! What failed, and when it is tried again.
//!
//! Deliberately absent: clocks; times come in.

use std::collections::HashMap;
use std::time::Instant;

use super::state::State;

/// In the place of a name: all objects.
pub(super) const ALL: &str = "";

/// Something that failed.
#[derive(Debug)]
struct Failure {
    /// In a row.
    count: u32,
    state: State,
    again: Instant,
}

/// By the names of objects, or [`ALL`].
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<String, Failure>);

impl Failures {
    /// How often something has failed in a row, with this time.
    pub(super) fn next(&self, name: &str) -> u32 {
        self.0.get(name).map_or(1, |failure| failure.count + 1)
    }

    /// Something failed, and is tried again then.
    pub(super) fn add(&mut self, name: &str, state: State, again: Instant) {
        let count = self.next(name);
        self.0.insert(name.to_owned(), Failure { count, state, again });
    }

    /// It did not fail, or may not fail again.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Nothing has failed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is said of something that failed.
    pub(super) fn state(&self, name: &str) -> Option<&State> {
        self.0.get(name).map(|failure| &failure.state)
    }

    /// Whether something waits at `now` until it is tried again.
    pub(super) fn waits(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_some_and(|failure| failure.again > now)
    }

    /// When what failed for all is tried again, or, with `each`, the first of whatever failed.
    pub(super) fn due(&self, each: bool) -> Option<Instant> {
        let counted = self.0.iter().filter(|(name, _)| each || *name == ALL);
        counted.map(|(_, failure)| failure.again).min()
    }

    /// Forgets which names were due at `now`: they were tried again, or need no more.
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
