//! Permits for the watches of lists beside the fleets.
//!
//! Invariant: the number of watches is limited for the server, and for each group of users. So no group takes the watches
//! of all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of watches of the server, and of the sessions of a group of users.
pub(super) const ALL: usize = 140;
const OF_GROUP: usize = 40;

/// The watches of each group of users. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Watches(Arc<Mutex<HashMap<String, usize>>>);

/// Some watches of a group, until it is dropped.
pub(super) struct WatchPermit {
    all: Watches,
    group: String,
    count: usize,
}

impl Watches {
    /// Takes so many watches for a group, if the server and the group have them.
    pub(super) fn try_acquire(&self, group: &str, count: usize) -> Option<WatchPermit> {
        let mut taken = self.0.lock();
        let all: usize = taken.values().sum();
        let own = taken.get(group).copied().unwrap_or(0);
        if all + count > ALL || own + count > OF_GROUP {
            return None;
        }
        taken.insert(group.to_owned(), own + count);
        Some(WatchPermit { all: self.clone(), group: group.to_owned(), count })
    }
}

impl Drop for WatchPermit {
    fn drop(&mut self) {
        let mut taken = self.all.0.lock();
        let left = taken.get(&self.group).map_or(0, |own| own.saturating_sub(self.count));
        if left == 0 {
            taken.remove(&self.group);
        } else {
            taken.insert(self.group.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_takes_its_part_of_the_watches_and_returns_them() {
        let watches = Watches::default();
        let take = |group: &str| -> Vec<WatchPermit> { std::iter::from_fn(|| watches.try_acquire(group, 7)).collect() };
        let first = take("a");
        assert_eq!(first.len(), OF_GROUP / 7);
        let others: Vec<_> = ["b", "c", "d"].into_iter().map(take).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), 15, "the server has no more");
        assert!(watches.try_acquire("e", 7).is_none());
        drop(first);
        assert!(watches.try_acquire("e", 7).is_some());
        drop(others);
        assert!(watches.0.lock().is_empty());
    }
}
