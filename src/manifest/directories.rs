//! Directories that are one thing as a whole: a kustomization, a Helm chart.

use super::ignore::parent;

/// Such directories, each by the file in it that makes it one.
#[derive(Default)]
pub(super) struct Directories(Vec<String>);

impl Directories {
    /// The outermost directories of these files.
    pub(super) fn of<'p>(files: impl Iterator<Item = &'p str>) -> Self {
        let mut all: Vec<&str> = files.collect();
        all.sort_unstable_by_key(|path| parent(path));
        let mut outermost = Self::default();
        for path in all {
            if !outermost.contains(path) {
                outermost.0.push(path.to_owned());
            }
        }
        outermost
    }

    /// Whether a path is in or below one of them.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|file| match parent(file) {
            "" => true,
            directory => path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
        })
    }

    /// The files that make them what they are.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
