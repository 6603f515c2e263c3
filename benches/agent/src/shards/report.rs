//! The result as two tables: the findings with their targets, and the cost of each agent.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use super::{
    audit::Evaluation,
    changes::{Cause, Change},
    fleet::Usage,
    run::{Finished, LEASE, SETTLED},
    world::Found,
};
use crate::{
    counters::Requests,
    table::{self, Finding, Latencies, Target, duration},
};

/// Time that a new agent may take until it protects a share: to get the Lease, and to read its objects.
const START: Duration = Duration::from_secs(5);
/// Further time for each GitSync of the share.
const START_EACH: Duration = Duration::from_millis(5);

/// The tables.
pub(crate) struct Measured {
    pub table: String,
    /// Whether every target was met.
    pub held: bool,
}

/// Differences between the objects of the load before and after the kills.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    missing: usize,
    recreated: usize,
    /// Objects that are not as committed.
    other: usize,
}

/// The measured values.
pub(super) struct Outcome {
    /// Time for which agents were killed.
    pub length: Duration,
    /// Number of GitSyncs of an agent.
    pub share: usize,
    pub created: Duration,
    /// Time until all was as committed after the last kill; `None` if that did not happen.
    pub settled: Option<Duration>,
    pub finished: Finished,
    pub objects: Differences,
    pub log: Option<Evaluation>,
    pub usages: Vec<Usage>,
    /// Number of agents that ended by themselves.
    pub failed: usize,
}

/// Compares objects with their committed revisions, and with those before.
pub(super) fn compare(
    wanted: impl Iterator<Item = (String, String)>,
    before: &HashMap<String, Found>,
    after: &HashMap<String, Found>,
) -> Differences {
    let mut differences = Differences::default();
    for (name, revision) in wanted {
        let Some(found) = after.get(&name) else {
            differences.missing += 1;
            continue;
        };
        differences.recreated += usize::from(before.get(&name).is_none_or(|old| old.uid != found.uid));
        differences.other += usize::from(found.revision != revision);
    }
    differences
}

impl Outcome {
    /// Formats the tables.
    pub(super) fn measured(&self) -> Measured {
        let findings = self.findings();
        let mut table = table::findings(&findings);
        table.push_str("\n| agent | life | API requests | peak RSS | CPU |\n|---|---|---|---|---|\n");
        for usage in &self.usages {
            // Writing to a String cannot fail.
            let _ = writeln!(
                table,
                "| {}, {} | {} | {} | {:.0} MiB | {:.2} s |",
                usage.name,
                usage.end,
                duration(usage.life),
                usage.requests,
                usage.peak_mib,
                usage.processor_seconds
            );
        }
        let held = findings.iter().flat_map(|finding| &finding.targets).all(|target| target.held);
        Measured { table, held }
    }

    fn findings(&self) -> Vec<Finding> {
        let start = START + START_EACH.saturating_mul(u32::try_from(self.share).unwrap_or(u32::MAX));
        let mut findings = vec![
            Finding {
                what: "all GitSyncs created, until all are Ready".to_owned(),
                measured: duration(self.created),
                targets: Vec::new(),
            },
            self.end(),
            self.differences(),
        ];
        for (cause, what, done) in
            [(Cause::Edit, "edits", "each is reverted"), (Cause::Commit, "commits of an object", "each is applied")]
        {
            let all: Vec<&Change> = self.finished.changes.of(cause).collect();
            let (dead, alive): (Vec<&Change>, Vec<&Change>) =
                all.into_iter().partition(|change| change.orphaned.is_some());
            findings.push(times(format!("{what}, the agent runs"), done, &alive, LEASE));
            let from = format!("{what}, the agent is dead, since its death");
            findings.push(times(from, done, &dead, LEASE + start));
        }
        findings.extend(self.log.as_ref().map(writes));
        findings
    }

    fn end(&self) -> Finding {
        let Finished { changes, commits, kills } = &self.finished;
        let edits = changes.of(Cause::Edit).count();
        let what = format!(
            "{kills} kills of an agent, {commits} commits and {edits} edits in {}; until all are Ready after that",
            duration(self.length)
        );
        let mut requests = Requests::default();
        for usage in &self.usages {
            requests.add(&usage.requests);
        }
        let (requests, events) = requests.without_events();
        let settled = self.settled.map_or_else(|| "never".to_owned(), duration);
        let measured = format!(
            "{settled}; {requests} and {events} Events by all agents; {} agents ended by themselves; {} changes with more than one write",
            self.failed,
            changes.repeated()
        );
        let targets = vec![
            Target::new(format!("≤ {} min", SETTLED.as_secs() / 60), self.settled.is_some()),
            Target::new("no agent ends by itself", self.failed == 0),
        ];
        Finding { what, measured, targets }
    }

