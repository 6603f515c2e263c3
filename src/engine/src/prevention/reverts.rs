//! Backoffs of policies and bindings that are reverted repeatedly.
//!
//! Not here: clocks. Times are arguments.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::seen::Part;
use crate::managed::revert_backoff::{RevertBackoff, ceiling};

/// Backoffs by kind and name.
#[derive(Debug)]
pub(super) struct Reverts {
    began: Instant,
    backoffs: HashMap<(Part, String), RevertBackoff>,
}

impl Reverts {
    /// Returns an empty table. Times of writes must not be earlier than `began`.
    pub(super) fn new(began: Instant) -> Self {
        Self { began, backoffs: HashMap::new() }
    }

    /// Records a write at `now` and returns the delay of the next one.
    pub(super) fn add(&mut self, part: Part, name: &str, now: Instant) -> Duration {
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        self.backoffs.retain(|_, backoff| backoff.update_contended(seconds) || !backoff.is_expired(seconds));
        let backoff = self.backoffs.entry((part, name.to_owned())).or_default();
        backoff.grow(seconds);
        backoff.delay(seconds, ceiling("admissionregistration.k8s.io", part.kind()))
    }

    /// Removes the backoffs of a name whose desired content changed.
    pub(super) fn remove(&mut self, name: &str) {
        self.backoffs.retain(|(_, known), _| known != name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_changes_of_a_policy_are_reverted_ever_more_slowly() {
        let began = Instant::now();
        let (mut reverts, mut now) = (Reverts::new(began), began);
        let mut writes_until = |end: Duration| {
            let mut writes = 0;
            while now < began + end {
                writes += 1;
                now += reverts.add(Part::Policy, "web", now);
            }
            writes
        };
        let (first, second) = (writes_until(Duration::from_secs(30)), writes_until(Duration::from_secs(60)));
        // Penalties of 5 to 11 give delays of 0.25 to 10 s: about ten writes come early, the others in intervals of
        // five seconds.
        assert!((8..=15).contains(&first), "{first}");
        assert!((3..=7).contains(&second), "{second}");
        assert_eq!(reverts.add(Part::Binding, "web", now), Duration::ZERO, "the other one");
        assert!(reverts.add(Part::Policy, "web", now) > Duration::from_secs(5));
        reverts.remove("web");
        assert_eq!(reverts.add(Part::Policy, "web", now), Duration::ZERO, "another content");
    }

    #[test]
    fn expired_backoffs_are_removed() {
        let began = Instant::now();
        let mut reverts = Reverts::new(began);
        for _ in 0..6 {
            reverts.add(Part::Policy, "web", began);
        }
        reverts.add(Part::Policy, "db", began + Duration::from_secs(24 * 3600));
        assert_eq!(reverts.backoffs.len(), 1);
    }
}
