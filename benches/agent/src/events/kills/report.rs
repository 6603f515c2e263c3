//! The result as two tables: the findings with their targets, and the cost of each process.

use std::{fmt::Write as _, time::Duration};

use super::{
    fleet::Usage,
    plan::{Plan, RECOVERY, SETTLED},
    schedule::Kind,
    sender::Failures,
    tally::Counts,
};
use crate::{
    events::MEMORY,
    table::{self, Finding, Latencies, Target, duration},
};

/// Promised part of the rate.
const RATE: f64 = 0.95;

/// The tables.
pub(crate) struct Measured {
    pub table: String,
    /// Whether every target was met.
    pub held: bool,
}

/// The measured values.
pub(super) struct Outcome {
    pub plan: Plan,
    /// Time from the first event until the last response.
    pub length: Duration,
    pub counts: Counts,
    pub failures: Failures,
    /// Time after the last event until none was missing; `None` if that did not happen.
    pub settled: Option<Duration>,
    pub killed: Vec<Kind>,
    /// Whether a process was not ready again in time.
    pub late: bool,
    /// Whether the dead letters could be listed at the end.
    pub listed: bool,
    pub recoveries: Vec<(Kind, Duration)>,
    /// Number of processes that ended by themselves.
    pub failed: usize,
    pub usages: Vec<Usage>,
}

impl Outcome {
    /// Formats the tables.
    pub(super) fn measured(&self) -> Measured {
        let findings =
            [self.events(), self.deliveries(), self.foreign(), self.duplicates(), self.kills(), self.memory()];
        let mut table = table::findings(&findings);
        table.push_str("\n| process | life | peak RSS | CPU |\n|---|---|---|---|\n");
        for usage in &self.usages {
            let Usage { kind, number, end, life, peak_mib, processor_seconds } = usage;
            let (name, life) = (kind.names()[0], duration(*life));
            // Writing to a String cannot fail.
            let _ =
                writeln!(table, "| {name} {number}, {end} | {life} | {peak_mib:.0} MiB | {processor_seconds:.2} s |");
        }
        let held = findings.iter().flat_map(|finding| &finding.targets).all(|target| target.held);
        Measured { table, held }
    }

    fn events(&self) -> Finding {
        let (Counts { published, accepted, .. }, Plan { rate, events, .. }) = (&self.counts, self.plan);
        let reached = *accepted as f64 / self.length.as_secs_f64().max(f64::MIN_POSITIVE);
        let wanted = f64::from(rate) * RATE;
        Finding {
            what: format!("{published} events published in {}", duration(self.length)),
            measured: format!("{accepted} accepted, {reached:.0} per second; {}", self.failures),
            targets: vec![
                Target::new(format!("≥ {wanted:.0} accepted per second"), reached >= wanted),
                Target::new(format!("≥ {events} accepted"), *accepted >= events as usize),
            ],
        }
    }

    fn deliveries(&self) -> Finding {
        let Counts { expected, delivered, dead, refused, lost, .. } = &self.counts;
        let settled = self.settled.map_or_else(|| "never".to_owned(), duration);
        Finding {
            what: format!("{expected} deliveries of accepted events to each subscriber"),
            measured: format!(
                "{delivered} delivered, {dead} dead letters ({refused} that the subscriber refused), {lost} lost; \
                 until none was missing after the last event {settled}"
            ),
            targets: vec![
                Target::new("each is delivered or a dead letter", *lost == 0 && *expected > 0 && self.listed),
                Target::new(
                    format!("≤ {} min", SETTLED.as_secs() / 60),
                    self.settled.is_some_and(|settled| settled <= SETTLED),
                ),
            ],
        }
    }

    fn foreign(&self) -> Finding {
        let Counts { foreign, foreign_letters, unknown, .. } = &self.counts;
        Finding {
            what: "events of a namespace without a grant at the other one".to_owned(),
            measured: format!(
                "{foreign} deliveries, {foreign_letters} dead letters; {unknown} unknown events{}",
                if self.listed { "" } else { "; the dead letters could not be listed at the end" }
            ),
            targets: vec![
                Target::new("none", foreign + foreign_letters == 0 && self.listed),
                Target::new("no unknown event", *unknown == 0 && self.listed),
            ],
        }
    }

    fn duplicates(&self) -> Finding {
        let Counts { deliveries, duplicates, both, letters_again, .. } = &self.counts;
        Finding {
            what: "duplicates".to_owned(),
            measured: format!(
                "{duplicates} of {deliveries} deliveries; {both} events delivered and dead letters, {letters_again} \
                 dead letters again"
            ),
            targets: Vec::new(),
        }
    }