    fn differences(&self) -> Finding {
        let (deleted, Differences { missing, recreated, other }) = (self.finished.changes.deleted.len(), &self.objects);
        Finding {
            what: "objects at the end, and deletions that a watch has shown".to_owned(),
            measured: format!("{deleted} deleted, {missing} missing, {recreated} recreated, {other} not as committed"),
            targets: vec![
                Target::new("0 deleted", deleted == 0 && *missing == 0),
                Target::new("each has its uid", *recreated == 0),
                Target::new("each is as committed", *other == 0),
            ],
        }
    }
}

/// Returns the times of changes, with their target.
fn times(what: String, done: &str, changes: &[&Change], promised: Duration) -> Finding {
    let ended: Vec<Duration> = changes.iter().filter_map(|change| change.took()).collect();
    let open = changes.len() - ended.len();
    let latencies = Latencies::of(ended);
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| latencies.percentile(share));
    Finding {
        what: format!("{} {what}", changes.len()),
        measured: format!("p50 {}, p99 {}, at most {}; {open} never", duration(p50), duration(p99), duration(most)),
        targets: vec![Target::new(format!("≤ {}", duration(promised)), most <= promised), Target::new(done, open == 0)],
    }
}

/// Returns the findings of the audit log.
fn writes(log: &Evaluation) -> Finding {
    let Evaluation { total, objects, unchanged, applied_twice, .. } = log;
    let (contested, missing, deletions) = (log.contested.len(), log.missing.len(), log.deletions.len());
    Finding {
        what: "writes of the agents in the audit log".to_owned(),
        measured: format!(
            "{total}, {objects} of these of the objects; {unchanged} of these without an effect; {contested} changes by two agents; \
             {applied_twice} changes that another agent applied, too, without an effect; {missing} changes without a write; \
             {deletions} deletions"
        ),
        targets: vec![
            Target::new("no change by two agents", contested == 0),
            Target::new("a write for each change", missing == 0),
            Target::new("no deletion", deletions == 0),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::shards::{changes::Changes, load::Place};

    fn found(uid: &str, revision: &str) -> Found {
        Found { uid: uid.to_owned(), revision: revision.to_owned() }
    }

    fn outcome(changes: Changes, log: Evaluation) -> Outcome {
        Outcome {
            length: Duration::from_secs(600),
            share: 1000,
            created: Duration::from_secs(90),
            settled: Some(Duration::from_secs(12)),
            finished: Finished { changes, commits: 40, kills: 30 },
            objects: Differences::default(),
            log: Some(log),
            usages: vec![Usage {
                name: "agent-001".to_owned(),
                end: "killed",
                life: Duration::from_secs(40),
                requests: Requests::default(),
                peak_mib: 100.0,
                processor_seconds: 3.0,
            }],
            failed: 0,
        }
    }

    #[test]
    fn objects_are_compared_by_uid_and_revision() {
        let before: HashMap<_, _> = ["a", "b", "c", "d"].map(|name| (name.to_owned(), found(name, "0"))).into();
        let mut after = before.clone();
        after.insert("b".to_owned(), found("new", "0"));
        after.insert("c".to_owned(), found("c", "edited by hand"));
        after.remove("d");
        let wanted = || before.keys().map(|name| (name.clone(), "0".to_owned()));
        let expected = Differences { missing: 1, recreated: 1, other: 1 };
        assert_eq!(compare(wanted(), &before, &after), expected);
        assert_eq!(compare(wanted(), &before, &before), Differences::default());
    }

    #[test]
    fn a_revert_after_the_lease_and_a_contested_object_are_missed_targets() {
        let start = Instant::now();
        let edit = |number, seconds| {
            let mut changes = Changes::default();
            let place = Place { sync: 0, number };
            changes.begin(Change::new(place, Cause::Edit, 5, "0".to_owned(), start));
            let (name, at) = (place.name(), start + Duration::from_secs(seconds));
            changes.see(&crate::shards::watch::Watched { name, version: 6, revision: Some("0".to_owned()), at });
            changes
        };
        let held = outcome(edit(0, 14), Evaluation::default()).measured();
        assert!(held.held, "{}", held.table);
        assert!(held.table.contains("| agent-001, killed | 40.00 s | none | 100 MiB | 3.00 s |"), "{}", held.table);
        let missed = outcome(edit(0, 16), Evaluation::default()).measured();
        assert!(!missed.held && missed.table.contains("**missed: ≤ 15.00 s**"), "{}", missed.table);
        let contested = Evaluation { contested: vec!["a".to_owned()], ..Evaluation::default() };
        let contested = outcome(Changes::default(), contested).measured();
        assert!(!contested.held && contested.table.contains("**missed: no change by two agents**"));
        let open = Change::new(Place { sync: 0, number: 0 }, Cause::Commit, 5, "1".to_owned(), start);
        let mut changes = Changes::default();
        changes.begin(open);
        assert!(outcome(changes, Evaluation::default()).measured().table.contains("**missed: each is applied**"));
    }
}
