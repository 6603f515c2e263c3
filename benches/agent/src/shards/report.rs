//! The result as two tables: the findings with their targets, and the cost of each agent.

use std::{collections::HashMap, fmt::Write as _, time::Duration};

use super::{
    audit::Evaluation,
    bounds::Bounds,
    changes::{Cause, Change, Since},
    deaths::Lost,
    fleet::Usage,
    run::{Finished, SETTLED},
    world::Found,
};
use crate::{
    counters::Requests,
    table::{self, Finding, Latencies, Target, duration},
};

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
    pub bounds: Bounds,
    pub created: Duration,
    /// Time until all was as committed after the last kill; `None` if that did not happen.
    pub settled: Option<Duration>,
    pub finished: Finished,
    pub objects: Differences,
    pub log: Option<Evaluation>,
    /// The explanations of late changes, as list items.
    pub late: Vec<String>,
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
        if !self.late.is_empty() {
            table.push_str("\nLate changes, with times since the change:\n\n");
            table.push_str(&self.late.concat());
        }
        let held = findings.iter().flat_map(|finding| &finding.targets).all(|target| target.held);
        Measured { table, held }
    }

    fn findings(&self) -> Vec<Finding> {
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
            findings.extend(self.times(cause, what, done));
        }
        findings.extend(self.log.as_ref().map(writes));
        findings
    }

    /// Returns the times of the changes of a cause. The bound after a death applies to each death of a responsible agent, so
    /// to the time since the last one, which also decides the row. The other times after a death are shown without a target.
    fn times(&self, cause: Cause, what: &str, done: &str) -> Vec<Finding> {
        let Finished { changes, kills, .. } = &self.finished;
        let of =
            |lost: Option<Lost>| -> Vec<&Change> { changes.of(cause).filter(|change| change.lost() == lost).collect() };
        let row = |what: String, changes: &[&Change], lost: Option<Lost>| {
            times(what, done, &took(changes, Since::Last), self.bounds.after(lost))
        };
        let mut rows = vec![row(format!("{what}, each responsible agent runs"), &of(None), None)];
        for (lost, then) in [(Lost::Container, "its container restarts"), (Lost::Pod, "its pod is replaced")] {
            let dead = of(Some(lost));
            if !dead.is_empty() || kills.of(lost) > 0 {
                let what = format!("{what}, a responsible agent is dead: {then}, since the last death of one");
                rows.push(row(what, &dead, Some(lost)));
            }
        }
        let dead: Vec<&Change> = changes.of(cause).filter(|change| change.lost().is_some()).collect();
        let first = format!("{what}, a responsible agent is dead, since the first death of one");
        rows.push(shown(&first, &dead, Since::First, self.bounds));
        let orphaned: Vec<&Change> = changes.of(cause).filter(|change| change.orphaned.is_some()).collect();
        let holder = format!("{what}, the agent that holds the shard is dead, since its death");
        rows.push(shown(&holder, &orphaned, Since::Holder, self.bounds));
        rows
    }

    fn end(&self) -> Finding {
        let Finished { changes, commits, kills, .. } = &self.finished;
        let edits = changes.of(Cause::Edit).count();
        let what = format!(
            "{} kills of a container, {} of a pod, {commits} commits and {edits} edits in {}; until all are Ready after that",
            kills.containers,
            kills.pods,
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

fn took(changes: &[&Change], since: Since) -> Vec<Option<Duration>> {
    changes.iter().map(|change| change.took(since)).collect()
}

/// Formats times. `None` is a change that has not ended. Returns the longest time, and the number of these changes, too.
fn measured(took: &[Option<Duration>]) -> (String, Duration, usize) {
    let latencies = Latencies::of(took.iter().flatten().copied());
    let open = took.iter().filter(|took| took.is_none()).count();
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| latencies.percentile(share));
    let text = format!("p50 {}, p99 {}, at most {}; {open} never", duration(p50), duration(p99), duration(most));
    (text, most, open)
}

/// Returns the times of changes, with their target.
fn times(what: String, done: &str, took: &[Option<Duration>], promised: Duration) -> Finding {
    let (measured, most, open) = measured(took);
    Finding {
        what: format!("{} {what}", took.len()),
        measured,
        targets: vec![Target::new(format!("≤ {}", duration(promised)), most <= promised), Target::new(done, open == 0)],
    }
}

/// Returns the times of changes without a target, and the number of those that took longer than the bound after their last
/// death.
fn shown(what: &str, changes: &[&Change], since: Since, bounds: Bounds) -> Finding {
    let (measured, ..) = measured(&took(changes, since));
    let is_longer = |change: &&&Change| change.took(since).is_some_and(|took| took > bounds.after(change.lost()));
    let longer = changes.iter().filter(is_longer).count();
    Finding {
        what: format!("{} {what}", changes.len()),
        measured: format!("{measured}; {longer} in more than the bound of their last death"),
        targets: Vec::new(),
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
    use crate::shards::{
        changes::{Changes, Part},
        deaths::{Death, Kills},
        history::History,
        load::Place,
        watch::Watched,
    };

    fn found(uid: &str, revision: &str) -> Found {
        Found { uid: uid.to_owned(), revision: revision.to_owned() }
    }

    fn outcome(changes: Changes, log: Evaluation) -> Outcome {
        Outcome {
            length: Duration::from_secs(600),
            bounds: Bounds::of(1000),
            created: Duration::from_secs(90),
            settled: Some(Duration::from_secs(12)),
            finished: Finished {
                changes,
                history: History::new(Instant::now(), jiff::Timestamp::UNIX_EPOCH),
                commits: 40,
                kills: Kills { containers: 15, pods: 0 },
            },
            objects: Differences::default(),
            log: Some(log),
            late: Vec::new(),
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
            changes.see(&Watched { name, version: 6, revision: Some("0".to_owned()), at });
            changes
        };
        let held = outcome(edit(0, 14), Evaluation::default()).measured();
        assert!(held.held, "{}", held.table);
        assert!(held.table.contains("| agent-001, killed | 40.00 s | none | 100 MiB | 3.00 s |"), "{}", held.table);
        let missed = outcome(edit(0, 16), Evaluation::default()).measured();
        assert!(!missed.held && missed.table.contains("**missed: ≤ 15.00 s**"), "{}", missed.table);
        assert!(missed.table.contains("| 1 edits, each responsible agent runs | p50 16.00 s"), "{}", missed.table);
        let contested = Evaluation { contested: vec!["a".to_owned()], ..Evaluation::default() };
        let contested = outcome(Changes::default(), contested).measured();
        assert!(!contested.held && contested.table.contains("**missed: no change by two agents**"));
        let open = Change::new(Place { sync: 0, number: 0 }, Cause::Commit, 5, "1".to_owned(), start);
        let mut changes = Changes::default();
        changes.begin(open);
        assert!(outcome(changes, Evaluation::default()).measured().table.contains("**missed: each is applied**"));
    }

    #[test]
    fn the_bound_after_a_death_applies_to_the_last_death_of_a_responsible_agent() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let after = |second: u64, lost: Lost, end: u64| {
            let (mut changes, place) = (Changes::default(), Place { sync: 0, number: 0 });
            changes.begin(Change::new(place, Cause::Edit, 5, "0".to_owned(), start));
            let death = |seconds, agent: &str, lost| Death { at: at(seconds), agent: agent.to_owned(), lost };
            changes.orphan(&death(0, "one", Lost::Pod), |_| Part::Holder);
            changes.orphan(&death(second, "two", lost), |_| Part::Claimant);
            let (name, at) = (place.name(), at(end));
            changes.see(&Watched { name, version: 6, revision: Some("0".to_owned()), at });
            Outcome { late: vec!["- an edit\n".to_owned()], ..outcome(changes, Evaluation::default()) }.measured()
        };
        let held = after(20, Lost::Pod, 34);
        for row in [
            "| 0 edits, a responsible agent is dead: its container restarts, since the last death of one | p50 0.0 ms",
            "| 1 edits, a responsible agent is dead: its pod is replaced, since the last death of one | p50 14.00 s",
            "| 1 edits, a responsible agent is dead, since the first death of one | p50 34.00 s",
            "at most 34.00 s; 0 never; 1 in more than the bound of their last death |  |  |",
            "| 1 edits, the agent that holds the shard is dead, since its death | p50 34.00 s",
            "Late changes, with times since the change:\n\n- an edit\n",
        ] {
            assert!(held.held && held.table.contains(row), "{row}: {}", held.table);
        }
        let missed = after(2, Lost::Pod, 34);
        assert!(!missed.held && missed.table.contains("**missed: ≤ 25.00 s**"), "{}", missed.table);
        let restarted = after(20, Lost::Container, 34);
        let row =
            "| 1 edits, a responsible agent is dead: its container restarts, since the last death of one | p50 14.00 s";
        assert!(restarted.held && restarted.table.contains(row), "{}", restarted.table);
        assert!(!restarted.table.contains("its pod is replaced"), "{}", restarted.table);
        let missed = after(18, Lost::Container, 34);
        assert!(!missed.held && missed.table.contains("**missed: ≤ 15.00 s**"), "{}", missed.table);
    }
}
