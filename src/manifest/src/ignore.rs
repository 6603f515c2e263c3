//! Applies `.mainstayignore` files, with the syntax and rules of gitignore. Hidden files and directories (whose names
//! begin with a dot) are ignored, unless a rule includes them (`!.deploy/`).
//!
//! Invariant: a rule in a deeper directory takes precedence, but a file in an ignored directory cannot be included
//! again.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Problem;
use mainstay_api::names;
use mainstay_object::{Place, printable};

/// Maximum bytes and lines of one ignore file. Compiled patterns take more memory than their text.
const MAX_BYTES: usize = 24 * 1024;
const MAX_LINES: usize = 2000;
/// Approximate maximum memory of a compiled pattern per byte of its text, and of a file with patterns, both in bytes.
const PATTERN_BYTES: usize = 256;
const FILE_BYTES: usize = 8 << 10;
/// Maximum memory of all rules of a commit, in bytes. The same ignore file may be in thousands of directories.
const MEMORY: usize = 8 << 20;

/// The rules of ignore files, and the handling of hidden names.
#[derive(Default)]
pub(super) struct Ignored {
    /// Rules by directory, such as `apps/web`. The root is the empty string.
    rules: HashMap<String, Gitignore>,
    /// Cached results for directories.
    directories: HashMap<String, bool>,
    /// The base directory. Hidden names above it have no effect.
    base_dir: String,
    /// Approximate memory of the rules, in bytes.
    memory: usize,
}

/// The reason that a file is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// A rule, with its file and line.
    Rule { rule: String, place: String },
    /// A name that begins with a dot.
    Hidden(String),
}

impl Ignored {
    /// Returns an instance without rules, for a base directory.
    pub(super) fn new(base_dir: &str) -> Self {
        Self { base_dir: base_dir.to_owned(), ..Self::default() }
    }

    /// Adds the rules of one file. Returns the problems of the file.
    pub(super) fn add(&mut self, path: &str, bytes: &[u8]) -> Vec<Problem> {
        let problem = |line: usize, what: &str| {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            Problem::new(Place { line, ..Place::file(path) }, what, None)
        };
        let Ok(text) = std::str::from_utf8(bytes) else { return vec![problem(0, "the file is not UTF-8 text")] };
        if text.len() > MAX_BYTES || text.lines().count() > MAX_LINES {
            return vec![problem(0, &format!("the file has more than {MAX_BYTES} bytes or {MAX_LINES} lines"))];
        }
        let patterns = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        if self.memory > MEMORY {
            return Vec::new(); // The problem was already reported.
        }
        self.memory += FILE_BYTES + PATTERN_BYTES * patterns.map(str::len).sum::<usize>();
        if self.memory > MEMORY {
            let hint = Some("write fewer rules, in a parent directory");
            let what = "the rules of the ignore files up to this one take too much memory";
            return vec![Problem::new(Place::file(path), what, hint)];
        }
        let directory = parent(path);
        let mut builder = GitignoreBuilder::new(if directory.is_empty() { "." } else { directory });
        let mut problems = Vec::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let place = PathBuf::from(format!("{path}:{}", index + 1));
            if builder.add_line(Some(place), line).is_err() {
                problems.push(problem(index + 1, "the pattern is not valid"));
            }
        }
        match builder.build() {
            Ok(rules) => {
                self.rules.insert(directory.to_owned(), rules);
            }
            Err(_) => problems.push(problem(0, "the patterns cannot be used together")),
        }
        problems
    }

    /// Returns whether a file or one of its directories is ignored.
    pub(super) fn leaves_out(&mut self, path: &str) -> bool {
        let may_be = !self.rules.is_empty() || path.starts_with('.') || path.contains("/.");
        may_be && (self.leaves_out_directory(parent(path)) || self.decided(path, false).is_some())
    }

    /// Returns the reason that a file is ignored; `None` if it is not ignored.
    pub(super) fn why(&self, path: &str) -> Option<Why> {
        let directories = path.match_indices('/').map(|(end, _)| (&path[..end], true));
        directories.chain([(path, false)]).find_map(|(path, directory)| self.decided(path, directory))
    }

    fn leaves_out_directory(&mut self, path: &str) -> bool {
        if path.is_empty() {
            return false;
        }
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        // Iterates top down without recursion: a path can have thousands of directories.
        let mut out = false;
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let directory = &path[..end];
            let known = self.directories.get(directory).copied();
            out = known.unwrap_or_else(|| out || self.decided(directory, true).is_some());
            if known.is_none() {
                self.directories.insert(directory.to_owned(), out);
            }
        }
        out
    }

    /// Returns the reason that this path itself is ignored. The nearest matching rule decides. Without one, the name of
    /// the path decides.
    fn decided(&self, path: &str, directory: bool) -> Option<Why> {
        let mut above = path;
        while !above.is_empty() {
            above = parent(above);
            let Some(rules) = self.rules.get(above) else { continue };
            match rules.matched(path, directory) {
                Match::None => {}
                Match::Whitelist(_) => return None,
                Match::Ignore(glob) => {
                    let place = glob.from().map(|place| place.to_string_lossy().into_owned()).unwrap_or_default();
                    return Some(Why::Rule { rule: glob.original().to_owned(), place });
                }
            }
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        let below =
            path.strip_prefix(&*self.base_dir).is_some_and(|rest| self.base_dir.is_empty() || rest.starts_with('/'));
        (below && name.starts_with('.') && name != names::IGNORE_FILE).then(|| Why::Hidden(path.to_owned()))
    }
}

