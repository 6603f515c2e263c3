//! The table of hostile input in `docs/security.md`: each class names tests, and these tests exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The page with the table, and its heading.
const PAGE: &str = "docs/security.md";
const HEADING: &str = "## Hostile input";

/// Classes that had no test when they were found. A row for each of them stays.
const FOUND: [&str; 16] = [
    "Reserved gateway names",
    "Service syntax in APIRules",
    "ExternalName targets",
    "Trigger names",
    "Internal addresses behind a valid sink",
    "`jwks_urls` and other URLs of handlers",
    "GitRepositories that name registry or copied Secrets",
    "Many tiny elements",
    "Injector annotations",
    "kubeconfig, SOPS and other Secrets in code",
    "Full journal",
    "Reply amplification",
    "Links in `.mainstay`",
    "`Origin` and `Host` on local ports",
    "Collisions of repository names",
    "SHA-1 collisions",
];

/// A row of the table: the class, and the names in backticks of the last cell.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    class: String,
    tests: Vec<String>,
}

#[test]
fn the_table_of_hostile_input_names_tests_that_exist() {
    let rows = rows(&fs::read_to_string(PAGE).unwrap());
    assert!(!rows.is_empty(), "{PAGE} has no table below `{HEADING}`");
    let (binaries, mut classes, mut wrong) = (binaries(), BTreeSet::new(), Vec::new());
    for row in &rows {
        if !classes.insert(&row.class) {
            wrong.push(format!("{}: there are two rows", row.class));
        }
        if row.tests.is_empty() {
            wrong.push(format!("{}: the row names no test", row.class));
        }
        let missing = row.tests.iter().filter(|test| !exists(&binaries, test));
        wrong.extend(missing.map(|test| format!("{}: no test `{test}`", row.class)));
    }
    let gone = FOUND.iter().filter(|class| !classes.contains(&(**class).to_owned()));
    wrong.extend(gone.map(|class| format!("{class}: there is no row")));
    assert_eq!(wrong, Vec::<String>::new(), "{PAGE}: a test is named as `binary module::name`, as nextest names it");
}

/// Returns the table rows of the section, without header rows.
fn rows(page: &str) -> Vec<Row> {
    let below = page.lines().skip_while(|line| *line != HEADING).skip(1).take_while(|line| !line.starts_with("## "));
    let cells = |line: &str| -> Option<Vec<String>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?.replace("\\|", "\u{1}");
        Some(inner.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect())
    };
    let mut rows = Vec::new();
    let mut is_body = false;
    for line in below {
        match cells(line) {
            None => is_body = false,
            Some(cells) if cells.iter().all(|cell| cell.starts_with("---")) => is_body = true,
            Some(cells) if is_body => rows.push(Row {
                class: cells.first().cloned().unwrap_or_default(),
                tests: cells
                    .last()
                    .into_iter()
                    .flat_map(|cell| cell.split('`').skip(1).step_by(2))
                    .map(str::to_owned)
                    .collect(),
            }),
            Some(_) => {}
        }
    }
    rows
}

/// Returns the crate root files of each test binary, by package name or by name of the integration test.
fn binaries() -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let folders = |path: &str| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let packages = folders("src").chain(folders("src/devcluster")).chain([PathBuf::from(".")]);
    for package in packages.filter(|package| package.join("Cargo.toml").exists()) {
        let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap();
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let name = name.unwrap_or_else(|| panic!("{} has no name", package.display()));
        let roots = ["src/lib.rs", "src/mainstay/lib.rs", "src/mainstay/main.rs"].map(|root| package.join(root));
        found.entry(name.to_owned()).or_default().extend(roots.into_iter().filter(|root| root.exists()));
        for test in folders(package.join("tests").to_str().unwrap()) {
            let name = test.file_stem().unwrap().to_str().unwrap().to_owned();
            let root = if test.is_dir() { test.join("main.rs") } else { test };
            if root.exists() && root.extension().is_some_and(|extension| extension == "rs") {
                found.entry(name).or_default().push(root);
            }
        }
    }
    found
}

/// Whether a test exists, for example `functions admission::hostile_reviews_are_answered`.
fn exists(binaries: &BTreeMap<String, Vec<PathBuf>>, test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else { return false };
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    let roots = binaries.get(binary).into_iter().flatten();
    roots.filter_map(|root| module(root, &modules)).any(|code| has_test(&code, name))
}

