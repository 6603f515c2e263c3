//! `mainstay bench --events --kills`: a short run with one kill of each kind.
//!
//! Not here: targets of rate, time and memory, which depend on the machine and the build.

/// Returns the verdict of the row that contains these words.
fn verdict<'t>(table: &'t str, words: &str) -> &'t str {
    let row = table.lines().find(|line| line.contains(words));
    let row = row.unwrap_or_else(|| panic!("no row {words:?}: {table}"));
    row.trim_end_matches('|').rsplit('|').next().unwrap().trim()
}

#[test]
fn a_benchmark_with_kills_accounts_for_each_accepted_event() {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["bench", "--events=500", "--kills=3", "--rate=50", "--seed=1"]);
    let output = command.output().unwrap();
    let (table, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {said}", output.status);
    assert!(table.contains("50 events of 1 KiB per second for 2 namespaces, 3 kills with the seed 1"), "{table}");
    assert!(table.contains("3 kills (1 of publishers, 1 of dispatchers, 1 of NATS servers)"), "{table}{said}");
    for words in ["deliveries of accepted events", "events of a namespace without a grant"] {
        assert_eq!(verdict(&table, words), "held", "{table}{said}");
    }
    // The subscriber has refused some of 500 events.
    assert!(!table.contains(" delivered, 0 dead letters"), "{table}{said}");
}
