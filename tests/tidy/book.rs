//! The README and the book: every page is reachable, links resolve, pages are short, and sentences are plain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::Regex;

/// Maximum length of the README in lines.
const README_LINES: usize = 200;
/// Maximum length of a page in lines.
const PAGE_LINES: usize = 250;
/// The security model lists each class of hostile input, so it is longer.
const LONG_PAGES: [&str; 1] = ["docs/security.md"];
/// Pages that tests generate.
const GENERATED: &str = "docs/reference/";
/// Maximum number of words in a short sentence.
const LONG_SENTENCE: usize = 25;
/// Maximum percentage of long sentences.
const MOST_LONG: usize = 12;
/// Openings of sentences whose subject is a clause.
pub(super) const OPENINGS: [&str; 9] = ["What", "Whoever", "Of", "By", "That", "Nothing", "Nobody", "Where", "Nor"];
/// Unusual words with their plain replacements. Compared in lower case at word boundaries.
pub(super) const WORDS: [(&str, &str); 8] = [
    ("whoever", "anyone who, or a role"),
    ("put back", "reverted"),
    ("puts back", "reverts"),
    ("is told", "receives"),
    ("are told", "receive"),
    ("nobody", "no user, no client"),
    ("anew", "again"),
    ("of which", "a sentence of its own"),
];

/// A link, or words in code, of a list item or of a cell of a table.
pub(super) enum Part {
    Link(String),
    Code(String),
}

/// Collects the links and the code of list items and of cells.
#[derive(Default)]
struct Entries {
    /// The entries that have not ended. The last one is the innermost.
    open: Vec<Vec<Part>>,
    done: Vec<Vec<Part>>,
}

impl Entries {
    fn take(&mut self, event: &Event<'_>) {
        let part = match event {
            Event::Start(Tag::Item | Tag::TableCell) => return self.open.push(Vec::new()),
            Event::End(TagEnd::Item | TagEnd::TableCell) => return self.done.extend(self.open.pop()),
            Event::Start(Tag::Link { dest_url, .. }) => Part::Link(dest_url.to_string()),
            Event::Code(code) => Part::Code(code.to_string()),
            _ => return,
        };
        if let Some(entry) = self.open.last_mut() {
            entry.push(part);
        }
    }
}

/// The relevant parts of a Markdown file.
pub(super) struct Page {
    pub(super) path: PathBuf,
    lines: usize,
    /// The anchors of the page's headings.
    anchors: BTreeSet<String>,
    links: Vec<String>,
    /// The links and the code of each list item and of each cell, in order.
    pub(super) entries: Vec<Vec<Part>>,
    /// Paragraphs and list items, without code.
    paragraphs: Vec<String>,
}

impl Page {
    fn read(path: &Path) -> Self {
        Self::of(path, &fs::read_to_string(path).unwrap())
    }

    /// Returns the page at `path` with this text.
    pub(super) fn of(path: &Path, text: &str) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            lines: text.lines().count(),
            anchors: BTreeSet::new(),
            links: Vec::new(),
            entries: Vec::new(),
            paragraphs: Vec::new(),
        };
        let mut headings = BTreeMap::<String, usize>::new();
        let (mut words, mut quiet, mut entries) = (String::new(), 0_usize, Entries::default());
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            entries.take(&event);
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::CodeBlock(_) | Tag::Table(_)) => quiet += 1,
                Event::End(TagEnd::CodeBlock | TagEnd::Table) => quiet -= 1,
                Event::Start(Tag::Heading { .. } | Tag::Paragraph | Tag::Item) => words.clear(),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&words);
                    let earlier = headings.entry(anchor.clone()).or_default();
                    page.anchors.insert(if *earlier == 0 { anchor } else { format!("{anchor}-{earlier}") });
                    *earlier += 1;
                    words.clear();
                }
                Event::End(TagEnd::Paragraph | TagEnd::Item) if !words.trim().is_empty() => {
                    page.paragraphs.push(std::mem::take(&mut words));
                }
                Event::Text(text) if quiet == 0 => words.push_str(&text),
                // A name in code counts as a noun.
                Event::Code(code) if quiet == 0 => words.push_str(&code.replace(['.', ' ', '!', '?'], "_")),
                Event::SoftBreak | Event::HardBreak => words.push(' '),
                _ => {}
            }
        }
        page.entries = entries.done;
        page
    }

    fn sentences(&self) -> impl Iterator<Item = String> {
        let end = Regex::new(r"[.!?:]\s+").unwrap();
        self.paragraphs.iter().flat_map(move |paragraph| end.split(paragraph).map(str::to_owned).collect::<Vec<_>>())
    }
}

