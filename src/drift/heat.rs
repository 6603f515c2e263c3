//! How contested an object is, and how long the next revert waits for it.
//!
//! Two heats grow by one with each apply that really changed something and decay exponentially, with time constants of
//! one minute and one hour. Nothing ever resets them but time, or a commit that changes the object.
//!
//! Invariant: the delay is zero below the thresholds, never shrinks as a heat grows, and has a ceiling.

use std::time::Duration;

const FAST_SECONDS: f64 = 60.0;
const SLOW_SECONDS: f64 = 3600.0;
/// Fast heat from which reverts wait, and from which the object counts as contended.
const FAST_LIMIT: f64 = 5.0;
/// Slow heat from which reverts wait.
const SLOW_LIMIT: f64 = 30.0;
/// Fast heat below which an object is no longer contended.
const CALM: f64 = 1.0;
/// Heats below this are forgotten.
const COLD: f64 = 0.1;

/// The two heats of one object, as of `at` seconds on a monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heat {
    fast: f64,
    slow: f64,
    at: f64,
    contended: bool,
}

/// What one more change did to the heat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Nothing worth telling.
    Same,
    /// The object has become contended.
    Contended,
}

impl Heat {
    fn cooled(self, now: f64) -> Self {
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
        *self = self.cooled(now);
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
        let heat = self.cooled(now);
        let fast = if heat.fast < FAST_LIMIT { 0.0 } else { 0.25 * (heat.fast - FAST_LIMIT).min(20.0).exp2() };
        let slow = if heat.slow < SLOW_LIMIT { 0.0 } else { ((heat.slow - SLOW_LIMIT) / 5.0).min(20.0).exp2() };
        Duration::from_secs_f64(fast.max(slow)).min(most)
    }

    /// Whether the object still counts as contended at `now`.
    pub fn contended(&mut self, now: f64) -> bool {
        if self.contended && self.cooled(now).fast < CALM {
            self.contended = false;
        }
        self.contended
    }

    /// When the next thing happens to it if nobody changes the object any more: it is contended no longer, or is
    /// forgotten. Up to a second late, so that it has happened by then whatever was rounded.
    pub fn next_change(self) -> f64 {
        let until = |heat: f64, limit: f64, seconds: f64| seconds * (heat / limit).max(1.0).ln();
        let wait = if self.contended {
            until(self.fast, CALM, FAST_SECONDS)
        } else {
            until(self.fast, COLD, FAST_SECONDS).max(until(self.slow, COLD, SLOW_SECONDS))
        };
        (self.at + wait).floor() + 1.0
    }

    /// Whether the heats can be forgotten at `now`.
    pub fn cold(self, now: f64) -> bool {
        let heat = self.cooled(now);
        heat.fast < COLD && heat.slow < COLD && !self.contended
    }
}

/// The longest delay for objects of this group and kind: what grants or blocks access goes back soonest.
pub fn ceiling(group: &str, kind: &str) -> Duration {
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
        let mut heat = Heat::default();
        for _ in 0..4 {
            assert_eq!(heat.grow(0.0), Shift::Same);
            assert_eq!(heat.delay(0.0, MOST), Duration::ZERO);
        }
        assert_eq!(heat.grow(0.0), Shift::Contended);
        assert_eq!(heat.delay(0.0, MOST), Duration::from_millis(250));
        heat.grow(0.0);
        assert_eq!(heat.delay(0.0, MOST), Duration::from_millis(500));
        for _ in 0..100 {
            heat.grow(0.0);
        }
        assert_eq!(heat.delay(0.0, MOST), MOST);
        assert_eq!(heat.delay(0.0, ceiling("rbac.authorization.k8s.io", "Role")), Duration::from_secs(10));
    }

    #[test]
    fn cools_by_time_alone() {
        let mut heat = Heat::default();
        for _ in 0..6 {
            heat.grow(0.0);
        }
        assert!(heat.contended(60.0));
        assert!(!heat.contended(120.0));
        assert!(!heat.cold(600.0));
        assert!(heat.cold(4.0 * 3600.0 + 3600.0));
    }

    #[test]
    fn says_when_it_is_worth_looking_at_again() {
        let mut heat = Heat::default();
        for growths in 1..20 {
            heat.grow(f64::from(growths) / 7.0);
            let mut cooling = heat;
            if heat.contended {
                let calm = heat.next_change();
                assert!(cooling.contended(calm - 2.0) && !cooling.contended(calm), "{heat:?}");
            }
            let cold = cooling.next_change();
            assert!(!cooling.cold(cold - 2.0) && cooling.cold(cold), "{cooling:?}");
        }
    }

    #[test]
    fn slows_a_slow_fight_too() {
        let mut heat = Heat::default();
        for step in 0..60 {
            heat.grow(f64::from(step) * 30.0);
        }
        assert!(heat.delay(60.0 * 30.0, MOST) >= Duration::from_secs(1));
    }
}
