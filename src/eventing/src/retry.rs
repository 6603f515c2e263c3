//! Decides whether a delivery is done, retried, or given up.

use std::time::Duration;

/// The first delay. Each further delay is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The maximum delay.
const LONGEST: Duration = Duration::from_secs(60);
/// The relative jitter of a delay, in both directions.
const JITTER: f64 = 0.1;
/// Maximum number of deliveries of an event to one subscriber.
pub(super) const ATTEMPTS: u32 = 100;
/// Maximum age of an event that is retried.
const AGE: Duration = Duration::from_secs(24 * 3600);
/// First and maximum delay while a subscriber is unreachable.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The outcome of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The subscriber responded with this status.
    Answered(u16),
    /// The connection broke before a response.
    Broken(String),
    /// No connection was possible.
    Unreachable(String),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The event is delivered.
    Done,
    /// The delivery is retried after this delay.
    Again(Duration),
    /// All deliveries to the subscriber pause for this time. The attempt does not count.
    Pause(Duration),
    /// The delivery is given up, for this reason.
    GiveUp(String),
}

/// Returns the next step after an outcome. `attempt` and `tries` count from 1: `attempt` ends the deliveries, and `tries`
/// decides the time until the next one. `age` is the age of the event, and `pauses` the number of consecutive pauses.
/// `chance` (0 to 1) adds jitter.
pub(super) fn next(outcome: &Outcome, (attempt, tries): (u32, u32), age: Duration, pauses: u32, chance: f64) -> Next {
    let why = match outcome {
        Outcome::Answered(200..=299) => return Next::Done,
        // A retry would get the same response.
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
    Next::Again(doubled(FIRST, tries.saturating_sub(1), LONGEST, chance))
}

fn doubled(first: Duration, times: u32, most: Duration, chance: f64) -> Duration {
    let wait = first.saturating_mul(1 << times.min(16)).min(most);
    wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(code: u16, attempt: u32) -> Next {
        next(&Outcome::Answered(code), (attempt, attempt), Duration::ZERO, 0, 0.5)
    }

    #[test]
    fn waits_double_up_to_a_minute() {
        let waits: Vec<_> = (1..=8).map(|attempt| after(500, attempt)).collect();
        let expected = [1, 2, 4, 8, 16, 32, 60, 60].map(|seconds| Next::Again(Duration::from_secs(seconds)));
        assert_eq!(waits, expected);
        let of = |chance: f64| next(&Outcome::Answered(500), (1, 1), Duration::ZERO, 0, chance);
        assert_eq!(of(0.0), Next::Again(Duration::from_millis(900)));
        assert_eq!(of(1.0), Next::Again(Duration::from_millis(1100)));
    }

    #[test]
    fn waits_grow_also_if_failed_deliveries_are_not_counted() {
        let uncounted = |tries: u32| next(&Outcome::Answered(500), (1, tries), Duration::ZERO, 0, 0.5);
        assert_eq!(uncounted(7), Next::Again(Duration::from_secs(60)));
        assert_eq!(uncounted(1000), Next::Again(Duration::from_secs(60)));
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
        assert_eq!(next(&gone, (1, 1), AGE, 0, 0.5), Next::GiveUp("after 24 hours: nothing is ready".into()));
    }

    #[test]
    fn attempts_at_an_unreachable_subscriber_do_not_count() {
        let gone = Outcome::Unreachable("nothing is ready".into());
        assert_eq!(next(&gone, (100, 100), Duration::ZERO, 0, 0.5), Next::Pause(FIRST_PAUSE));
        assert_eq!(next(&gone, (100, 100), Duration::ZERO, 40, 0.5), Next::Pause(LONGEST_PAUSE));
    }
}
