//! The delay of a controller after a failure.
//!
//! Not here: clocks and randomness. `chance` is a random number from 0 to 1, drawn by the caller, that selects the
//! jitter. `backon` 1.6 is not used: its backoff is an iterator that draws its own random numbers and takes 120 bytes
//! for each object that may fail. A count of failures takes 4 bytes and is stored anyway.

use std::time::Duration;

/// Number of doublings after which every backoff has reached its cap.
const MAX_DOUBLINGS: u32 = 20;

/// An exponential backoff: `base` after the first failure, doubled after each further one, at most `cap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// Returns a backoff from `base` up to `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// Returns the delay after this many consecutive failures (from 1), without jitter.
    pub fn delay(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(MAX_DOUBLINGS);
        self.base.saturating_mul(2_u32.saturating_pow(doublings)).min(self.cap)
    }

    /// Returns the delay after this many consecutive failures (from 1), with [`jitter`].
    pub fn jittered(self, failures: u32, chance: f64) -> Duration {
        jitter(self.delay(failures), chance)
    }
}

/// Returns `duration` with a jitter of 10 %, from shorter (`chance` 0) to longer (`chance` 1). Clients that failed
/// together then retry at different times.
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
