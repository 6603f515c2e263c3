//! Caches, by tree id, directories in which no file is read. The cost of a listing then depends on the changes and on
//! the files that are read, not on the size of the repository.
//!
//! Invariant: a cached directory contains only directories and files that are not read, so omitting it changes no
//! listing. Its extent still counts for the limits.
//! Invariant: at most twice [`MOST`] directories are cached, the most recently used ones.

use std::collections::HashMap;
use std::fmt;
use std::mem;

use parking_lot::Mutex;

use super::id::Id;

/// Number of directories after which unused ones are dropped: about 1 MiB.
const MOST: usize = 16 * 1024;

/// The cache of directories without files that are read. File names decide whether a file is read. Shared by all
/// readers of the same files.
pub struct SkippedTrees {
    is_read: fn(&str) -> bool,
    known: Mutex<Known>,
}

/// Recently used directories (`young`), and older ones.
#[derive(Default)]
struct Known {
    young: HashMap<Id, Extent>,
    old: HashMap<Id, Extent>,
}

/// How much a directory contributes to the limits of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// Number of files and directories below the directory.
    pub(super) entries: u32,
    /// Length of the longest path below the directory, relative to it, in bytes.
    pub(super) path_bytes: u32,
    /// Depth of nested directories in it.
    pub(super) depth: u32,
}

impl SkippedTrees {
    /// Returns a cache for listings that read the files whose names `is_read` accepts.
    pub fn new(is_read: fn(&str) -> bool) -> Self {
        Self { is_read, known: Mutex::default() }
    }

    /// Returns whether a file with this name is read.
    pub(super) fn reads(&self, name: &str) -> bool {
        (self.is_read)(name)
    }

    /// Returns the extent of a cached directory; `None` if it is not cached.
    pub(super) fn get(&self, tree: Id) -> Option<Extent> {
        let mut known = self.known.lock();
        if let Some(extent) = known.young.get(&tree) {
            return Some(*extent);
        }
        let extent = *known.old.get(&tree)?;
        known.insert(tree, extent);
        Some(extent)
    }

    /// Caches a directory in which no file is read.
    pub(super) fn insert(&self, tree: Id, extent: Extent) {
        self.known.lock().insert(tree, extent);
    }
}

impl Known {
    fn insert(&mut self, tree: Id, extent: Extent) {
        if self.young.len() >= MOST {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(tree, extent);
    }
}

impl Extent {
    /// Adds a file. `name` is the length of its name in bytes.
    pub(super) fn add_file(&mut self, name: usize) {
        self.entries = self.entries.saturating_add(1);
        self.path_bytes = self.path_bytes.max(narrow(name));
    }

    /// Adds a directory. `name` is the length of its name in bytes.
    pub(super) fn add_directory(&mut self, name: usize, below: Self) {
        self.add_file(name);
        self.entries = self.entries.saturating_add(below.entries);
        if below.entries > 0 {
            self.path_bytes = self.path_bytes.max(narrow(name).saturating_add(1).saturating_add(below.path_bytes));
        }
        self.depth = self.depth.max(below.depth.saturating_add(1));
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl fmt::Debug for SkippedTrees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.lock();
        f.debug_struct("SkippedTrees").field("known", &(known.young.len() + known.old.len())).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> Id {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
        Id(bytes)
    }

    #[test]
    fn those_that_are_met_again_stay_and_the_others_go() {
        let trees = SkippedTrees::new(|_| false);
        let extent = |number| Extent { entries: narrow(number), ..Extent::default() };
        for number in 0..3 * MOST {
            trees.insert(id(number), extent(number));
            assert_eq!(trees.get(id(7.min(number))), Some(extent(7.min(number))));
        }
        assert_eq!(trees.get(id(8)), None);
        assert_eq!(trees.get(id(3 * MOST - 1)), Some(extent(3 * MOST - 1)));
        let known = trees.known.lock();
        assert!(known.young.len() + known.old.len() <= 2 * MOST);
    }

    #[test]
    fn an_extent_is_that_of_the_whole_directory() {
        let mut inner = Extent::default();
        inner.add_file(5);
        inner.add_directory(3, Extent::default());
        assert_eq!(inner, Extent { entries: 2, path_bytes: 5, depth: 1 });
        let mut outer = Extent::default();
        outer.add_file(2);
        outer.add_directory(4, inner);
        assert_eq!(outer, Extent { entries: 4, path_bytes: 10, depth: 2 });
    }
}
