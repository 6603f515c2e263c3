//! The directory of all mirrors: what of it this process has open, and what it occupies. Everything here blocks.
//!
//! Invariant: what is on the disk when the process starts counts, whoever made it.
//! Deliberately not here: what goes when there is no room (`room`).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use super::budget::Budget;

/// Extension of a mirror's directory.
pub(super) const MIRROR: &str = "git";
/// Name of the list of what a generation holds.
pub(super) const HELD: &str = "held";
/// Extension of a mirror that is being removed.
pub(super) const UNREAD: &str = "unread";
/// Length of a mirror's name.
const NAME_LETTERS: usize = 32;
/// `st_blocks` counts these.
const BLOCK: u64 = 512;

/// The directory of all mirrors. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    /// Generations that this process has open: no other user may use or remove them.
    open: HashSet<PathBuf>,
    budget: Budget,
    /// Whether what was there at the start is in the budget.
    loaded: bool,
}

impl Storage {
    /// Mirrors that may have this many bytes together.
    pub(super) fn new(budget: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { open: HashSet::new(), budget: Budget::new(budget), loaded: false })))
    }

    /// Adds the mirrors that are in `directory` already, once.
    pub(super) fn load(&self, directory: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.loaded {
            return Ok(());
        }
        for mirror in mirrors(directory)? {
            for entry in fs::read_dir(&mirror)?.flatten() {
                let generation = entry.path();
                inner.budget.set_size(&generation, size(&generation));
                let held = fs::metadata(generation.join(HELD)).and_then(|held| held.modified());
                // What is half removed, or never became a mirror, goes first.
                if let Ok(used) = held
                    && mirror.extension().is_some_and(|end| end == MIRROR)
                {
                    inner.budget.set_used(&mirror, used);
                }
            }
        }
        inner.loaded = true;
        Ok(())
    }

    pub(super) fn open(&self, generation: &Path) {
        self.inner().open.insert(generation.to_owned());
    }

    pub(super) fn close(&self, generation: &Path) {
        self.inner().open.remove(generation);
    }

    pub(super) fn is_open(&self, generation: &Path) -> bool {
        self.inner().open.contains(generation)
    }

    /// Whether a generation of the mirror is open, other than `own`.
    pub(super) fn has_open(&self, mirror: &Path, own: Option<&Path>) -> bool {
        self.inner().open.iter().any(|path| path.starts_with(mirror) && Some(path.as_path()) != own)
    }

    /// Removes a generation. If that fails, the next process tries again.
    pub(super) fn remove(&self, generation: &Path) {
        // First, so that what is left of it is not taken for a mirror.
        let _ = fs::remove_file(generation.join(HELD));
        let _ = fs::remove_dir_all(generation);
        let mut inner = self.inner();
        match size(generation) {
            0 => inner.budget.remove(generation),
            left => inner.budget.set_size(generation, left),
        }
    }

    /// Renames a mirror, so that it is none any more; it is removed by [`Storage::remove_unread`].
    pub(super) fn set_unread(&self, mirror: &Path) -> io::Result<PathBuf> {
        let unread = mirror.with_extension(UNREAD);
        fs::rename(mirror, &unread)?;
        self.inner().budget.remove_mirror(mirror);
        self.measure(&unread);
        Ok(unread)
    }

    /// Removes a renamed mirror.
    pub(super) fn remove_unread(&self, unread: &Path) -> io::Result<()> {
        let removed = fs::remove_dir_all(unread);
        self.inner().budget.remove_mirror(unread);
        if removed.is_err() {
            self.measure(unread);
        }
        removed
    }

    /// Measures all generations of a mirror.
    fn measure(&self, mirror: &Path) {
        for generation in fs::read_dir(mirror).into_iter().flatten().flatten() {
            self.measure_generation(&generation.path());
        }
    }

    /// Measures a generation.
    pub(super) fn measure_generation(&self, generation: &Path) {
        let bytes = size(generation);
        self.inner().budget.set_size(generation, bytes);
    }

    /// A mirror is used.
    pub(super) fn set_used(&self, mirror: &Path, at: SystemTime) {
        self.inner().budget.set_used(mirror, at);
    }

    /// Reserves bytes if they fit into the budget.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        self.inner().budget.reserve(bytes)
    }

    pub(super) fn release(&self, bytes: u64) {
        self.inner().budget.release(bytes);
    }

    pub(super) fn oldest_first(&self) -> Vec<PathBuf> {
        self.inner().budget.oldest_first()
    }

    pub(super) fn budget(&self) -> u64 {
        self.inner().budget.limit()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }
}

/// The mirrors in a directory; first those whose removal was interrupted, so that their names are free.
pub(super) fn mirrors(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let is_named_by_us = path.file_stem().and_then(|stem| stem.to_str()).is_some_and(is_name);
        if is_named_by_us && path.extension().is_some_and(|end| end == MIRROR || end == UNREAD) {
            found.push(path);
        }
    }
    found.sort_by_key(|path| path.extension().is_some_and(|end| end == MIRROR));
    Ok(found)
}

/// Other files are not ours.
fn is_name(stem: &str) -> bool {
    stem.len() == NAME_LETTERS && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Bytes that a file or a directory occupies, with everything in it. What disappears meanwhile does not count.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let own = (metadata.blocks() * BLOCK).max(metadata.len());
    let below = fs::read_dir(path).into_iter().filter(|_| metadata.is_dir()).flatten().flatten();
    below.fold(own, |total, entry| total.saturating_add(size(&entry.path())))
}
