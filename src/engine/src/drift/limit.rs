//! The limit of concurrent reverts, which adapts to the server.
//!
//! The limit is halved when the server is overloaded (429, 5xx) or responds half as fast as usual. It grows by one with
//! each round of normal responses. After a `Retry-After`, reverts pause for that time.
//!
//! Latency is divided by the number of reverts in flight, because they slow each other down.
//!
//! Invariant: the limit stays between [`LEAST`] and [`MOST`].
//! Invariant: an incident halves the limit once, regardless of how many requests it affects.

use std::time::{Duration, Instant};

/// Maximum number of reverts in flight.
const MOST: usize = 32;
/// Minimum number of reverts in flight, so that one hanging request does not block all others.
const LEAST: usize = 2;
/// Minimum after slow responses. With fewer reverts, Mainstay is not the cause of the latency.
const LEAST_FOR_LATENCY: usize = 4;
/// Longest pause after a `Retry-After`, because the server may mean a single object.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Weights of a new response in the averages of the usual and the recent latency.
const USUAL: f64 = 1.0 / 512.0;
const RECENT: f64 = 1.0 / 16.0;
/// Number of responses before latency is compared.
const FIRST: u32 = 16;
/// Factor by which the latency of slow responses exceeds the usual latency.
const TOO_SLOW: f64 = 2.0;

#[derive(Clone, Debug)]
pub(super) struct Limit {
    allowed: f64,
    usual: f64,
    recent: f64,
    answers: u32,
    /// When the limit was last halved. Requests that were sent before that time belong to the same incident.
    halved: Option<Instant>,
    paused_until: Option<Instant>,
}

impl Default for Limit {
    fn default() -> Self {
        Self { allowed: MOST as f64, usual: 0.0, recent: 0.0, answers: 0, halved: None, paused_until: None }
    }
}

impl Limit {
    /// Maximum number of reverts in flight now; 0 during a pause.
    pub(super) fn allowed(&self, now: Instant) -> usize {
        if self.pause(now).is_some() { 0 } else { self.number() }
    }

    /// Maximum number of reverts in flight without a pause.
    pub(super) fn number(&self) -> usize {
        // The value is between 0 and 32.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between LEAST and MOST")]
        let allowed = self.allowed as usize;
        allowed
    }

