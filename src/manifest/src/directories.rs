//! Directories that are rendered as a whole: kustomizations and Helm charts.

use std::collections::HashSet;

use super::ignore::parent;

/// Directories that contain a kustomization or a chart, each with the file that defines it.
#[derive(Default)]
pub(super) struct Directories {
    files: Vec<String>,
    directories: HashSet<String>,
}

impl Directories {
    /// Returns the outermost directories of these defining files.
    pub(super) fn of<'p>(files: impl Iterator<Item = &'p str>) -> Self {
        let mut all: Vec<&str> = files.collect();
        all.sort_unstable_by_key(|path| parent(path));
        let mut outermost = Self::default();
        for path in all {
            if !outermost.contains(path) {
                outermost.files.push(path.to_owned());
                outermost.directories.insert(parent(path).to_owned());
            }
        }
        outermost
    }

    /// Returns whether a path is in or below one of the directories.
    pub(super) fn contains(&self, path: &str) -> bool {
        let mut directory = parent(path);
        loop {
            if self.directories.contains(directory) {
                return true;
            }
            if directory.is_empty() {
                return false;
            }
            directory = parent(directory);
        }
    }

    /// Returns the defining files of the directories.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }
}
