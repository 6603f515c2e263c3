//! Fuzzes every parser of untrusted input with mutated seeds and random bytes. Each must end soon, without a panic, and
//! keep its invariants. The targets are in the modules `fuzz` of their crates; `cargo fuzz` runs them, too.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod mutation;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, fs, panic, thread};

use fastrand::Rng;
use mainstay_testkit::random::random;
use proptest::prelude::*;

use mutation::Mutator;

/// A target of `tests/fuzz`: its name and function.
type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 24] = [
    ("admission_review", mainstay_function::admission::fuzz::admission_review),
    ("api_rule", mainstay_exposure::fuzz::api_rule),
    ("chart_index", mainstay_manifest::fuzz::chart_index),
    ("cloud_event", mainstay_eventing::fuzz::cloud_event),
    ("conversion_review", mainstay_function::admission::fuzz::conversion_review),
    ("cron", mainstay_object::fuzz::cron),
    ("docker_config", mainstay_function::registry::fuzz::docker_config),
    ("google_key", mainstay_git::fuzz::google_key),
    ("hub_address", mainstay_notification::fuzz::hub_address),
    ("ignore", mainstay_manifest::fuzz::ignore),
    ("inventory", mainstay_engine::fuzz::inventory),
    ("known_hosts", mainstay_git::fuzz::known_hosts),
    ("manifest", mainstay_manifest::fuzz::manifest),
    ("pack", mainstay_git::fuzz::pack),
    ("pkt_line", mainstay_git::fuzz::pkt_line),
    ("receiver_body", mainstay_gitsync::receiver::fuzz::receiver_body),
    ("receiver_filter", mainstay_gitsync::receiver::fuzz::receiver_filter),
    ("registry_answer", mainstay_function::registry::fuzz::registry_answer),
    ("sops", mainstay_manifest::sops::fuzz::sops),
    ("ssh_key", mainstay_git::fuzz::ssh_key),
    ("subscription", mainstay_eventing::fuzz::subscription),
    ("trigger", mainstay_eventing::fuzz::trigger),
    ("url", mainstay_git::fuzz::url),
    ("watch_line", mainstay_engine::fuzz::watch_line),
];

/// Environment variable with the duration of all mutations in seconds, which are then different in each run. The default
/// is a fixed number of mutations, which are the same in each run.
const SECONDS: &str = "MAINSTAY_FUZZ_SECONDS";
/// Default number of mutations per target.
const FEW: usize = 1500;
/// Maximum CPU time of an input. Inputs of this size normally take a thousandth of it.
const SLOW: Duration = Duration::from_secs(5);
/// Time after which an input counts as hanging.
const HANGS: Duration = Duration::from_secs(120);

/// Returns whether the mutations differ from those of other runs.
fn explores() -> bool {
    env::var_os(SECONDS).is_some()
}

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz"))
}

/// Returns the seeds of a target.
fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(fuzz().join("seeds").join(target)).into_iter().flatten();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(file).unwrap())).collect()
}

/// The file with the present input of a target, which remains if the process ends.
fn current(target: &str) -> PathBuf {
    fuzz().join("artifacts").join(target).join("current")
}

/// Runs a target with mutations until `is_over` returns true for their number. Returns the number, or the failure.
fn feed((target, read): Target, is_over: impl Fn(usize) -> bool) -> Result<usize, String> {
    let file = current(target);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let seeds = seeds(target).into_iter().map(|(_, seed)| seed).collect();
    let mut mutator = Mutator::new(seeds, if explores() { Rng::new() } else { random() });
    let mut count = 0;
    while !is_over(count) {
        let input = mutator.next();
        fs::write(&file, &input).unwrap();
        // CPU time, because the machine may be busy.
        let began = mainstay_git::thread_time();
        let is_read = panic::catch_unwind(|| read(&input)).is_ok();
        let took = mainstay_git::thread_time().saturating_sub(began);
        if !is_read || took > SLOW {
            let what = if is_read { format!("took {took:?} for an input") } else { "panicked".to_owned() };
            return Err(format!("{target} {what}; {}", again(target)));
        }
        count += 1;
    }
    fs::remove_file(&file).unwrap();
    Ok(count)
}

fn again(target: &str) -> String {
    let file = current(target);
    let file = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display();
    format!("to see it again: cp {file} tests/fuzz/seeds/{target}/NAME && cargo test --test fuzz")
}

#[test]
fn every_target_is_built_and_has_inputs() {
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/develop/tests.md")).unwrap();
    for (name, read) in TARGETS {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} in Cargo.toml");
        let target = fs::read_to_string(fuzz().join(format!("targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("fuzz::{name}(bytes)")), "{target}");
        assert!(page.contains(&format!("`{name}`")), "{name} in docs/develop/tests.md");
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        for (file, seed) in seeds {
            // Shown if the test fails.
            println!("{}", file.display());
            read(&seed);
        }
    }
}

/// Runs as many targets concurrently as there are CPUs. A hang is reported, too.
#[test]
fn every_reader_takes_what_was_right_before_it_was_changed() {
    let whole = env::var(SECONDS).ok().map(|text| Duration::from_secs(text.parse().unwrap()));
    let workers = thread::available_parallelism().map_or(1, usize::from).min(TARGETS.len());
    let each = whole.map(|whole| whole * u32::try_from(workers).unwrap() / u32::try_from(TARGETS.len()).unwrap());
    let (tell, told) = mpsc::channel();
    let next = Arc::new(AtomicUsize::new(0));
    for _ in 0..workers {
        let (tell, next) = (tell.clone(), Arc::clone(&next));
        thread::spawn(move || {
            while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                let end = each.map(|each| Instant::now() + each);
                let is_over = |count| end.map_or(count >= FEW, |end| Instant::now() >= end);
                tell.send((target.0, feed(*target, is_over))).unwrap();
            }
        });
    }
    let mut waiting: Vec<_> = TARGETS.iter().map(|(target, _)| *target).collect();
    let mut failures = Vec::new();
    while !waiting.is_empty() {
        match told.recv_timeout(each.unwrap_or_default() + HANGS) {
            Ok((target, result)) => {
                waiting.retain(|name| *name != target);
                match result {
                    Ok(count) => println!("{target}: {count} mutations"),
                    Err(failure) => failures.push(failure),
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let running = waiting.drain(..).filter(|target| current(target).exists());
                failures.extend(running.map(|target| format!("{target} never ends; {}", again(target))));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

proptest! {
    #[test]
    fn every_reader_takes_any_bytes(bytes: Vec<u8>, text: String) {
        for bytes in [&bytes[..], text.as_bytes()] {
            for (_, read) in TARGETS {
                read(bytes);
            }
        }
    }
}