    fn kills(&self) -> Finding {
        let of = |kind: Kind| {
            let count = self.killed.iter().filter(|killed| **killed == kind).count();
            let times = self.recoveries.iter().filter(|(of, _)| *of == kind).map(|(_, time)| *time);
            (count, Latencies::of(times))
        };
        let counts: Vec<String> = Kind::ALL.map(|kind| format!("{} of {}", of(kind).0, kind.names()[1])).to_vec();
        let ready = Kind::ALL.map(|kind| {
            let (_, times) = of(kind);
            let [p50, most] = [0.5, 1.0].map(|share| duration(times.percentile(share)));
            format!("{} p50 {p50}, at most {most}", kind.names()[1])
        });
        let most = self.recoveries.iter().map(|(_, time)| *time).max().unwrap_or_default();
        let Self { killed, failed, plan, .. } = self;
        Finding {
            what: format!("{} kills ({}), until ready after the start", killed.len(), counts.join(", ")),
            measured: format!("{}; {failed} processes ended by themselves", ready.join("; ")),
            targets: vec![
                Target::new(format!("{} kills", plan.kills), killed.len() == plan.kills as usize),
                Target::new(format!("≤ {} min", RECOVERY.as_secs() / 60), !self.late && most <= RECOVERY),
                Target::new("no process ends by itself", *failed == 0),
            ],
        }
    }

    fn memory(&self) -> Finding {
        let own = self.usages.iter().filter(|usage| usage.kind != Kind::Server);
        let most = own.map(|usage| usage.peak_mib).fold(0.0_f64, f64::max);
        Finding {
            what: "peak memory of a publisher or dispatcher".to_owned(),
            measured: format!("at most {most:.0} MiB"),
            targets: vec![Target::new(format!("≤ {MEMORY} MiB"), most <= MEMORY)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let usage = |kind, peak_mib| Usage {
            kind,
            number: 0,
            end: "killed",
            life: Duration::from_secs(4),
            peak_mib,
            processor_seconds: 1.5,
        };
        Outcome {
            plan: Plan { events: 100, kills: 3, rate: 10, seed: 1 },
            length: Duration::from_secs(20),
            counts: Counts {
                published: 200,
                accepted: 200,
                expected: 300,
                delivered: 298,
                dead: 2,
                refused: 1,
                deliveries: 301,
                duplicates: 3,
                ..Counts::default()
            },
            failures: Failures::default(),
            settled: Some(Duration::from_secs(2)),
            killed: Kind::ALL.to_vec(),
            late: false,
            listed: true,
            recoveries: vec![(Kind::Server, Duration::from_secs(3))],
            failed: 0,
            usages: vec![usage(Kind::Publisher, 40.0), usage(Kind::Server, 90.0)],
        }
    }

    #[test]
    fn a_run_without_losses_meets_its_targets() {
        let Measured { table, held } = outcome().measured();
        assert!(held, "{table}");
        for part in [
            "| 200 events published in 20.00 s | 200 accepted, 10 per second; ",
            "298 delivered, 2 dead letters (1 that the subscriber refused), 0 lost;",
            "| duplicates | 3 of 301 deliveries; 0 events delivered and dead letters, 0 dead letters again |  |  |",
            "| 3 kills (1 of publishers, 1 of dispatchers, 1 of NATS servers), until ready after the start |",
            "NATS servers p50 3.00 s, at most 3.00 s; 0 processes ended by themselves |",
            "| at most 40 MiB | ≤ 64 MiB | held |",
            "| NATS server 0, killed | 4.00 s | 90 MiB | 1.50 s |",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }

    #[test]
    fn each_broken_guarantee_is_a_missed_target() {
        let check = |change: fn(&mut Outcome), expected: &str| {
            let mut outcome = outcome();
            change(&mut outcome);
            let Measured { table, held } = outcome.measured();
            assert!(!held && table.contains(&format!("**missed: {expected}**")), "{expected}: {table}");
        };
        check(|outcome| outcome.counts.lost = 1, "each is delivered or a dead letter");
        check(|outcome| outcome.counts.expected = 0, "each is delivered or a dead letter");
        check(|outcome| outcome.listed = false, "each is delivered or a dead letter");
        check(|outcome| outcome.listed = false, "none; no unknown event");
        check(|outcome| outcome.settled = None, "≤ 5 min");
        check(|outcome| outcome.settled = Some(Duration::from_secs(301)), "≤ 5 min");
        check(|outcome| outcome.counts.foreign = 1, "none");
        check(|outcome| outcome.counts.foreign_letters = 1, "none");
        check(|outcome| outcome.counts.unknown = 1, "no unknown event");
        check(|outcome| outcome.counts.accepted = 99, "≥ 10 accepted per second; ≥ 100 accepted");
        check(|outcome| outcome.killed.truncate(2), "3 kills");
        check(|outcome| outcome.late = true, "≤ 2 min");
        check(|outcome| outcome.recoveries[0].1 = Duration::from_secs(121), "≤ 2 min");
        check(|outcome| outcome.failed = 1, "no process ends by itself");
        check(|outcome| outcome.usages[0].peak_mib = 65.0, "≤ 64 MiB");
    }
}
