//! Permits that are limited for the server, and for each group of users: watches of lists beside the fleets, streams, and
//! calls.
//!
//! Invariant: no group takes the permits of all others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum numbers of permits of the server, and of the sessions of a group of users.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) server: usize,
    pub(super) group: usize,
}

/// The maximum numbers of watches beside those of the fleets.
pub(super) const WATCHES: Most = Most { server: 140, group: 40 };

/// Who has the maximum number of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Session,
    Group,
    Server,
}

/// The permits that each group of users has taken. Clones share them.
#[derive(Clone)]
pub(super) struct GroupPermits {
    most: Most,
    taken: Arc<Mutex<HashMap<String, usize>>>,
}

/// Some permits of a group, until it is dropped.
pub(super) struct GroupPermit {
    all: GroupPermits,
    group: String,
    count: usize,
}

impl GroupPermits {
    pub(super) fn new(most: Most) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes so many permits for a group, if the server and the group have them.
    pub(super) fn try_acquire(&self, group: &str, count: usize) -> Result<GroupPermit, Full> {
        let mut taken = self.taken.lock();
        let all: usize = taken.values().sum();
        let own = taken.get(group).copied().unwrap_or(0);
        if own + count > self.most.group {
            return Err(Full::Group);
        }
        if all + count > self.most.server {
            return Err(Full::Server);
        }
        taken.insert(group.to_owned(), own + count);
        Ok(GroupPermit { all: self.clone(), group: group.to_owned(), count })
    }
}

impl Drop for GroupPermit {
    fn drop(&mut self) {
        let mut taken = self.all.taken.lock();
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
    fn a_group_takes_its_part_of_the_permits_and_returns_them() {
        let permits = GroupPermits::new(WATCHES);
        let take =
            |group: &str| -> Vec<GroupPermit> { std::iter::from_fn(|| permits.try_acquire(group, 7).ok()).collect() };
        let first = take("a");
        assert_eq!(first.len(), WATCHES.group / 7);
        assert_eq!(permits.try_acquire("a", 7).err(), Some(Full::Group));
        let others: Vec<_> = ["b", "c", "d"].into_iter().map(take).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), 15, "the server has no more");
        assert_eq!(permits.try_acquire("e", 7).err(), Some(Full::Server));
        drop(first);
        assert!(permits.try_acquire("e", 7).is_ok());
        drop(others);
        assert!(permits.taken.lock().is_empty());
    }
}
