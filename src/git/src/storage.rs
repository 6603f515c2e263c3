//! The directory of all mirrors: which of them this process has open, and their sizes. Everything here blocks.
//!
//! Invariant: mirrors that exist at the start are counted, whichever process created them.
//! Invariant: a mirror is renamed and its size is recorded under the same lock, so removed mirrors are not counted.
//! Not here: which mirrors to evict (`room`).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::{Mutex, MutexGuard};

use super::budget::{Budget, UNREAD};
use super::fair_queue::Tenant;

/// Extension of a mirror's directory.
pub(super) const MIRROR: &str = "git";
/// Name of the list of complete commits and packs in a generation.
pub(super) const HELD: &str = "held";
/// Length of a mirror's name, in characters.
const NAME_LETTERS: usize = 32;
/// Unit of `st_blocks`, in bytes.
const BLOCK: u64 = 512;

/// The directory of all mirrors. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Storage(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// Held while mirrors are removed, so that no other thread counts or removes them.
    removing: Mutex<()>,
}

#[derive(Debug)]
struct Inner {
    /// Generations that this process has open, with the number of their users. Other processes must not use or remove
    /// them. Also contains mirrors while they are being opened.
    open: HashMap<PathBuf, usize>,
    budget: Budget,
    /// Whether existing mirrors have been added to the budget.
    loaded: bool,
}

impl Storage {
    /// Returns a storage with this budget in bytes.
    pub(super) fn new(budget: u64) -> Self {
        let inner = Inner { open: HashMap::new(), budget: Budget::new(budget), loaded: false };
        Self(Arc::new(Shared { inner: Mutex::new(inner), removing: Mutex::new(()) }))
    }

    /// Adds the existing mirrors in `directory`. Later calls do nothing.
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
                // Mirrors without a recorded use, or whose removal or creation was interrupted, are evicted first.
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

    pub(super) fn open(&self, path: &Path) {
        *self.inner().open.entry(path.to_owned()).or_default() += 1;
    }

    pub(super) fn close(&self, path: &Path) {
        let mut inner = self.inner();
        if let Some(users) = inner.open.get_mut(path) {
            *users -= 1;
            if *users == 0 {
                inner.open.remove(path);
            }
        }
    }

    pub(super) fn is_open(&self, generation: &Path) -> bool {
        self.inner().open.contains_key(generation)
    }

    /// Returns the highest number of an open generation of the mirror; 0 if none is open.
    pub(super) fn highest_open(&self, mirror: &Path) -> u64 {
        let inner = self.inner();
        let number = |path: &PathBuf| path.strip_prefix(mirror).ok()?.to_str()?.parse().ok();
        inner.open.keys().filter_map(number).max().unwrap_or(0)
    }

    /// Returns whether the mirror is being opened, or has an open generation other than `own`.
    pub(super) fn has_open(&self, mirror: &Path, own: Option<&Path>) -> bool {
        self.inner().has_open(mirror, own)
    }

