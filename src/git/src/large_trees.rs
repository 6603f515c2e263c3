//! The large directories of a mirror that were read last.
//!
//! In a repository with a directory for each of thousands of GitSyncs, each GitSync finds its own in the same parent
//! directory, several times. Without this cache, the cost of a commit grows with the square of their number: reading an
//! object unpacks it and verifies its id.
//!
//! Invariant: a directory is returned for the mirror that it was read from, and for no other one. Who may read one mirror
//! may not read the directories of another one, even with their ids.
//! Invariant: the directories of a mirror take at most [`OWN_BYTES`], and those of all mirrors at most [`ALL_BYTES`]
//! together. A directory that does not fit is read from the mirror each time.
//!
//! Not here: reading (`objects`) and parsing (`tree`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::id::Id;
use super::tree::{SORTED, Tree};

/// Maximum number of directories of a mirror.
const MOST: usize = 4;
/// Maximum size of the directories of one mirror in bytes. A directory with 10 000 entries takes less.
const OWN_BYTES: usize = *SORTED.end();
/// Maximum size of the directories of all mirrors in bytes.
const ALL_BYTES: usize = 4 << 20;

/// Bytes of the directories of all mirrors.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The large directories of one mirror.
#[derive(Debug)]
pub(super) struct LargeTrees {
    /// The latest one is the last.
    all: Mutex<Vec<Cached>>,
    /// Bytes of the directories of all mirrors.
    taken: &'static AtomicUsize,
}

#[derive(Debug)]
struct Cached {
    id: Id,
    tree: Arc<Tree>,
    taken: Taken,
}

/// A part of [`ALL_BYTES`].
#[derive(Debug)]
struct Taken {
    bytes: usize,
    of: &'static AtomicUsize,
}

impl Taken {
    /// Takes these bytes; `None` if there are not so many left.
    fn of(of: &'static AtomicUsize, bytes: usize) -> Option<Self> {
        // Dropped at once if the bytes do not fit.
        let before = of.fetch_add(bytes, Ordering::Relaxed);
        let taken = Self { bytes, of };
        (before.saturating_add(bytes) <= ALL_BYTES).then_some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Default for LargeTrees {
    fn default() -> Self {
        Self { all: Mutex::default(), taken: &TAKEN }
    }
}

impl LargeTrees {
    pub(super) fn get(&self, id: Id) -> Option<Arc<Tree>> {
        self.all.lock().iter().find(|cached| cached.id == id).map(|cached| Arc::clone(&cached.tree))
    }

    /// Keeps a directory if it is large. The oldest ones of the mirror make room for it.
    pub(super) fn keep(&self, id: Id, tree: &Arc<Tree>) {
        let bytes = tree.memory();
        // Reading a small directory costs little.
        if !(*SORTED.start()..=OWN_BYTES).contains(&bytes) {
            return;
        }
        let mut all = self.all.lock();
        if all.iter().any(|cached| cached.id == id) {
            return;
        }
        let own = |all: &[Cached]| all.iter().map(|cached| cached.taken.bytes).sum::<usize>();
        // The older ones stay if their room would not suffice.
        if self.taken.load(Ordering::Relaxed).saturating_sub(own(&all)) + bytes > ALL_BYTES {
            return;
        }
        while all.len() >= MOST || (own(&all) + bytes > OWN_BYTES && !all.is_empty()) {
            all.remove(0);
        }
        let Some(taken) = Taken::of(self.taken, bytes) else { return };
        all.push(Cached { id, tree: Arc::clone(tree), taken });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a directory with this many entries and its id, both different for each `seed`.
    fn tree(seed: u8, entries: usize) -> (Id, Arc<Tree>) {
        let mut bytes = Vec::new();
        for number in 0..entries {
            bytes.extend(format!("40000 team-{number:05}\0").bytes());
            bytes.extend([seed; 20]);
        }
        (Id::from_bytes(&[seed; 20]).unwrap(), Arc::new(Tree::parse(bytes).unwrap()))
    }

    #[test]
    fn the_latest_large_directories_are_kept_as_far_as_all_mirrors_have_room() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let empty = || LargeTrees { taken: &TAKEN, ..LargeTrees::default() };
        let mirror = empty();
        let (id, small) = tree(0, 50);
        mirror.keep(id, &small);
        assert!(mirror.get(id).is_none(), "a small directory is not kept");

        let all: Vec<_> = (1..=6).map(|seed| tree(seed, 1000)).collect();
        for (id, tree) in &all {
            mirror.keep(*id, tree);
            mirror.keep(*id, tree);
        }
        let kept = |mirror: &LargeTrees| all.iter().map(|(id, _)| mirror.get(*id).is_some()).collect::<Vec<_>>();
        assert_eq!(kept(&mirror), [false, false, true, true, true, true]);
        assert_eq!(TAKEN.load(Ordering::Relaxed), MOST * all[0].1.memory());
        assert!(empty().get(all[5].0).is_none(), "another mirror does not have it");

        let (id, huge) = tree(7, 12_000);
        mirror.keep(id, &huge);
        assert!(
            mirror.get(id).is_some() && kept(&mirror) == [false, false, false, false, false, false],
            "they made room"
        );
        let (id, too_large) = tree(8, 14_000);
        mirror.keep(id, &too_large);
        assert!(mirror.get(id).is_none() && TAKEN.load(Ordering::Relaxed) == huge.memory());

        let others: Vec<_> = (0..8).map(|_| empty()).collect();
        for other in &others {
            other.keep(all[0].0, &all[0].1);
        }
        for other in &others {
            other.keep(id, &huge);
        }
        let full = others.iter().filter(|other| other.get(id).is_some()).count();
        assert_eq!(full, ALL_BYTES / huge.memory() - 1, "all mirrors have no more room");
        assert!(others[7].get(id).is_none() && others[7].get(all[0].0).is_some(), "it keeps what it has");
        drop((mirror, others));
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }
}
