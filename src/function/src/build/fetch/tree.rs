//! The files of a Function's source by path, and checks whether they may be written.
//!
//! Invariant: a [`Tree`] contains no path that leaves its directory, no duplicate path, and no symbolic link that
//! resolves outside of the directory when a kernel follows it. Not here: file contents and access to the disk.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Finding;

/// Maximum length of a file or directory name in bytes.
const NAME_BYTES: usize = 255;
/// Maximum length in bytes of a path relative to the base directory.
const PATH_BYTES: usize = 1024;
/// Maximum number of links on the way to one file.
const LINKS: usize = 40;

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory. Git knows directories only through their files.
    Directory,
    /// A regular file.
    File {
        /// Whether the file is executable.
        executable: bool,
    },
    /// A symbolic link.
    Symlink {
        /// The link's target as written.
        target: String,
    },
}

/// The files of a source, by path from its directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Node>);

/// The result of following a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A path that is not a link. The root is the empty path.
    At(String),
    /// The path does not exist.
    Nowhere,
    /// The path resolves outside of the tree.
    Outside,
    /// The links form a loop.
    Loop,
}

impl Tree {
    /// Adds a file or link with its parent directories. [`Tree::check_links`] checks the links once all entries
    /// are added.
    pub(in crate::build) fn add(&mut self, path: &str, node: Node) -> Result<(), Finding> {
        check_path(path)?;
        let twice = || Finding::source(format!("`{path}` is in the repository twice"));
        for (at, _) in path.match_indices('/') {
            if *self.0.entry(path[..at].to_owned()).or_insert(Node::Directory) != Node::Directory {
                return Err(twice());
            }
        }
        match self.0.insert(path.to_owned(), node) {
            None => Ok(()),
            Some(_) => Err(twice()),
        }
    }

    /// Refuses links that resolve outside of the tree.
    pub(super) fn check_links(&self) -> Result<(), Finding> {
        for (path, node) in &self.0 {
            let Node::Symlink { target } = node else { continue };
            let why = match self.resolve(path) {
                Place::At(_) | Place::Nowhere => continue,
                Place::Outside => "points outside the Function's directory",
                Place::Loop => "points to itself",
            };
            return Err(Finding::source(format!(
                "the symbolic link `{path}` {why} (to `{target}`); an image holds only files of the directory"
            )));
        }
        Ok(())
    }

    /// Returns the entry at `path` without following links.
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    /// Whether there is a directory at `path`; the root is the empty path.
    pub fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.get(path) == Some(&Node::Directory)
    }

    /// Returns all entries in the order of their paths, so a directory comes before its contents.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Returns the names in the directory `path`; the root is the empty path.
    pub fn names(&self, path: &str) -> Vec<&str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        self.0.keys().filter_map(|key| key.strip_prefix(&prefix)).filter(|name| !name.contains('/')).collect()
    }

    /// Follows `path` from the root through links and `..`, like a kernel whose file system is this tree.
    pub fn resolve(&self, path: &str) -> Place {
        self.walk(path, &mut BTreeSet::new())
    }

    /// Works like [`Tree::resolve`] and records the links on the way.
    fn walk(&self, path: &str, links: &mut BTreeSet<String>) -> Place {
        if path.starts_with('/') {
            return Place::Outside;
        }
        let mut at: Vec<String> = Vec::new();
        let mut ahead: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut followed = 0;
        let mut missing = false;
        while let Some(part) = ahead.pop() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    // A missing entry could later become a link to any path.
                    if missing || at.pop().is_none() {
                        return Place::Outside;
                    }
                    continue;
                }
                _ => at.push(part),
            }
            let here = at.join("/");
            match self.0.get(&here) {
                Some(Node::Symlink { target }) => {
                    followed += 1;
                    if followed > LINKS {
                        return Place::Loop;
                    }
                    if target.starts_with('/') {
                        return Place::Outside;
                    }
                    links.insert(here);
                    at.pop();
                    ahead.extend(target.split('/').rev().map(str::to_owned));
                }
                Some(Node::Directory) => {}
                Some(Node::File { .. }) if ahead.iter().all(String::is_empty) => {}
                Some(Node::File { .. }) | None => missing = true,
            }
        }
        if missing { Place::Nowhere } else { Place::At(at.join("/")) }
    }

    /// Returns the part of the tree that is needed to read `paths`: the targets of these paths, the links on the way,
    /// and the targets of links below them.
    #[must_use]
    pub fn closure(&self, paths: impl IntoIterator<Item = String>) -> Self {
        let mut open: Vec<String> = paths.into_iter().collect();
        let mut seen = BTreeSet::new();
        let mut part = Self::default();
        while let Some(path) = open.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let mut links = BTreeSet::new();
            let place = self.walk(&path, &mut links);
            for link in links {
                part.copy(&link, self);
            }
            let Place::At(at) = place else { continue };
            part.copy(&at, self);
            let under = if at.is_empty() { String::new() } else { format!("{at}/") };
            for (inside, node) in self.0.range(under.clone()..).take_while(|(inside, _)| inside.starts_with(&under)) {
                part.copy(inside, self);
                if matches!(node, Node::Symlink { .. }) {
                    open.push(inside.clone());
                }
            }
        }
        part
    }

    /// Adds an existing `path` and its parent directories.
    fn copy(&mut self, path: &str, from: &Self) {
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if let Some(node) = from.0.get(&path[..at]) {
                self.0.insert(path[..at].to_owned(), node.clone());
            }
        }
    }
}

