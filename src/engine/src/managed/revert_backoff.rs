//! Flap damping: how long the next revert of an object waits, given how often the object was changed lately.
//!
//! Two penalties grow by one with each apply that really changed something and decay exponentially, with time constants
//! of one minute (fast) and one hour (slow). Only time resets them, or a commit that changes the object.
//!
//! Invariant: the delay is zero below the thresholds, never shrinks as a penalty grows, and has a ceiling.

use std::time::Duration;

const FAST_SECONDS: f64 = 60.0;
const SLOW_SECONDS: f64 = 3600.0;
/// Fast penalty from which reverts wait, and from which the object is contended.
const FAST_LIMIT: f64 = 5.0;
/// Slow penalty from which reverts wait.
const SLOW_LIMIT: f64 = 30.0;
/// Fast penalty below which an object is no longer contended.
const NOT_CONTENDED: f64 = 1.0;
/// Penalties below this are forgotten.
const EXPIRED: f64 = 0.1;

/// The two penalties of one object, as of `at` seconds on a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RevertBackoff {
    fast: f64,
    slow: f64,
    at: f64,
    contended: bool,
}

/// What one more change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// The object is as contended as before.
    Same,
    /// The object has become contended.
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

    /// An apply at `now` changed something.
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

    /// How long a revert at `now` has to wait. `most`: 10 s for what protects the cluster, 300 s for the rest.
    pub fn delay(self, now: f64, most: Duration) -> Duration {
        let penalty = self.decayed(now);
        let fast = if penalty.fast < FAST_LIMIT { 0.0 } else { 0.25 * (penalty.fast - FAST_LIMIT).min(20.0).exp2() };
        let slow = if penalty.slow < SLOW_LIMIT { 0.0 } else { ((penalty.slow - SLOW_LIMIT) / 5.0).min(20.0).exp2() };
        Duration::from_secs_f64(fast.max(slow)).min(most)
    }

    /// Ends the contention if nobody has changed the object for long enough at `now`; whether it is still contended.
    pub(crate) fn update_contended(&mut self, now: f64) -> bool {
        if self.contended && self.decayed(now).fast < NOT_CONTENDED {
            self.contended = false;
        }
        self.contended
    }

    /// When the next thing happens to it if nobody changes the object any more: it is contended no longer, or the
    /// penalties can be forgotten. Up to a second late, so that it has happened by then whatever was rounded.
    pub(crate) fn next_change(self) -> f64 {
        let until = |penalty: f64, limit: f64, seconds: f64| seconds * (penalty / limit).max(1.0).ln();
        let wait = if self.contended {
            until(self.fast, NOT_CONTENDED, FAST_SECONDS)
        } else {
            until(self.fast, EXPIRED, FAST_SECONDS).max(until(self.slow, EXPIRED, SLOW_SECONDS))
        };
        (self.at + wait).floor() + 1.0
    }

    /// Whether the penalties can be forgotten at `now`.
    pub fn is_expired(self, now: f64) -> bool {
        let penalty = self.decayed(now);
        penalty.fast < EXPIRED && penalty.slow < EXPIRED && !self.contended
    }
}

/// The longest delay for objects of this group and kind: what grants or blocks access goes back soonest.
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
    fn acts_at_once_below_five_and_then_doubles() {
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
    fn cools_by_time_alone() {
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
    fn says_when_it_is_worth_looking_at_again() {
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
    fn slows_a_slow_fight_too() {
        let mut backoff = RevertBackoff::default();
        for step in 0..60 {
            backoff.grow(f64::from(step) * 30.0);
        }
        assert!(backoff.delay(60.0 * 30.0, MOST) >= Duration::from_secs(1));
    }
}