    /// Locks the removal of mirrors.
    pub(super) fn removing(&self) -> MutexGuard<'_, ()> {
        self.0.removing.lock()
    }

    /// Removes the directory of a mirror without generations, unless it is being opened or has an open generation other
    /// than `own`: that may be about to create its own directory there.
    pub(super) fn remove_empty(&self, mirror: &Path, own: Option<&Path>) {
        let inner = self.inner();
        if !inner.has_open(mirror, own) {
            // The removal fails while a generation exists.
            let _ = fs::remove_dir(mirror);
        }
    }

    /// Removes a generation. After a failure, the next process tries again.
    pub(super) fn remove(&self, generation: &Path) {
        // The list of commits is removed first, so that an incomplete generation is not used.
        let _ = fs::remove_file(generation.join(HELD));
        let _ = fs::remove_dir_all(generation);
        self.measure_generation(generation);
    }

    /// Renames a mirror for removal by [`Storage::remove_unread`]. Returns `None` if it is being opened or has an
    /// open generation other than `own`.
    pub(super) fn set_unread(&self, mirror: &Path, own: Option<&Path>) -> io::Result<Option<PathBuf>> {
        let unread = mirror.with_extension(UNREAD);
        let mut inner = self.inner();
        if inner.has_open(mirror, own) {
            return Ok(None);
        }
        fs::rename(mirror, &unread)?;
        inner.budget.rename(mirror, &unread);
        Ok(Some(unread))
    }

    /// Removes a renamed mirror.
    pub(super) fn remove_unread(&self, unread: &Path) -> io::Result<()> {
        let removed = match fs::remove_dir_all(unread) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        self.inner().budget.remove_mirror(unread);
        // After a failure, the remains are measured.
        for generation in fs::read_dir(unread).into_iter().flatten().flatten() {
            self.measure_generation(&generation.path());
        }
        removed
    }

    /// Measures a generation, which may be gone.
    pub(super) fn measure_generation(&self, generation: &Path) {
        let bytes = size(generation);
        let mut inner = self.inner();
        // In the meantime, the generation may have been renamed.
        if bytes > 0 && fs::symlink_metadata(generation).is_ok() {
            inner.budget.set_size(generation, bytes);
        } else {
            inner.budget.remove(generation);
        }
    }

    /// Adds bytes that a generation has received since its last measurement.
    pub(super) fn grow_generation(&self, generation: &Path, bytes: u64) {
        self.inner().budget.grow(generation, bytes);
    }

    /// Records a use of a mirror.
    pub(super) fn set_used(&self, mirror: &Path, at: SystemTime) {
        self.inner().budget.set_used(mirror, at);
    }

    /// Assigns the mirror to this namespace, unless it already belongs to one.
    pub(super) fn set_owner(&self, mirror: &Path, tenant: &Tenant) {
        self.inner().budget.set_owner(mirror, tenant);
    }

    /// Reserves bytes if they fit into the budget. Returns whether they fit.
    pub(super) fn reserve(&self, tenant: &Tenant, bytes: u64) -> bool {
        self.inner().budget.reserve(tenant, bytes)
    }

    /// Records that a reservation of this namespace failed.
    pub(super) fn set_refused(&self, tenant: &Tenant) {
        self.inner().budget.set_refused(tenant);
    }

    pub(super) fn release(&self, tenant: &Tenant, bytes: u64) {
        self.inner().budget.release(tenant, bytes);
    }

    /// Returns a copy of the budget for planning.
    pub(super) fn budget(&self) -> Budget {
        self.inner().budget.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock()
    }
}

impl Inner {
    fn has_open(&self, mirror: &Path, own: Option<&Path>) -> bool {
        self.open.keys().any(|path| path.starts_with(mirror) && Some(path.as_path()) != own)
    }
}

/// Returns the mirrors in a directory. Mirrors whose removal was interrupted come first, which frees their names.
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

/// Whether this is the name of a mirror. Other files are ignored.
fn is_name(stem: &str) -> bool {
    stem.len() == NAME_LETTERS && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the size on disk of a file, or of a directory with its content. Files that disappear in the meantime are not
/// counted.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let own = (metadata.blocks() * BLOCK).max(metadata.len());
    let below = fs::read_dir(path).into_iter().filter(|_| metadata.is_dir()).flatten().flatten();
    below.fold(own, |total, entry| total.saturating_add(size(&entry.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_that_is_resolved_or_read_is_not_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let (mirror, storage) = (directory.path().join("a.git"), Storage::new(u64::MAX));
        let generation = mirror.join("1");
        fs::create_dir_all(&generation).unwrap();
        for open in [&mirror, &generation] {
            storage.open(open);
            storage.open(open);
            storage.close(open);
            assert!(storage.set_unread(&mirror, None).unwrap().is_none(), "it has another user");
            storage.close(open);
        }
        storage.open(&generation);
        let unread = storage.set_unread(&mirror, Some(&generation)).unwrap().unwrap();
        assert!(unread.exists() && !mirror.exists());
    }

    #[test]
    fn a_removed_mirror_does_not_count_and_may_be_removed_twice() {
        let directory = tempfile::tempdir().unwrap();
        let (mirror, storage) = (directory.path().join("a.git"), Storage::new(u64::MAX));
        let generation = mirror.join("1");
        fs::create_dir_all(&generation).unwrap();
        fs::write(generation.join("pack"), [0; 5000]).unwrap();
        storage.measure_generation(&generation);
        let unread = storage.set_unread(&mirror, None).unwrap().unwrap();
        assert!(storage.budget().total() >= 5000, "it is on the disk");
        storage.measure_generation(&generation);
        for _ in 0..2 {
            storage.remove_unread(&unread).unwrap();
            storage.measure_generation(&unread.join("1"));
            assert_eq!(storage.budget().total(), 0);
        }
    }

    #[test]
    fn the_number_of_a_generation_that_is_open_is_known() {
        let (mirror, storage) = (Path::new("a.git"), Storage::new(1));
        assert_eq!(storage.highest_open(mirror), 0);
        for path in ["a.git", "a.git/2", "a.git/10", "b.git/11"] {
            storage.open(Path::new(path));
        }
        assert_eq!(storage.highest_open(mirror), 10);
    }
}