/// Example: `the rule "*.tpl.yaml" (apps/.mainstayignore:3)`.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { rule, place } => write!(f, "the rule {rule:?} ({})", printable(place)),
            Self::Hidden(path) => write!(f, "the name of {} begins with a dot", printable(path)),
        }
    }
}

/// Returns the directory of a path; empty at the root.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(files: &[(&str, &str)], paths: &[&str]) -> Vec<String> {
        let mut ignored = Ignored::default();
        for (path, text) in files {
            assert_eq!(ignored.add(path, text.as_bytes()), []);
        }
        paths.iter().filter(|path| !ignored.leaves_out(path)).map(ToString::to_string).collect()
    }

    #[test]
    fn follows_gitignores_rules() {
        let rules = "# comment\nvalues.yaml\n/top.yaml\ncharts/\ndocs/**/x.yaml\n*.gen.yaml\n!keep.gen.yaml\n";
        let paths = [
            "values.yaml",
            "a/values.yaml",
            "top.yaml",
            "a/top.yaml",
            "charts/a.yaml",
            "a/charts/b/c.yaml",
            "charts",
            "docs/a/b/x.yaml",
            "docs/y.yaml",
            "a.gen.yaml",
            "keep.gen.yaml",
        ];
        assert_eq!(
            left(&[(".mainstayignore", rules)], &paths),
            ["a/top.yaml", "charts", "docs/y.yaml", "keep.gen.yaml"]
        );
    }

    #[test]
    fn a_deeper_file_has_the_last_word_but_cannot_enter_what_is_left_out() {
        let files = [
            ("base/.mainstayignore", "*.yaml\nold/\n"),
            ("base/a/.mainstayignore", "!*.yaml\n/x.yaml\n"),
            ("base/old/.mainstayignore", "!*\n"),
        ];
        let paths = ["x.yaml", "base/x.yaml", "base/a/x.yaml", "base/a/y.yaml", "base/a/b/x.yaml", "base/old/z.yaml"];
        assert_eq!(left(&files, &paths), ["x.yaml", "base/a/y.yaml", "base/a/b/x.yaml"]);
    }

    #[test]
    fn the_rules_of_all_files_together_are_bounded() {
        let (few, many) = ("*.md\n/docs/\n".to_owned(), format!("{}\n", "?".repeat(23)).repeat(1000));
        let added = |rules: &str, comment: &str, count: usize| {
            let mut ignored = Ignored::default();
            let add = |n: usize| ignored.add(&format!("d{n}/.mainstayignore"), format!("{comment}{rules}").as_bytes());
            let problems: Vec<_> = (0..count).flat_map(add).map(|problem| problem.to_string()).collect();
            (ignored.rules.len(), problems)
        };
        assert_eq!(added(&few, "# comments cost nothing\n\n", 500), (500, vec![]));
        let expected = "d1/.mainstayignore: the rules of the ignore files up to this one take too much memory (write \
                        fewer rules, in a parent directory)";
        assert_eq!(added(&many, "", 1000), (1, vec![expected.to_owned()]));
    }

    #[test]
    fn hidden_files_below_the_directory_are_left_out() {
        let left_out = |base_dir: &str, rules: &str, path: &str| {
            let mut ignored = Ignored::new(base_dir);
            ignored.add(".mainstayignore", rules.as_bytes());
            assert_eq!(ignored.leaves_out(path), ignored.why(path).is_some(), "{path}");
            ignored.why(path).map(|why| why.to_string())
        };
        let hidden = Some("the name of .github begins with a dot".to_owned());
        assert_eq!(left_out("", "", ".github/workflows/a.yaml"), hidden);
        assert_eq!(left_out("", "", "a/.b.yaml"), Some("the name of a/.b.yaml begins with a dot".to_owned()));
        assert_eq!(left_out("", "", "a.b/c..yaml"), None);
        assert_eq!(
            left_out("", "# x\n\n*.yaml\n", "a/b.yaml"),
            Some("the rule \"*.yaml\" (.mainstayignore:3)".to_owned())
        );
        assert_eq!(left_out("", "!.deploy/\n", ".deploy/a.yaml"), None);
        assert!(left_out("", "!.deploy/\n", ".deploy/.b.yaml").is_some());
        assert_eq!(left_out(".github/k8s", "", ".github/k8s/a.yaml"), None);
        assert!(left_out(".github/k8s", "", ".github/k8s/.a/b.yaml").is_some());
        assert!(left_out(".a", "", ".ab/c.yaml").is_none(), "it is not below");
    }

    #[test]
    fn reports_a_broken_pattern_with_its_line() {
        let mut ignored = Ignored::default();
        let problems = ignored.add("a/.mainstayignore", b"ok\n[z-a]\n");
        assert_eq!(problems[0].to_string(), "a/.mainstayignore, line 2: the pattern is not valid");
        assert_eq!(ignored.add(".mainstayignore", &[0xff]).len(), 1);
        assert_eq!(ignored.add(".mainstayignore", "a\n".repeat(3000).as_bytes()).len(), 1);
    }
}
