//! How long a controller waits after a failure before it tries again.
//!
//! Deliberately absent: clocks and randomness. `chance` is a number from 0 to 1 that the caller draws. Why not `backon`: the
//! backoff of 1.6 is an iterator that draws its own random numbers, 120 bytes for each object that may fail, where a count
//! of failures (4 bytes) is kept anyway.

use std::time::Duration;

/// Doublings after which every backoff has reached its cap.
const MAX_DOUBLINGS: u32 = 20;

/// An exponential backoff: `base` after the first failure, twice as long after each further one, never more than `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// A backoff from `base` up to `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The delay after this many failures in a row (from 1), without jitter.
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.base.saturating_mul(2_u32.saturating_pow(doublings)).min(self.cap)
    }

    /// The delay after this many failures in a row (from 1), with [`jitter`].
    pub fn jittered(self, failures: u32, chance: f64) -> Duration {
        jitter(self.delay(failures), chance)
    }
}

/// `duration`, up to 10 % shorter (`chance` 0) or longer (`chance` 1), so that clients that failed together do not
/// retry together.
pub fn jitter(duration: Duration, chance: f64) -> Duration {
    duration.mul_f64(0.9 + 0.2 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn doubles_from_base_to_cap() {
        let backoff = Backoff::new(SECOND, 10 * SECOND);
        let delays = [0, 1, 2, 3, 4, 5, u32::MAX].map(|failures| backoff.delay(failures).as_secs());
        assert_eq!(delays, [1, 1, 2, 4, 8, 10, 10]);
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).delay(9), Duration::MAX);
    }

    #[test]
    fn jitter_takes_away_or_adds_a_tenth() {
        let backoff = Backoff::new(10 * SECOND, 40 * SECOND);
        let delays = [0.0, 0.5, 1.0].map(|chance| backoff.jittered(2, chance).as_secs());
        assert_eq!(delays, [18, 20, 22]);
    }
}
