//! Walks through the directories of a commit.
//!
//! Invariant: one directory is in memory at a time, and a walk ends at the limit of entries.
//! Invariant: a skipped directory counts for the limits like a visited one.

use std::collections::HashSet;

use super::Limits;
use super::entry::{Entry, EntryKind};
use super::error::Fault;
use super::id::{BlobId, Id};
use super::objects::{ItemKind, Objects, TreeItem, damaged};
use super::path_flaw::{self, PathFlaw};
use super::skipped_trees::{Extent, SkippedTrees};

/// The measured quantity if the total length of paths is too large.
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
    /// Length of its name, in bytes.
    name: usize,
}

/// A visited directory.
struct Walked {
    tree: Id,
    parent: Option<usize>,
    /// Length of its name, in bytes.
    name: usize,
    /// Its extent, once all its content is known; `None` if it contains a listed entry.
    unlisted: Option<Extent>,
}

/// Lists all entries under the tree `root`, ordered by path; `prefix` is the tree's own path. With `skipped`, files
/// that are not read are omitted and not accessed. `seen` counts all entries, including earlier ones.
pub(super) fn walk(
    objects: &Objects,
    root: Id,
    prefix: &str,
    limits: &Limits,
    seen: &mut usize,
    skipped: Option<&SkippedTrees>,
) -> Result<Vec<Entry>, Fault> {
    let (mut entries, mut path_bytes) = (Vec::new(), 0);
    let mut walked: Vec<Walked> = Vec::new();
    let first = Waiting { path: prefix.to_owned(), tree: root, depth: 0, flaw_above: None, parent: None, name: 0 };
    let mut waiting = vec![first];
    while let Some(Waiting { path: prefix, tree, depth, flaw_above, parent, name }) = waiting.pop() {
        if depth > DEPTH {
            return Err(Fault::TooLarge { what: "the depth of directories", limit: DEPTH as u64 });
        }
        // A directory above a limit is visited, so that the error names the limit.
        if let Some(extent) = skipped.and_then(|skipped| skipped.get(tree))
            && extent.entries as usize <= limits.entries.saturating_sub(*seen)
            && prefix.len() + 1 + extent.path_bytes as usize <= PATH_BYTES
            && extent.depth as usize <= DEPTH - depth
        {
            *seen += extent.entries as usize;
            if let Some(above) = parent.and_then(|parent| walked[parent].unlisted.as_mut()) {
                above.add_directory(name, extent);
            }
            continue;
        }
        let bytes = objects.tree(tree)?;
        let mut names = HashSet::new();
        let mut unlisted = skipped.is_some().then(Extent::default);
        let number = walked.len();
        for item in TreeItem::all(&bytes) {
            let item = item?;
            *seen += 1;
            if *seen > limits.entries {
                let limit = limits.entries as u64;
                return Err(Fault::TooLarge { what: "the number of files and directories", limit });
            }
            let twice = (!names.insert(item.name)).then_some(PathFlaw::Twice);
            let flaw = flaw_above.or_else(|| PathFlaw::of(item.name)).or(twice);
            let name = path_flaw::shown(item.name);
            if prefix.len() + name.len() + 1 > PATH_BYTES {
                return Err(Fault::TooLarge { what: "a path in bytes", limit: PATH_BYTES as u64 });
            }
            if item.kind == ItemKind::File && skipped.is_some_and(|skipped| !skipped.reads(&name)) {
                if let Some(unlisted) = &mut unlisted {
                    unlisted.add_file(name.len());
                }
                continue;
            }
            let length = name.len();
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            path_bytes += path.len();
            if path_bytes > limits.path_bytes {
                let limit = limits.path_bytes as u64;
                return Err(Fault::TooLarge { what: PATHS, limit });
            }
            let Some(kind) = item.kind.entry() else {
                let (tree, depth, parent) = (item.id, depth + 1, Some(number));
                waiting.push(Waiting { path, tree, depth, flaw_above: flaw, parent, name: length });
                continue;
            };
            let size = match kind {
                EntryKind::Submodule => 0,
                _ => objects.header(item.id)?.ok_or_else(|| damaged("a file is missing"))?.0,
            };
            unlisted = None;
            entries.push(Entry { path, id: BlobId(item.id), size, kind, executable: item.executable, flaw });
        }
        walked.push(Walked { tree, parent, name, unlisted });
    }
    if let Some(skipped) = skipped {
        remember(walked, skipped);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Caches the directories without listed entries. Children follow their parents in `walked`.
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
