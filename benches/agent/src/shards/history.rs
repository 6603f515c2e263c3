//! The events that explain a late change: the deaths of agents, and the states of the Leases of shards.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{deaths::Death, leases::Shown};

/// The events of a measurement, in order.
#[derive(Debug)]
pub(super) struct History {
    /// The same time by both clocks.
    clocks: (Instant, Timestamp),
    pub deaths: Vec<Death>,
    pub leases: Vec<Shown>,
}

impl History {
    /// Returns the history of a measurement that begins at this time by both clocks.
    pub(super) fn new(at: Instant, clock: Timestamp) -> Self {
        Self { clocks: (at, clock), deaths: Vec::new(), leases: Vec::new() }
    }

    /// Returns a time by the clock of this machine, without fractions of a millisecond.
    pub(super) fn clock(&self, at: Instant) -> String {
        let (known, clock) = self.clocks;
        let time = match at.checked_duration_since(known) {
            Some(later) => clock + later,
            None => clock - known.saturating_duration_since(at),
        };
        time.strftime("%H:%M:%S%.3fZ").to_string()
    }
}

/// Formats a time relative to another one, in seconds.
pub(super) fn relative(at: Instant, to: Instant) -> String {
    let seconds = |length: Duration| length.as_secs_f64();
    match at.checked_duration_since(to) {
        Some(later) => format!("+{:.1} s", seconds(later)),
        None => format!("-{:.1} s", seconds(to.saturating_duration_since(at))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_by_the_clock_and_relative_to_a_change() {
        let (start, clock) = (Instant::now() + Duration::from_mins(1), "2026-01-02T03:04:05Z".parse().unwrap());
        let history = History::new(start, clock);
        let (earlier, later) =
            (start.checked_sub(Duration::from_secs(6)).unwrap(), start + Duration::from_millis(1200));
        assert_eq!((&*history.clock(earlier), &*history.clock(later)), ("03:03:59.000Z", "03:04:06.200Z"));
        assert_eq!((&*relative(earlier, start), &*relative(later, earlier)), ("-6.0 s", "+7.2 s"));
    }
}
