//! Applies `.mainstayignore` files, with the syntax and rules of gitignore.
//!
//! Invariant: a file in a deeper directory takes precedence, but nothing inside an ignored directory can be included
//! again.

use std::collections::HashMap;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::Problem;
use crate::object::Place;

/// Maximum bytes and lines of one ignore file; patterns are compiled, so they cost more than their text.
const MAX_BYTES: usize = 64 * 1024;
const MAX_LINES: usize = 2000;

/// The rules of all ignore files.
#[derive(Default)]
pub(super) struct Ignored {
    /// By directory, as `apps/web`; the root is empty.
    rules: HashMap<String, Gitignore>,
    /// Directories that were checked before.
    directories: HashMap<String, bool>,
}

impl Ignored {
    /// Adds the rules of one file; returns its problems.
    pub(super) fn add(&mut self, path: &str, bytes: &[u8]) -> Vec<Problem> {
        let problem = |line: usize, what: &str| {
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            Problem::new(Place { line, ..Place::file(path) }, what, None)
        };
        let Ok(text) = std::str::from_utf8(bytes) else { return vec![problem(0, "the file is not UTF-8 text")] };
        if text.len() > MAX_BYTES || text.lines().count() > MAX_LINES {
            return vec![problem(0, &format!("the file has more than {MAX_BYTES} bytes or {MAX_LINES} lines"))];
        }
        let directory = parent(path);
        let mut builder = GitignoreBuilder::new(if directory.is_empty() { "." } else { directory });
        let mut problems = Vec::new();
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            if builder.add_line(None, line).is_err() {
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

    /// Whether a file is ignored, by itself or with one of its directories.
    pub(super) fn leaves_out(&mut self, path: &str) -> bool {
        !self.rules.is_empty() && (self.leaves_out_directory(parent(path)) || self.decided(path, false))
    }

    fn leaves_out_directory(&mut self, path: &str) -> bool {
        if path.is_empty() {
            return false;
        }
        if let Some(known) = self.directories.get(path) {
            return *known;
        }
        // Top down and not recursive: a path can have thousands of directories.
        let mut out = false;
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let directory = &path[..end];
            let known = self.directories.get(directory).copied();
            out = known.unwrap_or_else(|| out || self.decided(directory, true));
            if known.is_none() {
                self.directories.insert(directory.to_owned(), out);
            }
        }
        out
    }

    /// The result of the nearest rule that matches the path itself.
    fn decided(&self, path: &str, directory: bool) -> bool {
        let mut above = path;
        while !above.is_empty() {
            above = parent(above);
            let Some(rules) = self.rules.get(above) else { continue };
            let matched = rules.matched(path, directory);
            if !matched.is_none() {
                return matched.is_ignore();
            }
        }
        false
    }
}

/// The directory of a path; empty at the root.
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
    fn reports_a_broken_pattern_with_its_line() {
        let mut ignored = Ignored::default();
        let problems = ignored.add("a/.mainstayignore", b"ok\n[z-a]\n");
        assert_eq!(problems[0].to_string(), "a/.mainstayignore, line 2: the pattern is not valid");
        assert_eq!(ignored.add(".mainstayignore", &[0xff]).len(), 1);
        assert_eq!(ignored.add(".mainstayignore", "a\n".repeat(3000).as_bytes()).len(), 1);
    }
}
