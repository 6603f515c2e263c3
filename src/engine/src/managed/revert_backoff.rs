//! Flap damping: the delay of the next revert of an object, depending on its recent changes.
//!
//! Two penalties grow by one with each apply that changed the object. They decay exponentially, with time constants of
//! one minute (fast) and one hour (slow). Only time or a commit that changes the object resets them.
//!
//! Invariant: the delay is zero below the thresholds, never shrinks as a penalty grows, and has a ceiling.

use std::time::Duration;

const FAST_SECONDS: f64 = 60.0;
const SLOW_SECONDS: f64 = 3600.0;
/// Fast penalty from which on reverts wait and the object counts as contended.
const FAST_LIMIT: f64 = 5.0;
/// Slow penalty from which on reverts wait.
const SLOW_LIMIT: f64 = 30.0;
/// Fast penalty below which an object is no longer contended.
const NOT_CONTENDED: f64 = 1.0;
/// Penalties below this are removed.
const EXPIRED: f64 = 0.1;

/// The two penalties of one object, as of `at` seconds on a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RevertBackoff {
    fast: f64,
    slow: f64,
    at: f64,
    contended: bool,
}

/// The effect of one more change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// The object is as contended as before.
    Same,
    /// The object became contended.
    Contended,
}

impl RevertBackoff {
    fn decayed(self, now: f64) -> Self {
        let passed = (now - self.at).max(0.0);
        Self {
            fast: self.fast * (-passed / FAST_SECONDS).exp(),
            slow: self.slow * (-passed / SLOW_SECONDS).exp(),
            at: now,
            contended: self.contended,
        }
    }

    /// Records an apply at `now` that changed the object.
    pub fn grow(&mut self, now: f64) -> Shift {
        *self = self.decayed(now);
        self.fast += 1.0;
        self.slow += 1.0;
        if self.fast >= FAST_LIMIT && !self.contended {
            self.contended = true;
            return Shift::Contended;
        }
        Shift::Same
    }

    /// Returns the delay of a revert at `now`. `most` is 10 s for kinds that protect the cluster, and 300 s for others.
    pub fn delay(self, now: f64, most: Duration) -> Duration {
        let penalty = self.decayed(now);
        let fast = if penalty.fast < FAST_LIMIT { 0.0 } else { 0.25 * (penalty.fast - FAST_LIMIT).min(20.0).exp2() };
        let slow = if penalty.slow < SLOW_LIMIT { 0.0 } else { ((penalty.slow - SLOW_LIMIT) / 5.0).min(20.0).exp2() };
        Duration::from_secs_f64(fast.max(slow)).min(most)
    }

    /// Ends the contention at `now` if the object was unchanged for long enough. Returns whether it is still contended.
    pub(crate) fn update_contended(&mut self, now: f64) -> bool {
        if self.contended && self.decayed(now).fast < NOT_CONTENDED {
            self.contended = false;
        }
        self.contended
    }

    /// Returns the time of the next change without further writes: the end of the contention, or the expiry. Rounded up
    /// by at most one second.
    pub(crate) fn next_change(self) -> f64 {
        let until = |penalty: f64, limit: f64, seconds: f64| seconds * (penalty / limit).max(1.0).ln();
        let wait = if self.contended {
            until(self.fast, NOT_CONTENDED, FAST_SECONDS)
        } else {
            until(self.fast, EXPIRED, FAST_SECONDS).max(until(self.slow, EXPIRED, SLOW_SECONDS))
        };
        (self.at + wait).floor() + 1.0
    }

    /// Whether the penalties are expired at `now`.
    pub fn is_expired(self, now: f64) -> bool {
        let penalty = self.decayed(now);
        penalty.fast < EXPIRED && penalty.slow < EXPIRED && !self.contended
    }
}

/// Returns the maximum delay for this group and kind. Kinds that grant or block access have the shortest.
pub(crate) fn ceiling(group: &str, kind: &str) -> Duration {
    let protects = group == "rbac.authorization.k8s.io"
        || group == "admissionregistration.k8s.io"
        || (group == "networking.k8s.io" && kind == "NetworkPolicy");
    Duration::from_secs(if protects { 10 } else { 300 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(300);

    #[test]
    fn delays_are_zero_below_five_and_then_double() {
        let mut backoff = RevertBackoff::default();
        for _ in 0..4 {
            assert_eq!(backoff.grow(0.0), Shift::Same);
            assert_eq!(backoff.delay(0.0, MOST), Duration::ZERO);
        }
        assert_eq!(backoff.grow(0.0), Shift::Contended);
        assert_eq!(backoff.delay(0.0, MOST), Duration::from_millis(250));
        backoff.grow(0.0);
        assert_eq!(backoff.delay(0.0, MOST), Duration::from_millis(500));
        for _ in 0..100 {
            backoff.grow(0.0);
        }
        assert_eq!(backoff.delay(0.0, MOST), MOST);
        assert_eq!(backoff.delay(0.0, ceiling("rbac.authorization.k8s.io", "Role")), Duration::from_secs(10));
    }

    #[test]
    fn penalties_decay_only_with_time() {
        let mut backoff = RevertBackoff::default();
        for _ in 0..6 {
            backoff.grow(0.0);
        }
        assert!(backoff.update_contended(60.0));
        assert!(!backoff.update_contended(120.0));
        assert!(!backoff.is_expired(600.0));
        assert!(backoff.is_expired(4.0 * 3600.0 + 3600.0));
    }

    #[test]
    fn returns_the_time_of_the_next_change() {
        let mut backoff = RevertBackoff::default();
        for growths in 1..20 {
            backoff.grow(f64::from(growths) / 7.0);
            let mut later = backoff;
            if backoff.contended {
                let end = backoff.next_change();
                assert!(later.update_contended(end - 2.0) && !later.update_contended(end), "{backoff:?}");
            }
            let expiry = later.next_change();
            assert!(!later.is_expired(expiry - 2.0) && later.is_expired(expiry), "{later:?}");
        }
    }

    #[test]
    fn delays_a_slow_fight_too() {
        let mut backoff = RevertBackoff::default();
        for step in 0..60 {
            backoff.grow(f64::from(step) * 30.0);
        }
        assert!(backoff.delay(60.0 * 30.0, MOST) >= Duration::from_secs(1));
    }
}
