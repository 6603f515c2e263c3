//! The delay after a failed read from Git: exponential, at least the server's `Retry-After`, and always finite, because
//! a missing reference may be pushed later.
//!
//! Not here: clocks and randomness, which are arguments.

use std::time::Duration;

use super::git::SourceError;
use mainstay_object::failure::{Backoff, Class};

/// The maximum delay as a multiple of the first delay.
const MAX_FACTOR: u32 = 10;

/// The number of consecutive failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Retry {
    failures: u32,
}

impl Retry {
    /// Records a failure. Returns the delay before the next attempt. The first delay is `first`; `chance` (0 to 1) adds
    /// jitter.
    pub(super) fn failed(&mut self, unread: &SourceError, first: Duration, chance: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let backoff = match unread.class {
            // A missing object, such as a GitRepository, usually appears soon.
            Class::NotReady => Backoff::new(Duration::from_secs(1), first.min(Duration::from_secs(120))),
            _ => Backoff::new(first, first.saturating_mul(MAX_FACTOR)),
        };
        backoff.jittered(self.failures, chance).max(unread.retry_after.unwrap_or_default())
    }

    /// Records a success.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Whether the last attempt failed.
    pub(super) fn is_due(self) -> bool {
        self.failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::function_conditions::Reason;

    const FIRST: Duration = Duration::from_secs(30);

    fn unread(class: Class, retry_after: Option<u64>) -> SourceError {
        let retry_after = retry_after.map(Duration::from_secs);
        SourceError { reason: Reason::SourceUpdateFailed, message: String::new(), class, retry_after }
    }

    fn seconds(retry: &mut Retry, unread: &SourceError, chance: f64) -> u64 {
        retry.failed(unread, FIRST, chance).as_secs()
    }

    #[test]
    fn waits_twice_as_long_each_time_up_to_ten_times_the_first_wait() {
        for class in [Class::Unavailable, Class::Denied, Class::Invalid, Class::Bug] {
            let mut retry = Retry::default();
            let waits: Vec<_> = (0..6).map(|_| seconds(&mut retry, &unread(class, None), 0.5)).collect();
            assert_eq!(waits, [30, 60, 120, 240, 300, 300], "{class:?}");
        }
        let mut old = Retry { failures: u32::MAX };
        assert_eq!(seconds(&mut old, &unread(Class::Unavailable, None), 0.5), 300, "however often it failed");
    }

    #[test]
    fn missing_objects_are_polled_more_often_than_failures() {
        let mut retry = Retry::default();
        let waits: Vec<_> = (0..7).map(|_| seconds(&mut retry, &unread(Class::NotReady, None), 0.5)).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn jitter_is_a_tenth() {
        let wait = |chance| Retry::default().failed(&unread(Class::Unavailable, None), FIRST, chance);
        assert_eq!((wait(0.0), wait(1.0)), (Duration::from_secs(27), Duration::from_secs(33)));
    }

    #[test]
    fn honours_retry_after() {
        let mut retry = Retry::default();
        assert_eq!(seconds(&mut retry, &unread(Class::Unavailable, Some(500)), 0.0), 500);
        assert_eq!(seconds(&mut retry, &unread(Class::Unavailable, Some(5)), 0.5), 60, "it is longer anyway");
    }

    #[test]
    fn starts_again_after_a_success() {
        let mut retry = Retry::default();
        for _ in 0..5 {
            seconds(&mut retry, &unread(Class::Unavailable, None), 0.5);
        }
        assert!(retry.is_due());
        retry.succeeded();
        assert!(!retry.is_due());
        assert_eq!(seconds(&mut retry, &unread(Class::Unavailable, None), 0.5), 30);
    }
}
