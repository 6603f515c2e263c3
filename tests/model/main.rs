//! A state machine over the agent: random schedules of commits, hand edits, faults and kills, in virtual time.
//!
//! The agent runs in one thread between a real Git repository and the embedded API server. No part of the agent is
//! replaced: the schedule acts on the repository, the server, the clock and the wire. The checks therefore hold for any
//! design of the engine.
//!
//! | file | content |
//! |---|---|
//! | [`schedule`] | steps, and how random steps are generated |
//! | [`machine`] | executes the steps |
//! | [`reference`](mod@reference) | the reference model: the state that follows from the steps |
//! | [`wire`] | delays, refuses, throttles and repeats requests, loses responses, kills the agent at any request |
//! | [`checks`] | the invariants of each write |
//! | [`broken`] | an agent that breaks a rule, and a schedule that finds it |
//! | [`virtual_time`] | clock, random numbers and threads of a process |
//!
//! # Invariants
//!
//! - After quiet, the cluster matches the branch, each inventory lists the objects that its owner wants, and the agent
//!   writes nothing more. Every owner is Ready within 15 minutes.
//! - A deletion names UID and resourceVersion. The object carries Mainstay's label, an agent has applied it, a commit
//!   that can be decoded removed it, and no guard holds it. An object that moves is therefore never absent.
//! - At most one write of an object is in progress. An inventory lists an object before it is created, and while it
//!   exists.
//! - A suspended owner writes nothing. A paused object is not written. With `prune: false` nothing is deleted.
//! - A stage waits for the stage before. Waits grow after failures and in fights.
//!
//! # Reproduce a failure
//!
//! Each schedule runs in its own process, so that hash keys, thread order and time repeat exactly. A failure is shrunk
//! and printed as one line with `MAINSTAY_MODEL_SCHEDULE`; `MAINSTAY_MODEL_LOG=1` also prints the log.
//! `MAINSTAY_MODEL_SECONDS=3600` runs for an hour, starting with `MAINSTAY_MODEL_SEED`.
//!
//! Why not `proptest-state-machine`: it derives each step from the previous state, so a schedule cannot be repeated
//! from its text alone. Here each step can be executed in each state, and proptest's vectors already shrink.
//!
//! # Seeded defects that it found
//!
//! Each row is a line of the product that was changed by hand, and a schedule of at most five steps that found the
//! defect (seed 1, no noise, the first case). The rules of [`broken`] need no change of the product, and stay tested.
//!
//! | rule | change | found as |
//! |---|---|---|
//! | only objects with Mainstay's label are deleted | `may_delete` ignores another label | does not carry our label |
//! | only applied objects are deleted | `may_delete` skips `Kept::Unproven` | was never applied by an agent |
//! | deletions have preconditions | `delete_with` sends no guard | names no uid and resourceVersion |
//! | handover | `desired_elsewhere` answers `Nobody` | every commit since all was applied wants it |
//! | protected kinds | `holds_much` answers `None` | a guard holds it |
//! | an empty commit deletes nothing | `prune::decide` without `Guard::Everything` | a guard holds it |
//! | a commit that cannot be decoded deletes nothing | problems are ignored in `observe` | it left with a commit that cannot be decoded |
//! | the inventory is written first | `perform` without `save_inventory` before applies | no inventory lists what it
//! creates |
//! | backoff after failures | `Failures::add` waits 50 ms | applied 1357 ms after failure 3 in a row |
//! | backoff in fights | `revert_delay` answers 0 | applied 423 times in a fight of 50 s |
//! | suspension | drift ignores `policy.suspended` | GitSync one is suspended |
//! | stages wait | `perform` applies all stages together | w0 is created before c0 |
//! | pause | `break_glass` answers `None` | c0 is paused |
//! | a list detects removed objects | `Store::missing` answers nothing | does not settle: c0 is missing |
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod broken;
mod checks;
mod machine;
mod reference;
mod schedule;
mod virtual_time;
mod wire;

use std::cell::{Cell, RefCell};
use std::process::Stdio;
use std::time::Instant;

use mainstay_testkit::process::isolated;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use broken::{FOUND, Rule};
use schedule::{Schedule, schedules};

