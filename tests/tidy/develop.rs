//! Pages for contributors link source files that exist, and name functions and types that these files define.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::book::{Page, Part, book, plain};

/// The folder of the pages for contributors.
const DEVELOP: &str = "docs/develop";

/// Returns the source file that a part of a page links.
fn linked(page: &Page, part: &Part) -> Option<PathBuf> {
    let Part::Link(link) = part else { return None };
    let file = link.split('#').next().unwrap_or_default();
    let is_source = !link.contains("://") && Path::new(file).extension().is_some_and(|extension| extension == "rs");
    is_source.then(|| plain(&page.path.with_file_name("").join(file)))
}

/// Returns the function or type that code in a page names: the last part of a path. Other code, such as a label, a field
/// or a command, names none.
fn item(code: &str) -> Option<&str> {
    let name = code.trim_end_matches("()").rsplit("::").next()?;
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = name.starts_with(is_letter) && name.chars().all(|c| is_letter(c) || c.is_ascii_digit());
    is_name.then_some(name)
}

/// Whether a source file defines a function or a type of this name, at the beginning of a line. A comment defines none.
fn defines(code: &str, name: &str) -> bool {
    let before = r"(?:pub(?:\([^)]*\))?\s+)?(?:(?:const|async|unsafe)\s+)*(?:fn|struct|enum|trait)";
    Regex::new(&format!(r"(?m)^\s*{before}\s+{name}\b")).unwrap().is_match(code)
}

/// Returns the flaws of a page. In a list item or a cell, a name belongs to the last link of a source file before it, or
/// to the first one. `source` returns the code of a file; `None` if the file does not exist.
fn flaws(page: &Page, source: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let (at, mut flaws) = (page.path.display(), Vec::new());
    for entry in &page.entries {
        let Some(mut file) = entry.iter().find_map(|part| linked(page, part)) else { continue };
        for part in entry {
            if let Some(next) = linked(page, part) {
                file = next;
                if source(&file).is_none() {
                    flaws.push(format!("{at}: {} does not exist; correct the link", file.display()));
                }
            } else if let Part::Code(code) = part
                && let Some(name) = item(code)
                && source(&file).is_some_and(|code| !defines(&code, name))
            {
                let file = file.display();
                flaws.push(format!("{at}: {file} does not define `{name}`; name a function or a type of this file"));
            }
        }
    }
    flaws
}

#[test]
fn pages_for_contributors_name_what_the_linked_files_define() {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let pages = book().into_iter().filter(|page| page.path.starts_with(DEVELOP));
    let wrong: Vec<String> = pages.flat_map(|page| flaws(&page, read)).collect();
    assert!(wrong.is_empty(), "{} names or links are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The page of the architecture, and for each way on it the most files that it may pass.
const ARCHITECTURE: &str = "docs/develop/architecture.md";
const WAYS: [(&str, usize); 3] =
    [("The way of a commit", 20), ("The way of a hand edit", 14), ("The way of a Function", 18)];

/// A reader follows a way file by file.
#[test]
fn the_ways_through_the_code_pass_few_files() {
    let text = fs::read_to_string(ARCHITECTURE).unwrap();
    for (heading, most) in WAYS {
        let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect(heading);
        let section = section.split("\n## ").next().unwrap_or_default();
        let page = Page::of(Path::new(ARCHITECTURE), section);
        let files: BTreeSet<PathBuf> = page.entries.iter().flatten().filter_map(|part| linked(&page, part)).collect();
        assert!(!files.is_empty(), "{ARCHITECTURE}: {heading} names no file");
        assert!(files.len() <= most, "{ARCHITECTURE}: {heading} passes {} files, and {most} are the most", files.len());
    }
}

#[test]
fn missing_files_and_names_without_a_definition_are_found() {
    let text = "\
1. [a.rs](../../src/a.rs) `put`, `Writer::revert()`, `Next`: it sets `mainstay.dev/sync` and `status.held`, and `lost`
2. [b.rs](../../src/b.rs) `put`
3. `Step` of [a.rs](../../src/a.rs#L3) and `put` of [c.rs](../../src/c.rs) `put`
4. `lost` of [a page](tests.md) and [a site](https://example.com/a.rs)

`lost` is outside of a list, also beside [a.rs](../../src/a.rs).

| file | type |
|---|---|
| [a.rs](../../src/a.rs) `Gone` | `lost` |
";
    let page = Page::of(Path::new("docs/develop/x.md"), text);
    let source = |path: &Path| {
        let code = "impl Writer {\n    pub(super) async fn put(&self) {}\n    fn revert() {}\n}\npub enum Next {}\nstruct Step;\n\
                    let lost = \"fn lost()\";\nstruct Goner;\n";
        match path.to_str() {
            Some("src/a.rs") => Some(code.to_owned()),
            Some("src/c.rs") => Some("fn put_stage() {}".to_owned()),
            _ => None,
        }
    };
    let remedy = "name a function or a type of this file";
    assert_eq!(
        flaws(&page, source),
        [
            format!("docs/develop/x.md: src/a.rs does not define `lost`; {remedy}"),
            "docs/develop/x.md: src/b.rs does not exist; correct the link".to_owned(),
            format!("docs/develop/x.md: src/c.rs does not define `put`; {remedy}"),
            format!("docs/develop/x.md: src/a.rs does not define `Gone`; {remedy}"),
        ]
    );
}
