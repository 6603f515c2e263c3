//! How many reverts may be in flight: as many as the server takes.
//!
//! The number is halved when the server says that it has too much to do (429, 5xx) or answers half as fast as it used
//! to, and grows by one with every round of answers that are as usual. A server that names a time is left alone for it.
//!
//! How fast it answers is judged per request in flight: of a server that is busy with us each takes longer the more there
//! are, and that is no sign of anything.
//!
//! Invariant: the number is never above [`MOST`] and never below [`LEAST`].
//! Invariant: one incident halves it once, however many requests it meets.

use std::time::{Duration, Instant};

/// Reverts in flight at once, at most.
const MOST: usize = 32;
/// And at least, or a single request that hangs would hold up all others.
const LEAST: usize = 2;
/// Down to here the number follows how fast the server answers. Below, a longer answer is not our doing.
const LEAST_FOR_LATENCY: usize = 4;
/// Longest time that everybody waits because the server named one for a single object.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How much a new answer counts in what is usual, and in what is the case now.
const USUAL: f64 = 1.0 / 512.0;
const RECENT: f64 = 1.0 / 16.0;
/// Answers before anything is usual.
const FIRST: u32 = 16;
/// How much slower than usual is too slow.
const TOO_SLOW: f64 = 2.0;

/// How many reverts may be in flight.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    allowed: f64,
    usual: f64,
    recent: f64,
    answers: u32,
    /// What was sent before says nothing new.
    halved: Option<Instant>,
    paused_until: Option<Instant>,
}

impl Default for Limit {
    fn default() -> Self {
        Self { allowed: MOST as f64, usual: 0.0, recent: 0.0, answers: 0, halved: None, paused_until: None }
    }
}

impl Limit {
    /// How many may be in flight now.
    pub(super) fn allowed(&self, now: Instant) -> usize {
        if self.pause(now).is_some() { 0 } else { self.number() }
    }

    /// How many may be in flight while the server is not left alone.
    pub(super) fn number(&self) -> usize {
        // Never negative, and never large.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between LEAST and MOST")]
        let allowed = self.allowed as usize;
        allowed
    }

    /// For how long the server is left alone.
    pub(super) fn pause(&self, now: Instant) -> Option<Duration> {
        self.paused_until.and_then(|until| until.checked_duration_since(now)).filter(|pause| !pause.is_zero())
    }

    /// A write was answered that was sent when so many were in flight, itself among them.
    pub(super) fn answered(&mut self, sent: Instant, in_flight: usize, now: Instant) {
        if ((in_flight * 2) as f64) < self.allowed {
            // The number was not what held anything up.
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

    /// The server had too much to do for a request, and perhaps said for how long it wants to be left alone.
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
            // What comes now is judged anew.
            self.recent = self.usual;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers each of so many requests in flight after so many milliseconds per request.
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
    fn a_server_that_answers_as_usual_has_all_of_them() {
        let mut played = Played::new();
        for _ in 0..100 {
            assert_eq!(played.round(1.0), MOST);
        }
    }

    #[test]
    fn a_server_that_has_too_much_to_do_has_half_of_them_and_then_one_more_with_every_round() {
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
    fn a_server_that_answers_half_as_fast_has_fewer_until_that_is_usual() {
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
    fn a_few_slow_answers_among_many_say_nothing() {
        let mut played = Played::new();
        played.round(1.0);
        for _ in 0..100 {
            let (in_flight, sent) = (MOST, played.now + Duration::from_nanos(1));
            played.now = sent + Duration::from_millis(32);
            for answer in 0..in_flight {
                // A few come late, with whatever else the machine had to do.
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
    fn a_server_that_names_a_time_is_left_alone_for_it_but_not_for_ever() {
        let mut played = Played::new();
        assert_eq!(played.refused(Some(Duration::from_secs(7))), 0);
        assert_eq!(played.limit.allowed(played.now + Duration::from_secs(7)), MOST / 2);
        assert_eq!(played.refused(Some(Duration::from_secs(3600))), 0);
        assert_eq!(played.limit.pause(played.now), Some(LONGEST_PAUSE));
    }
}
