//! The budget of all mirrors: what each of them occupies, what is reserved for packs that are being received, and which
//! mirror was used longest ago.
//!
//! Deliberately not here: whether a mirror is in use (`room` asks its remote), and the disk (`storage`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The bytes of all mirrors.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    /// By the directory of the generation, which is in the directory of its mirror.
    generations: HashMap<PathBuf, u64>,
    /// When each mirror was used last.
    used: HashMap<PathBuf, SystemTime>,
    reserved: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, generations: HashMap::new(), used: HashMap::new(), reserved: 0 }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// A generation has this size.
    pub(super) fn set_size(&mut self, generation: &Path, bytes: u64) {
        self.generations.insert(generation.to_owned(), bytes);
    }

    /// A generation is gone.
    pub(super) fn remove(&mut self, generation: &Path) {
        self.generations.remove(generation);
        if let Some(mirror) = generation.parent()
            && !self.generations.keys().any(|other| other.starts_with(mirror))
        {
            self.used.remove(mirror);
        }
    }

    /// A mirror is gone.
    pub(super) fn remove_mirror(&mut self, mirror: &Path) {
        self.generations.retain(|generation, _| !generation.starts_with(mirror));
        self.used.remove(mirror);
    }

    /// A mirror was used at this time, or later.
    pub(super) fn set_used(&mut self, mirror: &Path, at: SystemTime) {
        let used = self.used.entry(mirror.to_owned()).or_insert(at);
        *used = at.max(*used);
    }

    /// Reserves bytes if they fit.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let fits = self.total().saturating_add(bytes) <= self.limit;
        if fits {
            self.reserved += bytes;
        }
        fits
    }

    /// Ends a reservation.
    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }

    /// Everything that is on the disk or will soon be.
    pub(super) fn total(&self) -> u64 {
        self.generations.values().fold(self.reserved, |total, bytes| total.saturating_add(*bytes))
    }

    /// All mirrors that have generations; the one that was used longest ago first.
    pub(super) fn oldest_first(&self) -> Vec<PathBuf> {
        let mut mirrors: Vec<_> = self.generations.keys().filter_map(|path| path.parent()).collect();
        mirrors.sort_by_key(|mirror| (self.used.get(*mirror), *mirror));
        mirrors.dedup();
        mirrors.into_iter().map(Path::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn reserves_what_fits_beside_mirrors_and_other_reservations() {
        let mut budget = Budget::new(100);
        budget.set_size(Path::new("a.git/1"), 40);
        assert!(budget.reserve(30) && budget.reserve(30) && !budget.reserve(1));
        budget.set_size(Path::new("a.git/1"), 20);
        assert!(budget.reserve(20) && !budget.reserve(1));
        budget.release(50);
        budget.remove(Path::new("a.git/1"));
        assert!(!budget.reserve(u64::MAX), "a sum that overflows does not fit");
        assert!(budget.reserve(70) && !budget.reserve(1));
    }

    #[test]
    fn names_the_mirror_that_was_used_longest_ago_first() {
        let mut budget = Budget::new(100);
        for (mirror, used) in [("a.git", Some(3)), ("b.git", Some(1)), ("c.git", Some(2)), ("d.unread", None)] {
            for generation in ["1", "2"] {
                budget.set_size(&Path::new(mirror).join(generation), 1);
            }
            if let Some(second) = used {
                budget.set_used(Path::new(mirror), at(second));
            }
        }
        budget.set_used(Path::new("b.git"), at(9));
        budget.set_used(Path::new("a.git"), at(1));
        let names = |budget: &Budget| -> Vec<_> {
            budget.oldest_first().into_iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names(&budget), ["d.unread", "c.git", "a.git", "b.git"]);
        budget.remove_mirror(Path::new("d.unread"));
        budget.remove(Path::new("c.git/1"));
        assert_eq!(names(&budget), ["c.git", "a.git", "b.git"], "it has another generation");
        budget.remove(Path::new("c.git/2"));
        assert_eq!(names(&budget), ["a.git", "b.git"]);
        assert_eq!(budget.total(), 4);
        assert_eq!(budget.used.len(), 2, "nothing is kept of mirrors that are gone");
    }
}
