//! `.ci/real` runs the tests that `tests/real/merge-tests` names. It finds a wrong name only after a long build.

use std::{collections::BTreeSet, fs, path::Path};

use super::sources;

/// The filters of `.ci/real`: a test runs if its name contains one of `chosen` and none of `skipped`.
#[derive(Debug, Default, PartialEq)]
struct Filters {
    binaries: Vec<String>,
    chosen: Vec<String>,
    skipped: Vec<String>,
}

impl Filters {
    fn runs(&self, name: &str) -> bool {
        let contains = |filters: &[String]| filters.iter().any(|filter| name.contains(filter.as_str()));
        contains(&self.chosen) && !contains(&self.skipped)
    }
}

/// Returns the words of an array of a shell script, without comments.
fn array(script: &str, name: &str) -> Vec<String> {
    let Some((_, rest)) = script.split_once(&format!("\n{name}=(")) else { return Vec::new() };
    let mut words = Vec::new();
    for line in rest.lines() {
        let line = line.split(" #").next().unwrap_or_default();
        if line.trim_start().starts_with('#') {
            continue;
        }
        let (line, is_last) = line.split_once(')').map_or((line, false), |(line, _)| (line, true));
        words.extend(line.split_whitespace().map(str::to_owned));
        if is_last {
            break;
        }
    }
    words
}

fn filters(script: &str) -> Filters {
    let mut found =
        Filters { binaries: array(script, "binaries"), chosen: array(script, "installs"), ..Filters::default() };
    let mut words = array(script, "agent_tests").into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--skip" => found.skipped.extend(words.next()),
            _ => found.chosen.push(word),
        }
    }
    found
}

/// Returns the names of a file's tests: functions below an attribute that ends in `test`.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            is_test |= path == "test" || path.ends_with("::test");
        } else if is_test && !line.starts_with("//") {
            let signature = line.split_once("fn ").map_or("", |(_, rest)| rest);
            names.extend(signature.split(['(', '<']).next().filter(|name| !name.is_empty()));
            is_test = false;
        }
    }
    names
}

/// Returns the tests of a binary in `tests`, as MODULE::TEST.
fn tests_of(binary: &str) -> BTreeSet<String> {
    let root = Path::new("tests").join(binary);
    let mut found = BTreeSet::new();
    for path in sources(&root) {
        let module = path.strip_prefix(&root).unwrap().with_extension("");
        let parts: Vec<_> = module.iter().filter_map(|part| part.to_str()).filter(|part| *part != "mod").collect();
        let text = fs::read_to_string(&path).unwrap();
        found.extend(test_names(&text).into_iter().map(|name| format!("{}::{name}", parts.join("::"))));
    }
    found
}

/// Returns what is wrong with the lines of `merge-tests`.
fn problems(list: &str, filters: &Filters, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for name in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if !tests.contains(name) {
            wrong.push(format!("{name}: no test of {:?} has this name", filters.binaries));
        } else if !filters.runs(name) {
            wrong.push(format!("{name}: `agent_tests` of .ci/real does not select its module, or skips it"));
        }
        if !seen.insert(name) {
            wrong.push(format!("{name}: the line is there twice"));
        }
    }
    for filter in filters.chosen.iter().chain(&filters.skipped) {
        if !tests.iter().any(|name| name.contains(filter.as_str())) {
            wrong.push(format!("{filter}: `agent_tests` of .ci/real selects or skips it, and no test has this name"));
        }
    }
    wrong
}

#[test]
fn tests_of_a_merge_run_exist_and_run_on_the_real_server() {
    let filters = filters(&fs::read_to_string(".ci/real").unwrap());
    let tests: BTreeSet<String> = filters.binaries.iter().flat_map(|binary| tests_of(binary)).collect();
    assert!(tests.len() > 500 && filters.chosen.len() > 50, "{} tests, {filters:?}", tests.len());
    let list = fs::read_to_string("tests/real/merge-tests").unwrap();
    assert_eq!(problems(&list, &filters, &tests), Vec::<String>::new());
}

#[test]
fn wrong_lines_of_the_list_are_found() {
    let script = "\nbinaries=(a b)\ninstalls=(onboarding::)\nagent_tests=(\n  one:: two::   # a comment\n  # --skip all\n  --skip one::slow\n)\nrest=(x)";
    let filters = filters(script);
    assert_eq!(filters.binaries, ["a", "b"]);
    assert_eq!(
        (filters.chosen.join(" "), filters.skipped.join(" ")),
        ("onboarding:: one:: two::".into(), "one::slow".into())
    );
    let text = "#[test]\nfn first() {}\n#[tokio::test(flavor = \"x\")]\n// why\nasync fn second() {}\nfn third() {}";
    assert_eq!(test_names(text), ["first", "second"]);
    let tests = ["one::a", "one::slow", "other::b", "onboarding::c"].map(str::to_owned).into();
    let found = problems("# why\n\none::a\none::a\none::slow\nother::b\none::gone\n", &filters, &tests);
    assert_eq!(
        found,
        [
            "one::a: the line is there twice",
            "one::slow: `agent_tests` of .ci/real does not select its module, or skips it",
            "other::b: `agent_tests` of .ci/real does not select its module, or skips it",
            "one::gone: no test of [\"a\", \"b\"] has this name",
            "two::: `agent_tests` of .ci/real selects or skips it, and no test has this name",
        ]
    );
}