/// Returns the code of a module without its inline modules.
fn module(root: &Path, path: &[&str]) -> Option<String> {
    let mut code = fs::read_to_string(root).ok()?;
    let mut folder = root.parent()?.to_owned();
    for name in path {
        folder.push(name);
        code = if declares(&code, name) {
            let files = [folder.with_extension("rs"), folder.join("mod.rs")];
            files.iter().find_map(|file| fs::read_to_string(file).ok())?
        } else {
            inline_modules(&code).1.remove(*name)?
        };
    }
    Some(inline_modules(&code).0)
}

/// Whether code declares a module with its own file.
fn declares(code: &str, name: &str) -> bool {
    code.lines().any(|line| module_of(line).and_then(|rest| rest.strip_suffix(';')) == Some(name))
}

/// Returns the text after `mod` in a declaration.
fn module_of(line: &str) -> Option<&str> {
    let (before, rest) = line.trim_start().split_once("mod ")?;
    let before = before.trim_end();
    let is_visibility = before == "pub" || before.starts_with("pub(") && before.ends_with(')');
    (before.is_empty() || is_visibility).then_some(rest)
}

/// Returns the code outside of inline modules, and the code of each inline module.
fn inline_modules(code: &str) -> (String, BTreeMap<String, String>) {
    let (mut outside, mut modules) = (String::new(), BTreeMap::new());
    let mut open: Option<(String, String, String)> = None;
    for line in code.lines() {
        match (&mut open, module_of(line).and_then(|rest| rest.strip_suffix(" {"))) {
            (None, Some(name)) => {
                let indentation = &line[..line.len() - line.trim_start().len()];
                open = Some((name.to_owned(), format!("{indentation}}}"), String::new()));
            }
            (Some((_, end, _)), _) if line == end => {
                modules.extend(open.take().map(|(name, _, inner)| (name, inner)));
            }
            (Some((_, _, inner)), _) => inner.extend([line, "\n"]),
            (None, None) => outside.extend([line, "\n"]),
        }
    }
    (outside, modules)
}

/// Whether code has a test function with this name.
fn has_test(code: &str, name: &str) -> bool {
    let mut is_test = false;
    for line in code.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            if is_test && rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('(')) {
                return true;
            }
            is_test = false;
        }
    }
    false
}

#[test]
fn rows_of_the_table_are_read() {
    let page = "| a | `no table` |\n## Hostile input\ntext\n\n| class | test |\n|---|---|\n| first | `x a::b`, `y c` |\n\
                | a \\| b | none |\n\n## Next\n| class | test |\n|---|---|\n| other | `z d` |\n";
    let row = |class: &str, tests: &[&str]| Row {
        class: class.to_owned(),
        tests: tests.iter().map(|test| (*test).to_owned()).collect(),
    };
    assert_eq!(rows(page), [row("first", &["x a::b", "y c"]), row("a | b", &[])]);
}

#[test]
fn tests_are_found_by_their_whole_name_only() {
    let binaries = binaries();
    for test in [
        "tidy security::tests_are_found_by_their_whole_name_only",
        "mainstay-object names::tests::a_label_is_one_label",
        "mainstay-object printable::tests::unprintable_characters_are_removed",
        "functions eventing::hostile::bodies_that_are_no_events_are_refused",
        "mainstay-cluster kind::tests::keeps_a_hostile_name_inside_its_segment",
        "fuzz every_reader_takes_any_bytes",
        "server hostile::the_body_may_not_be_a_bomb",
        "mainstay cli::dev::token::tests::is_long_and_never_the_same",
    ] {
        assert!(exists(&binaries, test), "{test}");
    }
    for test in [
        "tidy tests_are_found_by_their_whole_name_only",
        "tidy security::tests_are_found",
        "tidy security::exists",
        "tidy::security::tests_are_found_by_their_whole_name_only",
        "mainstay-object printable::unprintable_characters_are_removed",
        "mainstay-cluster printable::tests::unprintable_characters_are_removed",
        "unknown printable::tests::unprintable_characters_are_removed",
    ] {
        assert!(!exists(&binaries, test), "{test}");
    }
}