fn check_path(path: &str) -> Result<(), Finding> {
    let refused = |why: &str| Err(Finding::source(format!("the repository holds the path `{path}`, {why}")));
    if path.len() > PATH_BYTES {
        return refused("which is longer than 1024 bytes");
    }
    if path.contains('\u{fffd}') || path.chars().any(char::is_control) {
        return refused("whose name is not plain UTF-8 text");
    }
    for name in path.split('/') {
        if name.len() > NAME_BYTES {
            return refused("with a name that is longer than 255 bytes");
        }
        if matches!(name, "" | "." | "..") || name.eq_ignore_ascii_case(".git") {
            return refused("whose name is reserved by Git");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(files: &[&str]) -> Result<Tree, Finding> {
        let mut tree = Tree::default();
        for file in files {
            match file.split_once(" -> ") {
                Some((path, target)) => tree.add(path, Node::Symlink { target: target.to_owned() })?,
                None => tree.add(file, Node::File { executable: false })?,
            }
        }
        tree.check_links()?;
        Ok(tree)
    }

    #[track_caller]
    fn refused(files: &[&str], words: &str) {
        let finding = tree(files).expect_err("refused");
        assert!(finding.text().contains(words), "{}", finding.text());
    }

    #[test]
    fn refuses_names_that_leave_the_directory() {
        for path in ["../x", "a/../x", "/x", "a//b", "./x", ".git/config", "a/.GIT/hooks/x", "x\u{fffd}", "a\nb", "a\0"]
        {
            refused(&[path], "the repository holds the path");
        }
        refused(&[&"x".repeat(256)], "longer than 255");
        refused(&[&"x/".repeat(600)], "longer than 1024");
        assert!(tree(&[".gitignore", ".github/workflows/x", "..x", "größe"]).is_ok());
    }

    #[test]
    fn refuses_names_that_stand_there_twice() {
        refused(&["a", "a"], "twice");
        refused(&["a -> b", "a/x"], "twice");
        refused(&["a/x", "a -> b"], "twice");
    }

    #[test]
    fn follows_links_as_a_kernel_does() {
        refused(&["l -> ../x"], "points outside");
        refused(&["l -> /etc/passwd"], "points outside");
        refused(&["a -> b", "b -> a"], "points to itself");
        // Compared as a string, this path stays inside the tree. A kernel that follows it leaves the tree.
        refused(&["a/b/c -> ../..", "l -> a/b/c/../x", "a/b/x"], "points outside");
        refused(&["l -> missing/../../x"], "points outside");
        let tree = tree(&["lib/x", "a/up -> ../lib", "b -> a/up/x", "gone -> a/nothing", "self -> ."]).unwrap();
        assert_eq!(tree.resolve("b"), Place::At("lib/x".into()));
        assert_eq!(tree.resolve("self/self/a/up/../lib"), Place::At("lib".into()));
        assert_eq!(tree.resolve("gone"), Place::Nowhere);
        assert_eq!(tree.resolve("lib/x/y"), Place::Nowhere);
        assert_eq!(tree.resolve("self"), Place::At(String::new()));
    }

    #[test]
    fn closure_holds_what_is_needed_and_no_more() {
        let tree =
            tree(&["handler.js", "pkgs -> libs", "libs/p/a", "libs/p/l -> ../../shared/f", "shared/f", "shared/g"]);
        let part = tree.unwrap().closure(["pkgs/p".to_owned()]);
        let paths: Vec<_> = part.iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["libs", "libs/p", "libs/p/a", "libs/p/l", "pkgs", "shared", "shared/f"]);
    }

    proptest! {
        #[test]
        fn resolves_anything_to_an_end(links in proptest::collection::vec("[ab./]{1,6}", 0..8), path in "[abl0-7./]{0,12}") {
            let mut tree = Tree::default();
            for (number, target) in links.into_iter().enumerate() {
                let _ = tree.add(&format!("{number}"), Node::Symlink { target });
            }
            let _ = tree.add("a/b", Node::File { executable: false });
            if let Place::At(at) = tree.resolve(&path) {
                let is_link = matches!(tree.get(&at), Some(Node::Symlink { .. }));
                prop_assert!(!is_link && (at.is_empty() || tree.get(&at).is_some()));
            }
            let _ = tree.closure([path]);
        }
    }
}
