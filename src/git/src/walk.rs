//! Walks through the directories of a commit.
//!
//! Invariant: one directory is in memory at a time, and a walk stops at the limit of entries.
//! Invariant: a skipped directory counts for the limits in the same way as a visited one.

use std::collections::HashSet;

use super::Limits;
use super::entry::{Entry, EntryKind};
use super::error::Fault;
use super::id::{BlobId, Id};
use super::objects::{Objects, damaged};
use super::path_flaw::{self, PathFlaw};
use super::skipped_trees::{Extent, SkippedTrees};
use super::tree::{ItemKind, TreeItem};

/// The description of the limit in the error that the total length of paths is too large.
pub(super) const PATHS: &str = "all paths of files and directories together, in bytes,";
const PATH_BYTES: usize = 4096;
const DEPTH: usize = 100;

/// A directory to visit.
struct Waiting {
    path: String,
    tree: Id,
    depth: usize,
    flaw_above: Option<PathFlaw>,
    /// Index of its parent directory; `None` for the first one.
    parent: Option<usize>,
    /// Length of the directory's name, in bytes.
    name: usize,
}

/// A visited directory.
struct Walked {
    tree: Id,
    parent: Option<usize>,
    /// Length of the directory's name, in bytes.
    name: usize,
    /// Extent of the directory, once all its content is known; `None` if it contains a listed entry.
    unlisted: Option<Extent>,
}

/// Lists all entries under the tree `root`, ordered by path. `prefix` is the path of the tree itself. With `skipped`,
/// files that are not read are omitted and not accessed. `seen` counts all entries, including those of earlier walks.
pub(super) fn walk(
    objects: &Objects,
    root: Id,
    prefix: &str,
    limits: &Limits,
    seen: &mut usize,
    skipped: Option<&SkippedTrees>,
) -> Result<Vec<Entry>, Fault> {
    let (entries, walked) = (Vec::new(), Vec::new());
    let first = Waiting { path: prefix.to_owned(), tree: root, depth: 0, flaw_above: None, parent: None, name: 0 };
    let mut walk = Walk { objects, limits, skipped, seen, entries, path_bytes: 0, walked, waiting: vec![first] };
    while let Some(directory) = walk.waiting.pop() {
        if directory.depth > DEPTH {
            return Err(Fault::TooLarge { what: "the depth of directories", limit: DEPTH as u64 });
        }
        if !walk.skips(&directory) {
            walk.visit(directory)?;
        }
    }
    let Walk { mut entries, walked, .. } = walk;
    if let Some(skipped) = skipped {
        remember(walked, skipped);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// A walk in progress.
struct Walk<'w> {
    objects: &'w Objects,
    limits: &'w Limits,
    skipped: Option<&'w SkippedTrees>,
    /// Number of entries so far.
    seen: &'w mut usize,
    entries: Vec<Entry>,
    /// Length of all paths so far, in bytes.
    path_bytes: usize,
    walked: Vec<Walked>,
    waiting: Vec<Waiting>,
}

impl Walk<'_> {
    /// If a directory contains no entry to list, counts it and returns true. A directory that exceeds a limit is
    /// visited nevertheless, so that the error contains the limit.
    fn skips(&mut self, directory: &Waiting) -> bool {
        let Some(extent) = self.skipped.and_then(|skipped| skipped.get(directory.tree)) else { return false };
        let fits = extent.entries as usize <= self.limits.entries.saturating_sub(*self.seen)
            && directory.path.len() + 1 + extent.path_bytes as usize <= PATH_BYTES
            && extent.depth as usize <= DEPTH - directory.depth;
        if fits {
            *self.seen += extent.entries as usize;
            if let Some(above) = directory.parent.and_then(|parent| self.walked[parent].unlisted.as_mut()) {
                above.add_directory(directory.name, extent);
            }
        }
        fits
    }

    fn visit(&mut self, directory: Waiting) -> Result<(), Fault> {
        let Waiting { path: prefix, tree, depth, flaw_above, parent, name } = directory;
        let bytes = self.objects.tree(tree)?;
        let mut names = HashSet::new();
        let mut unlisted = self.skipped.is_some().then(Extent::default);
        let number = self.walked.len();
        for item in TreeItem::all(&bytes) {
            let item = item?;
            self.count_entry()?;
            let twice = (!names.insert(item.name)).then_some(PathFlaw::Twice);
            let flaw = flaw_above.or_else(|| PathFlaw::of(item.name)).or(twice);
            let name = path_flaw::shown(item.name);
            if prefix.len() + name.len() + 1 > PATH_BYTES {
                return Err(Fault::TooLarge { what: "a path in bytes", limit: PATH_BYTES as u64 });
            }
            if item.kind == ItemKind::File && self.skipped.is_some_and(|skipped| !skipped.reads(&name)) {
                if let Some(unlisted) = &mut unlisted {
                    unlisted.add_file(name.len());
                }
                continue;
            }
            let length = name.len();
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            self.count_path(&path)?;
            let Some(kind) = item.kind.entry() else {
                let (tree, depth, parent) = (item.id, depth + 1, Some(number));
                self.waiting.push(Waiting { path, tree, depth, flaw_above: flaw, parent, name: length });
                continue;
            };
            let size = match kind {
                EntryKind::Submodule => 0,
                _ => self.objects.header(item.id)?.ok_or_else(|| damaged("a file is missing"))?.0,
            };
            unlisted = None;
            self.entries.push(Entry { path, id: BlobId(item.id), size, kind, executable: item.executable, flaw });
        }
        self.walked.push(Walked { tree, parent, name, unlisted });
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), Fault> {
        *self.seen += 1;
        if *self.seen > self.limits.entries {
            let limit = self.limits.entries as u64;
            return Err(Fault::TooLarge { what: "the number of files and directories", limit });
        }
        Ok(())
    }

    fn count_path(&mut self, path: &str) -> Result<(), Fault> {
        self.path_bytes += path.len();
        if self.path_bytes > self.limits.path_bytes {
            return Err(Fault::TooLarge { what: PATHS, limit: self.limits.path_bytes as u64 });
        }
        Ok(())
    }
}

/// Caches the directories without listed entries. In `walked`, children come after their parents.
fn remember(mut walked: Vec<Walked>, skipped: &SkippedTrees) {
    while let Some(Walked { tree, parent, name, unlisted }) = walked.pop() {
        if let Some(extent) = unlisted {
            skipped.insert(tree, extent);
        }
        let Some(parent) = parent.and_then(|parent| walked.get_mut(parent)) else { continue };
        match (unlisted, &mut parent.unlisted) {
            (Some(extent), Some(above)) => above.add_directory(name, extent),
            (_, above) => *above = None,
        }
    }
}