    /// Returns the remaining time of a pause.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.paused_until.and_then(|until| until.checked_duration_since(now)).filter(|pause| !pause.is_zero())
    }

    /// Records a successful write; `in_flight` is the number of reverts in flight when it was sent, including this
    /// write.
    pub(super) fn answered(&mut self, sent: Instant, in_flight: usize, now: Instant) {
        if ((in_flight * 2) as f64) < self.allowed {
            // Less than half of the limit was used, so this response does not show whether the limit is right.
            return;
        }
        let each = now.saturating_duration_since(sent).as_secs_f64() / in_flight.max(1) as f64;
        self.answers = self.answers.saturating_add(1);
        if self.answers <= FIRST {
            self.usual += (each - self.usual) / f64::from(self.answers);
            self.recent = self.usual;
            return;
        }
        self.usual += (each - self.usual) * USUAL;
        self.recent += (each - self.recent) * RECENT;
        if self.recent > self.usual * TOO_SLOW && self.allowed > LEAST_FOR_LATENCY as f64 {
            self.halve(sent, LEAST_FOR_LATENCY, now);
        } else {
            self.allowed = (self.allowed + 1.0 / self.allowed).min(MOST as f64);
        }
    }

    /// Records a refusal because of overload, and its `Retry-After`.
    pub(super) fn overloaded(&mut self, sent: Instant, retry_after: Option<Duration>, now: Instant) {
        self.halve(sent, LEAST, now);
        if let Some(asked) = retry_after {
            let until = now + asked.min(LONGEST_PAUSE);
            self.paused_until = Some(self.paused_until.map_or(until, |before| before.max(until)));
        }
    }

    fn halve(&mut self, sent: Instant, least: usize, now: Instant) {
        if self.halved.is_none_or(|halved| sent > halved) {
            self.allowed = (self.allowed / 2.0).max(least as f64);
            self.halved = Some(now);
            // Later responses are compared with the usual latency again.
            self.recent = self.usual;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A simulated server whose latency is proportional to the requests in flight.
    struct Played {
        limit: Limit,
        now: Instant,
    }

    impl Played {
        fn new() -> Self {
            Self { limit: Limit::default(), now: Instant::now() }
        }

        fn round(&mut self, each: f64) -> usize {
            let in_flight = self.limit.allowed(self.now);
            let sent = self.now + Duration::from_nanos(1);
            self.now = sent + Duration::from_secs_f64(each * in_flight as f64 / 1000.0);
            for _ in 0..in_flight {
                self.limit.answered(sent, in_flight, self.now);
            }
            self.limit.allowed(self.now)
        }

        fn refused(&mut self, retry_after: Option<Duration>) -> usize {
            let sent = self.now;
            self.now += Duration::from_millis(1);
            let sent = sent + Duration::from_nanos(1);
            for _ in 0..3 {
                self.limit.overloaded(sent, retry_after, self.now);
            }
            self.limit.allowed(self.now)
        }
    }

    #[test]
    fn the_limit_stays_at_its_maximum_with_usual_answers() {
        let mut played = Played::new();
        for _ in 0..100 {
            assert_eq!(played.round(1.0), MOST);
        }
    }

    #[test]
    fn the_limit_is_halved_by_an_overload_and_grows_by_one_per_round() {
        let mut played = Played::new();
        played.round(1.0);
        assert_eq!([played.refused(None), played.refused(None)], [MOST / 2, MOST / 4], "once for each incident");
        let grown = [played.round(1.0), played.round(1.0), played.round(1.0)];
        assert!((10..=11).contains(&grown[2]), "{grown:?}");
        for _ in 0..10 {
            played.refused(None);
        }
        assert_eq!(played.limit.allowed(played.now), LEAST);
        for _ in 0..2 * MOST {
            played.round(1.0);
        }
        assert_eq!(played.limit.allowed(played.now), MOST);
    }

    #[test]
    fn the_limit_falls_with_slow_answers_until_they_are_usual() {
        let mut played = Played::new();
        for _ in 0..10 {
            played.round(1.0);
        }
        let mut least = MOST;
        for _ in 0..10 {
            least = least.min(played.round(3.0));
        }
        assert!(least <= MOST / 4, "{least}");
        for _ in 0..500 {
            played.round(3.0);
        }
        assert_eq!(played.limit.allowed(played.now), MOST);
    }

    #[test]
    fn a_few_slow_answers_among_many_do_not_change_the_limit() {
        let mut played = Played::new();
        played.round(1.0);
        for _ in 0..100 {
            let (in_flight, sent) = (MOST, played.now + Duration::from_nanos(1));
            played.now = sent + Duration::from_millis(32);
            for answer in 0..in_flight {
                // Other work of the machine delays a few responses.
                let late = if answer < 4 { 5 } else { 1 };
                played.limit.answered(sent, in_flight, sent + late * Duration::from_millis(32));
            }
        }
        assert_eq!(played.limit.allowed(played.now), MOST);
    }

    #[test]
    fn writes_below_the_limit_do_not_change_it() {
        let mut played = Played::new();
        played.round(1.0);
        for _ in 0..1000 {
            let sent = played.now;
            played.now += Duration::from_secs(1);
            played.limit.answered(sent, 1, played.now);
        }
        assert_eq!(played.limit.allowed(played.now), MOST);
    }

    #[test]
    fn reverts_pause_for_a_retry_after_up_to_a_maximum() {
        let mut played = Played::new();
        assert_eq!(played.refused(Some(Duration::from_secs(7))), 0);
        assert_eq!(played.limit.allowed(played.now + Duration::from_secs(7)), MOST / 2);
        assert_eq!(played.refused(Some(Duration::from_secs(3600))), 0);
        assert_eq!(played.limit.pause(played.now), Some(LONGEST_PAUSE));
    }
}
