//! `mainstay bench --events --kills`: a short run with one kill of each kind.
//!
//! Not here: targets of rate, time and memory, which depend on the machine and the build.

use std::{
    fs::{self, File},
    process::Stdio,
    time::Duration,
};

/// Deadline of the benchmark. It ends earlier by itself, also on a slow machine.
const DEADLINE: Duration = Duration::from_mins(14);

/// Returns the number before the first of these words.
fn number(output: &str, words: &str) -> u64 {
    let before = output.split_once(words).map(|(before, _)| before);
    let digits = before.and_then(|before| before.rsplit(|c: char| !c.is_ascii_digit()).next());
    let number = digits.and_then(|digits| digits.parse().ok());
    number.unwrap_or_else(|| panic!("no number before {words:?}: {output}"))
}

#[tokio::test]
async fn a_benchmark_with_kills_accounts_for_each_accepted_event() {
    let directory = tempfile::tempdir().unwrap();
    // Its processes inherit the files, so no pipe stays open after its end.
    let [table, said] = ["table", "said"].map(|name| directory.path().join(name));
    let mut command = mainstay_testkit::isolated_async(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["bench", "--events=500", "--kills=3", "--rate=50", "--seed=1"]).stdin(Stdio::null());
    command.stdout(File::create(&table).unwrap()).stderr(File::create(&said).unwrap()).kill_on_drop(true);
    let mut benchmark = command.spawn().unwrap();
    let ended = tokio::time::timeout(DEADLINE, benchmark.wait()).await;
    if ended.is_err() {
        benchmark.kill().await.unwrap();
    }
    let [table, said] = [table, said].map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
    let output = format!("{ended:?}\n{table}\n{said}");
    let code = ended.ok().and_then(|ended| ended.unwrap().code());
    assert!(matches!(code, Some(0 | 1)), "{output}");
    assert!(table.contains("50 events of 1 KiB per second for 2 namespaces, 3 kills with the seed 1"), "{output}");
    assert!(table.contains("3 kills (1 of publishers, 1 of dispatchers, 1 of NATS servers)"), "{output}");
    assert!(table.contains(" 0 lost;"), "{output}");
    assert!(table.contains("| 0 deliveries, 0 dead letters; 0 unknown events |"), "{output}");
    // The subscriber refuses two of the first 500 events.
    let letters = number(&output, " dead letters (");
    assert!(letters >= 2, "{output}");
    assert_eq!(number(&output, " that the subscriber refused)"), letters, "{output}");
}