/// The schedule that this process runs.
const CASE: &str = "MAINSTAY_MODEL_SCHEDULE";
/// The rule that the agent of this process breaks.
const BREAK: &str = "MAINSTAY_MODEL_BREAK";
/// Schedules that found defects of the product, each with the defect.
#[rustfmt::skip]
const MENDED: [(&str, &str); 1] = [
    ("a requested sync does not look again at a held object that a user has deleted, as `held` advises",
     r#"{"seed":854169482,"noise":0,"steps":[[{"Fail":[97,422,false]},0],[{"Commit":[{"Put":[2,0,0]}]},0],[{"Hand":[0,"Edit"]},745],[{"Commit":[{"Put":[2,1,0]}]},454],[{"Hand":[2,"WipeManagers"]},22],[{"Commit":[{"Remove":2}]},0]]}"#),
];
/// Maximum number of steps of a random schedule.
const STEPS: usize = 24;
/// Number of random schedules with one seed.
const CASES: u32 = 20;
/// Maximum number of schedules that are tried to shorten a failing one.
const SHRINK: u32 = 300;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs the schedule that the environment names in this process, which then ends.
#[test]
fn one_schedule_keeps_the_invariants() {
    let Ok(text) = std::env::var(CASE) else {
        let nothing = Schedule { seed: 1, noise: 0, steps: Vec::new() };
        return assert_eq!(run_apart(&nothing, None), Ok(()));
    };
    let schedule: Schedule = serde_json::from_str(&text).unwrap();
    let breaks = std::env::var(BREAK).ok().map(|rule| serde_json::from_value(rule.into()).unwrap());
    let runtime = virtual_time::start(schedule.seed.into());
    let (violated, log) = runtime.block_on(machine::run(&schedule, breaks));
    if std::env::var_os("MAINSTAY_MODEL_LOG").is_some() {
        println!("{log}");
    }
    if let Some(violated) = violated {
        println!("VIOLATED {violated}");
        std::process::exit(3);
    }
    std::process::exit(0);
}

#[test]
fn random_schedules_keep_the_invariants() {
    let (first, lasts) = (number("MAINSTAY_MODEL_SEED", 1), number("MAINSTAY_MODEL_SECONDS", 0));
    let began = Instant::now();
    for seed in first.. {
        run_random(seed);
        if began.elapsed().as_secs() >= lasts {
            return;
        }
    }
}

#[test]
fn schedules_that_found_a_defect_keep_the_invariants() {
    for (defect, text) in MENDED {
        assert_eq!(run_apart(&serde_json::from_str(text).unwrap(), None), Ok(()), "{defect}");
    }
}

#[test]
fn each_broken_rule_is_found() {
    for (rule, says, text) in FOUND {
        let schedule: Schedule = serde_json::from_str(text).unwrap();
        assert_eq!(run_apart(&schedule, None), Ok(()), "{rule:?} is kept");
        let found = run_apart(&schedule, Some(rule)).expect_err(&format!("{rule:?} is broken"));
        assert!(found.contains(says), "{rule:?}: {found}");
    }
}

/// Runs random schedules, and shortens a failing one.
fn run_random(seed: u64) {
    let config = Config { cases: CASES, failure_persistence: None, max_shrink_iters: SHRINK, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let (ran, first) = (Cell::new(0), RefCell::new(None));
    let result = runner.run(&schedules(STEPS), |schedule| {
        ran.set(ran.get() + 1);
        let kept = run_apart(&schedule, None);
        if kept.is_err() && first.borrow().is_none() {
            *first.borrow_mut() = Some(format!("seed {seed}, schedule {}: {}", ran.get(), reproduction(&schedule)));
        }
        kept.map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(why, schedule)) = result {
        panic!("{why}\n{}\nfound as {:?}", reproduction(&schedule), first.borrow());
    }
}

/// Runs a schedule in its own process; `Err` is the violation.
fn run_apart(schedule: &Schedule, breaks: Option<Rule>) -> Result<(), String> {
    let mut command = isolated(std::env::current_exe().unwrap());
    command.args(["one_schedule_keeps_the_invariants", "--exact", "--nocapture"]).env(CASE, schedule.text());
    if let Some(rule) = breaks {
        command.env(BREAK, format!("{rule:?}"));
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = out.lines().find_map(|line| line.strip_prefix("VIOLATED ")).map(str::to_owned);
    Err(said.unwrap_or_else(|| format!("{out}\n{err}")))
}

/// Returns the command that runs a schedule alone.
fn reproduction(schedule: &Schedule) -> String {
    format!("{CASE}='{}' cargo nextest run --test model one_schedule --no-capture", schedule.text())
}
