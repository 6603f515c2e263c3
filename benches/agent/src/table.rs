//! The printed table: a row per situation with its targets.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::counters::Requests;

/// A measured situation.
pub(super) struct Row {
    /// Description.
    pub situation: String,
    /// Duration.
    pub wall: String,
    /// Requests of the agent, without the Lease and Events; watches are counted apart.
    pub requests: Requests,
    /// Events written during the situation; some may belong to earlier situations.
    pub events: u64,
    /// Peak memory of the agent in MiB.
    pub peak_mib: f64,
    /// CPU time of the agent in seconds.
    pub processor_seconds: f64,
    /// The targets.
    pub targets: Vec<Target>,
}

/// A target, and whether it was met.
pub(super) struct Target {
    /// For example `≤ 6 s`.
    pub text: String,
    /// Whether the target was met.
    pub held: bool,
}

impl Target {
    /// Creates a target.
    pub(super) fn new(text: impl Into<String>, held: bool) -> Self {
        Self { text: text.into(), held }
    }
}

impl Row {
    /// Whether every target was met.
    pub(super) fn held(&self) -> bool {
        self.targets.iter().all(|target| target.held)
    }
}

/// A finding with its targets.
pub(super) struct Finding {
    /// Description.
    pub what: String,
    /// The measured values.
    pub measured: String,
    /// The targets.
    pub targets: Vec<Target>,
}

/// Formats findings as a Markdown table.
pub(super) fn findings(all: &[Finding]) -> String {
    let mut text = String::from("\n| situation | measured | promised | |\n|---|---|---|---|\n");
    for Finding { what, measured, targets } in all {
        let (promised, verdict) = judged(targets);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {measured} | {promised} | {verdict} |");
    }
    text
}

/// Formats the rows as a Markdown table. `load` describes the load.
pub(super) fn markdown(rows: &[Row], load: &str) -> String {
    let mut text = format!(
        "\n{load}; requests of the agent without the Lease. Each row also says how many watches were opened during it, \
         and how many Events were written, for which no row waits.\n\n\
         | situation | wall time | API requests | agent peak RSS | agent CPU | promised | |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for row in rows {
        let (promised, verdict) = judged(&row.targets);
        let (watches, events) = (also(row.requests.watches(), "watch", "watches"), also(row.events, "Event", "Events"));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {}{watches}{events} | {:.0} MiB | {:.2} s | {promised} | {verdict} |",
            row.situation, row.wall, row.requests, row.peak_mib, row.processor_seconds,
        );
    }
    text
}

/// Returns a number with its noun for the end of a cell; empty for zero.
fn also(number: u64, one: &str, more: &str) -> String {
    match number {
        0 => String::new(),
        1 => format!("; 1 {one}"),
        _ => format!("; {number} {more}"),
    }
}

/// Returns the cells of the promised targets and of the verdict.
fn judged(targets: &[Target]) -> (String, String) {
    let promised: Vec<_> = targets.iter().map(|target| target.text.as_str()).collect();
    let missed: Vec<_> = targets.iter().filter(|target| !target.held).map(|target| target.text.as_str()).collect();
    let verdict = match (targets.is_empty(), missed.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "held".into(),
        (false, false) => format!("**missed: {}**", missed.join("; ")),
    };
    (promised.join("; "), verdict)
}

/// Formats a duration with three significant digits.
pub(super) fn duration(length: Duration) -> String {
    let millis = length.as_secs_f64() * 1000.0;
    match millis {
        m if m < 10.0 => format!("{m:.1} ms"),
        m if m < 1000.0 => format!("{m:.0} ms"),
        m => format!("{:.2} s", m / 1000.0),
    }
}

/// Latencies in ascending order.
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    /// Computes latencies from pairs of start and end. An end before its start counts as 0.
    pub(super) fn new(pairs: impl IntoIterator<Item = (Instant, Instant)>) -> Self {
        Self::of(pairs.into_iter().map(|(start, end)| end.saturating_duration_since(start)))
    }

    /// Sorts these durations.
    pub(super) fn of(lengths: impl IntoIterator<Item = Duration>) -> Self {
        let mut lengths: Vec<_> = lengths.into_iter().collect();
        lengths.sort();
        Self(lengths)
    }

    /// Returns the duration that this share of all does not exceed (nearest rank).
    pub(super) fn percentile(&self, share: f64) -> Duration {
        let rank = (self.0.len() as f64 * share).ceil().max(1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank is a small whole number")]
        self.0.get(rank as usize - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_percentiles_by_nearest_rank() {
        let start = Instant::now();
        let latencies = Latencies::new((1..=100).rev().map(|n| (start, start + Duration::from_millis(n))));
        assert_eq!(latencies.percentile(0.5), Duration::from_millis(50));
        assert_eq!(latencies.percentile(0.99), Duration::from_millis(99));
        assert_eq!(latencies.percentile(1.0), Duration::from_millis(100));
        assert_eq!(Latencies::new([]).percentile(0.5), Duration::ZERO);
        let early = Latencies::new([(start + Duration::from_millis(1), start)]);
        assert_eq!(early.percentile(0.5), Duration::ZERO);
    }

    #[test]
    fn names_the_promise_that_was_missed() {
        let row = |held| Row {
            situation: "first sync".into(),
            wall: "7.00 s".into(),
            requests: Requests::default(),
            events: 3,
            peak_mib: 50.4,
            processor_seconds: 3.0,
            targets: vec![Target::new("≤ 6 s", held), Target::new("no GET", true)],
        };
        let line = |held| markdown(&[row(held)], "10 objects").lines().last().unwrap().to_owned();
        assert_eq!(line(true), "| first sync | 7.00 s | none; 3 Events | 50 MiB | 3.00 s | ≤ 6 s; no GET | held |");
        assert!(line(false).ends_with("| **missed: ≤ 6 s** |"), "{}", line(false));
    }
}
