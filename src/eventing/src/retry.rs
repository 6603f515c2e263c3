//! When a delivery is done, when it is tried again, and when it is given up.

use std::time::Duration;

/// The first wait; each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// The part of a wait by which it is longer or shorter, by chance.
const JITTER: f64 = 0.1;
/// Deliveries of an event to one subscriber.
const ATTEMPTS: u32 = 100;
/// How long an event is tried.
const AGE: Duration = Duration::from_secs(24 * 3600);
/// Waits while nothing of a subscriber can be reached.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The subscriber has answered with this status.
    Answered(u16),
    /// It was reached, and has not answered.
    Broken(String),
    /// Nothing could be connected to.
    Unreachable(String),
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is delivered.
    Done,
    /// It is tried again after this time.
    Again(Duration),
    /// The whole subscriber waits, and the attempt does not count.
    Pause(Duration),
    /// It is given up, for this reason.
    GiveUp(String),
}

/// What follows from an outcome: of this attempt, the first is 1; of an event of this age; after so many pauses in a row.
/// `chance` is from 0 to 1.
pub(super) fn next(outcome: &Outcome, attempt: u32, age: Duration, pauses: u32, chance: f64) -> Next {
    let why = match outcome {
        Outcome::Answered(200..=299) => return Next::Done,
        // Whoever says so says it again.
        Outcome::Answered(code @ 400..=499) if !matches!(code, 404 | 408 | 409 | 413 | 425 | 429) => {
            return Next::GiveUp(format!("the subscriber has answered {code}"));
        }
        Outcome::Answered(code) => format!("the subscriber has answered {code}"),
        Outcome::Broken(why) | Outcome::Unreachable(why) => why.clone(),
    };
    if age >= AGE {
        return Next::GiveUp(format!("after 24 hours: {why}"));
    }
    if matches!(outcome, Outcome::Unreachable(_)) {
        return Next::Pause(doubled(FIRST_PAUSE, pauses, LONGEST_PAUSE, chance));
    }
    if attempt >= ATTEMPTS {
        return Next::GiveUp(format!("after {ATTEMPTS} deliveries: {why}"));
    }
    Next::Again(doubled(FIRST, attempt.saturating_sub(1), LONGEST, chance))
}

fn doubled(first: Duration, times: u32, most: Duration, chance: f64) -> Duration {
    let wait = first.saturating_mul(1 << times.min(16)).min(most);
    wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(code: u16, attempt: u32) -> Next {
        next(&Outcome::Answered(code), attempt, Duration::ZERO, 0, 0.5)
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let waits: Vec<_> = (1..=8).map(|attempt| after(500, attempt)).collect();
        let expected = [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| Next::Again(Duration::from_secs(seconds)));
        assert_eq!(waits, expected);
        let of = |chance: f64| next(&Outcome::Answered(500), 1, Duration::ZERO, 0, chance);
        assert_eq!(of(0.0), Next::Again(Duration::from_millis(900)));
        assert_eq!(of(1.0), Next::Again(Duration::from_millis(1100)));
    }

    #[test]
    fn a_refusal_is_final_and_a_fault_is_not() {
        assert_eq!(after(204, 1), Next::Done);
        for code in [400, 401, 403, 405, 410, 422] {
            assert_eq!(after(code, 1), Next::GiveUp(format!("the subscriber has answered {code}")));
        }
        for code in [302, 404, 408, 409, 413, 425, 429, 500, 503] {
            assert!(matches!(after(code, 1), Next::Again(_)), "{code}");
        }
    }

    #[test]
    fn it_ends_after_a_hundred_deliveries_or_a_day() {
        assert_eq!(after(500, 100), Next::GiveUp("after 100 deliveries: the subscriber has answered 500".into()));
        let gone = Outcome::Unreachable("nothing is ready".into());
        assert_eq!(next(&gone, 1, AGE, 0, 0.5), Next::GiveUp("after 24 hours: nothing is ready".into()));
    }

    #[test]
    fn attempts_at_an_unreachable_subscriber_do_not_count() {
        let gone = Outcome::Unreachable("nothing is ready".into());
        assert_eq!(next(&gone, 100, Duration::ZERO, 0, 0.5), Next::Pause(FIRST_PAUSE));
        assert_eq!(next(&gone, 100, Duration::ZERO, 40, 0.5), Next::Pause(LONGEST_PAUSE));
    }
}
