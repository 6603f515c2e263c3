//! Admission to the build queue.
//!
//! A case lists events, each with `namespace/name` of a Function: `enqueue`, `start` (the Job is created), `hold up`
//! (its pod cannot start), `no node` (no node has enough resources), `refuse` (its pod is not created), `suspend`,
//! `continue`, `end` and `withdraw`. The expected text has a line for each event: the result, the other Functions that
//! are admitted, the lengths of the queue, and the builds that have to be suspended.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use mainstay_function::build_queue::{Admission, BuildQueue, BuildState, Hold, JobName, QueueLengths};
use mainstay_object::Owner;
use serde::Deserialize;

use crate::check;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    _title: String,
    /// Maximum number of concurrent builds.
    limit: usize,
    events: Vec<String>,
}

fn job_of(function: &str) -> JobName {
    let (namespace, name) = function.split_once('/').unwrap();
    (namespace.into(), name.into())
}

/// Applies an event. Returns its result; empty if it has none.
fn apply(queue: &mut BuildQueue, event: &str) -> String {
    let (verb, function) = event.rsplit_once(' ').unwrap();
    let (namespace, name) = function.split_once('/').unwrap();
    let (owner, job) = (Owner::function(namespace, name), job_of(function));
    match verb {
        "enqueue" => match queue.enqueue(&owner, &job.0) {
            Admission::Admitted => return "admitted".to_owned(),
            Admission::Queued { position } => return format!("position {position}"),
            Admission::Absent => return "absent".to_owned(),
        },
        "start" => {
            queue.runs(&job, BuildState::Running);
            queue.withdraw(&owner);
        }
        "hold up" => queue.runs(&job, BuildState::HeldUp(Hold::Scheduled)),
        "no node" => queue.runs(&job, BuildState::HeldUp(Hold::Unschedulable)),
        "refuse" => queue.runs(&job, BuildState::HeldUp(Hold::Refused)),
        "suspend" => queue.runs(&job, BuildState::Suspended),
        "continue" => queue.runs(&job, BuildState::Running),
        "end" => queue.ended(&job),
        "withdraw" => queue.withdraw(&owner),
        _ => panic!("unknown event {event:?}"),
    }
    String::new()
}

fn decide(case: &Case) -> String {
    let mut queue = BuildQueue::new(case.limit);
    let mut text = String::new();
    for event in &case.events {
        let answer = apply(&mut queue, event);
        let admitted = queue.advance().iter().map(|owner| format!("admits {}", owner.resource())).collect::<Vec<_>>();
        let answers = [answer].into_iter().chain(admitted).filter(|answer| !answer.is_empty());
        let answers = answers.collect::<Vec<_>>().join(", ");
        let QueueLengths { building, held_up, suspended, waiting } = queue.lengths();
        let mut lengths = format!("{building} building, {held_up} held up, {waiting} queued");
        if suspended > 0 {
            let _ = write!(lengths, ", {suspended} suspended");
        }
        let mut yielding: Vec<String> = queue.yielding().map(|(of, name)| format!("{of}/{name}")).collect();
        yielding.sort();
        if !yielding.is_empty() {
            let _ = write!(lengths, "; {} to suspend", yielding.join(", "));
        }
        let _ = writeln!(text, "{event:<14} {answers:<28} {lengths}");
    }
    text
}

#[test]
fn builds_are_admitted_as_the_cases_say() {
    check("build_queue", decide);
}

/// Returns the seconds until the builds of two namespaces have ended. Before, another namespace queued many builds that
/// sleep until their deadline.
fn others_are_through(limit: usize) -> u64 {
    const DEADLINE: u64 = 900;
    let mut queue = BuildQueue::new(limit);
    let sleeping = (0..60).map(|number| (format!("a/{number}"), DEADLINE));
    let short = (0..3).flat_map(|number| ["b", "c"].map(|namespace| (format!("{namespace}/{number}"), 10)));
    let lasts: HashMap<_, _> = sleeping.chain(short).collect();
    let mut names = lasts.keys().cloned().collect::<Vec<_>>();
    names.sort();
    let mut running = BTreeSet::new();
    let (mut now, mut last) = (0, 0);
    let mut admitted = names;
    admitted.retain(|name| apply(&mut queue, &format!("enqueue {name}")) == "admitted");
    loop {
        for name in std::mem::take(&mut admitted) {
            apply(&mut queue, &format!("start {name}"));
            running.insert((now + lasts[&name], name));
        }
        assert!(running.len() <= limit);
        let Some((end, name)) = running.pop_first() else { return last };
        now = end;
        if !name.starts_with('a') {
            last = end;
        }
        apply(&mut queue, &format!("end {name}"));
        admitted.extend(queue.advance().iter().map(|owner| owner.resource().to_string()));
    }
}

#[test]
fn builds_that_sleep_until_their_deadline_hold_others_up_for_one_of_them_at_a_time() {
    // With a single slot, each round of the other builds waits for one of the sleeping builds.
    let through = [1, 2, 3, 5].map(others_are_through);
    assert!(
        through[0] <= 3 * 900 + 60 && through[1] <= 900 + 60 && through[2..].iter().all(|at| *at <= 60),
        "{through:?}"
    );
}
