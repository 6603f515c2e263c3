//! The model.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod broken;
mod checks;
mod machine;
mod reference;
mod schedule;
mod virtual_time;
mod wire;

use std::cell::Cell;
use std::process::{Command, Stdio};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use broken::{FOUND, Rule};
use schedule::{Schedule, schedules};

const CASE: &str = "MAINSTAY_MODEL_SCHEDULE";
const BREAK: &str = "MAINSTAY_MODEL_BREAK";
const STEPS: usize = 24;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Runs the schedule that the environment names, in this process.
#[test]
fn one_schedule_keeps_the_invariants() {
    let text = std::env::var(CASE).unwrap_or_else(|_| r#"{"seed":1,"noise":0,"steps":[]}"#.to_owned());
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

fn run_apart(schedule: &Schedule, breaks: Option<Rule>) -> Result<(), String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
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

#[test]
fn random_schedules_keep_the_invariants() {
    let (seed, cases) = (number("MAINSTAY_MODEL_SEED", 1), number("MAINSTAY_MODEL_CASES", 40));
    let config = Config {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: u32::try_from(number("MAINSTAY_MODEL_SHRINK", 300)).unwrap(),
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let tried = Cell::new(0);
    let result = runner.run(&schedules(STEPS), |schedule| {
        tried.set(tried.get() + 1);
        run_apart(&schedule, None).map_err(|why| {
            println!("case {}: {why}\n{}\n", tried.get(), reproduction(&schedule));
            TestCaseError::fail(why)
        })
    });
    if let Err(TestError::Fail(why, schedule)) = result {
        panic!("{why}\n{}", reproduction(&schedule));
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

/// The command that runs a schedule alone.
fn reproduction(schedule: &Schedule) -> String {
    format!("{CASE}='{}' cargo nextest run --test model one_schedule --no-capture", schedule.text())
}
