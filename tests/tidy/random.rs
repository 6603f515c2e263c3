//! Random numbers of tests are the same in each run.

use std::fs;

use super::sources;

/// Expressions whose numbers differ from run to run. The fuzz test explores with new numbers only when asked to.
const OTHERS: [&str; 8] = [
    "fastrand::u64(",
    "fastrand::u32(",
    "fastrand::usize(",
    "fastrand::shuffle(",
    "fastrand::choice(",
    "fastrand::bool(",
    "fastrand::seed(",
    "Rng::new()",
];
const EXPLORES: &str = "explores() { Rng::new() }";

/// A test with other numbers in each run fails by chance, for a defect that the change under test did not make.
#[test]
fn tests_take_random_numbers_from_one_seed() {
    let mut wrong = Vec::new();
    for path in sources("tests").into_iter().chain(sources("src/testkit")) {
        if path.starts_with("tests/tidy") {
            continue;
        }
        let code = fs::read_to_string(&path).unwrap().replace(EXPLORES, "");
        wrong.extend(
            OTHERS.iter().filter(|other| code.contains(**other)).map(|other| format!("{}: {other}", path.display())),
        );
    }
    assert_eq!(wrong, Vec::<String>::new(), "use `mainstay_testkit::random::random()`");
    let settings = fs::read_to_string(".cargo/config.toml").unwrap();
    assert!(settings.contains("PROPTEST_RNG_SEED = "), "proptest needs a seed in .cargo/config.toml");
}
