//! Reads the code blocks of the README and the book: commands in `sh` blocks, and manifests.

use std::{fs, path::PathBuf};

use mainstay_testkit::markdown;

/// Pages whose commands another test runs.
const TESTED_ELSEWHERE: [&str; 2] = ["moving.md", "tutorials/"];
/// Pages that repeat commands of the README.
const REPEATING: [&str; 3] = ["start/quick-start.md", "start/install.md", "develop/tests.md"];

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the pages in the order of the book's summary.
fn pages() -> Vec<String> {
    let summary = read("docs/SUMMARY.md");
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.split_once(')'));
    let pages: Vec<_> = links.map(|(page, _)| page.to_owned()).collect();
    assert!(pages.len() > 50, "{pages:?}");
    pages
}

fn commands_of(path: &str) -> Vec<String> {
    let blocks = markdown::blocks(&read(path));
    let scripts = blocks.iter().filter(|block| block.language == "sh");
    scripts.flat_map(|block| markdown::commands(&block.text)).collect()
}

/// Returns the commands of the README, then those of the book, in order.
pub(super) fn commands() -> Vec<String> {
    let mut all = commands_of("README.md");
    let readme = all.clone();
    for page in pages().iter().filter(|page| !TESTED_ELSEWHERE.iter().any(|other| page.starts_with(other))) {
        let mut own = commands_of(&format!("docs/{page}"));
        if REPEATING.contains(&page.as_str()) {
            own.retain(|command| !readme.contains(command));
        }
        all.extend(own);
    }
    all
}

/// Returns the `yaml` block of a page that contains a text.
pub(super) fn manifest(page: &str, with: &str) -> String {
    let blocks = markdown::blocks(&read(page));
    let found = blocks.into_iter().find(|block| block.language == "yaml" && block.text.contains(with));
    found.unwrap_or_else(|| panic!("no manifest of {page} has {with}")).text
}
