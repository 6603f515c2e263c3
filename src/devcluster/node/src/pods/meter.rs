//! Recent usage of a container: CPU time per sample, and the latest memory.
//!
//! Not here: reading of processes (`usage`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long samples are kept. Every averaging window is shorter.
const KEPT: Duration = Duration::from_secs(90);

/// The samples of a container.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Time of each sample, and the CPU time up to it in ticks.
    looks: VecDeque<(Instant, u64)>,
    /// Total CPU time of the live processes in the last sample, in ticks.
    last: u64,
    /// Bytes.
    memory: u64,
}

impl Meter {
    /// Adds a sample: CPU time in ticks and memory in bytes.
    pub(super) fn add(&mut self, now: Instant, ticks: u64, memory: u64) {
        // The total shrinks when a process ends.
        let since = if self.looks.is_empty() { 0 } else { ticks.saturating_sub(self.last) };
        let sum = self.looks.back().map_or(0, |(_, sum)| *sum) + since;
        (self.last, self.memory) = (ticks, memory);
        self.looks.push_back((now, sum));
        while self.looks.front().is_some_and(|(at, _)| now.duration_since(*at) > KEPT) {
            self.looks.pop_front();
        }
    }

    /// Returns average CPU in thousandths of a core, and memory in bytes; `None` if the samples cover less than half of
    /// the window.
    pub(super) fn over(&self, window: Duration) -> Option<(u64, u64)> {
        let (end, last) = self.looks.back()?;
        let begins = self.looks.iter().find(|(at, _)| end.duration_since(*at) <= window);
        let (begin, first) = begins?;
        let time = end.duration_since(*begin);
        if time.is_zero() || time < window / 2 {
            return None;
        }
        let seconds = (last - first) as f64 / rustix::param::clock_ticks_per_second() as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the machine's processors"
        )]
        let millis = (seconds * 1000.0 / time.as_secs_f64()).round() as u64;
        Some((millis, self.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_over_the_window_and_never_falls_when_a_process_ends() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let ticks = rustix::param::clock_ticks_per_second();
        let mut meter = Meter::default();
        // CPU time before the first sample does not count.
        meter.add(start, 500 * ticks, 1);
        assert_eq!(meter.over(second), None, "one look says nothing");
        meter.add(start + second, 500 * ticks + ticks / 2, 2);
        assert_eq!(meter.over(second), Some((500, 2)));
        assert_eq!(meter.over(second * 4), None, "it has not been seen for long enough");
        meter.add(start + second * 2, ticks, 3);
        meter.add(start + second * 3, 3 * ticks, 4);
        assert_eq!(meter.over(second * 2), Some((1000, 4)));
        assert_eq!(meter.over(second), Some((2000, 4)));
    }
}