/// Returns the anchor of a heading as mdBook and Git hosts generate it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

pub(super) fn markdown(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(super) fn book() -> Vec<Page> {
    markdown(Path::new("docs")).iter().map(|path| Page::read(path)).collect()
}

fn all() -> Vec<Page> {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|path| Page::read(Path::new(path)));
    top.into_iter().chain(book()).collect()
}

/// Normalizes a path.
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(plain.pop(), "{} leads out of the repository", path.display()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn the_summary_names_every_page_once() {
    let summary = Page::read(Path::new("docs/SUMMARY.md"));
    let mut named: Vec<_> = summary.links.iter().map(|link| Path::new("docs").join(link)).collect();
    let pages: Vec<_> = book().into_iter().map(|page| page.path).filter(|path| !path.ends_with("SUMMARY.md")).collect();
    named.sort();
    assert_eq!(named, pages);
}

#[test]
fn links_of_the_documentation_lead_to_a_file_and_a_heading() {
    let pages: BTreeMap<_, _> = all().into_iter().map(|page| (page.path.clone(), page)).collect();
    let mut wrong = Vec::new();
    for page in pages.values() {
        for link in page.links.iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.path.clone() } else { plain(&page.path.with_file_name("").join(file)) };
            let has_anchor = pages.get(&target).is_some_and(|target| target.anchors.contains(anchor));
            if !target.exists() || !(anchor.is_empty() || has_anchor) {
                wrong.push(format!("{}: {link}", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "these links lead nowhere:\n{}", wrong.join("\n"));
}

#[test]
fn the_readme_and_the_pages_are_short() {
    let readme = Page::read(Path::new("README.md"));
    assert!(readme.lines <= README_LINES, "README.md has {} lines, at most {README_LINES} read at once", readme.lines);
    let long = book().into_iter().filter(|page| page.lines > PAGE_LINES);
    let long: Vec<_> = long
        .map(|page| page.path.display().to_string())
        .filter(|path| !LONG_PAGES.contains(&&**path) && !path.starts_with(GENERATED))
        .collect();
    assert!(long.is_empty(), "pages of more than {PAGE_LINES} lines: {long:?}");
}

#[test]
fn sentences_of_the_readme_and_the_book_are_plain() {
    let pages: Vec<_> = book().into_iter().chain([Page::read(Path::new("README.md"))]).collect();
    let (mut wrong, mut count, mut words, mut long) = (Vec::new(), 0_usize, 0_usize, 0_usize);
    for page in &pages {
        for sentence in page.sentences() {
            let length = sentence.split_whitespace().count();
            (count, words, long) = (count + 1, words + length, long + usize::from(length > LONG_SENTENCE));
            let first = sentence.split_whitespace().next().unwrap_or_default();
            if OPENINGS.contains(&first) && length > 3 {
                wrong.push(format!("{}: a sentence begins with {first:?}: {sentence}", page.path.display()));
            }
        }
        for paragraph in &page.paragraphs {
            let lower =
                format!(" {} ", paragraph.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '_', " "));
            for (word, plainly) in WORDS.iter().filter(|(word, _)| lower.contains(&format!(" {word} "))) {
                wrong.push(format!("{}: {word:?} (write: {plainly}) in: {paragraph}", page.path.display()));
            }
        }
    }
    let share = long * 100 / count.max(1);
    println!("{count} sentences, {} words each, {share} % with more than {LONG_SENTENCE} words", words / count.max(1));
    assert!(wrong.is_empty(), "{} sentences are not plain:\n{}", wrong.len(), wrong.join("\n"));
    assert!(
        share <= MOST_LONG,
        "{share} % of the sentences have more than {LONG_SENTENCE} words, at most {MOST_LONG} % may"
    );
}
