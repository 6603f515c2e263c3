//! How much memory owners may take for what is kept for them: the objects that they want, inventories, the sources of
//! Functions, and what each of them is itself.
//!
//! Invariant: a namespace keeps what it has; what it may add leaves a part of the budget to the others, unless it stays within
//! its share: the budget, divided by the number of namespaces that have anything.
//! Invariant: while a new commit is read, its objects count instead of those of the one before, so that a commit may change
//! all of them; both together are within twice the budget.
//!
//! Deliberately absent: what takes how much, and what becomes of what does not fit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use mainstay_object::Owner;

/// What is kept for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The objects of the commit that is enforced.
    Objects,
    /// The objects of a commit that is being read.
    Reading,
    /// The inventory, as it was loaded.
    Inventory,
    /// The source of a Function.
    Source,
    /// The GitSync, GitRepository, Function or Receiver itself, and its task.
    Resource,
    /// What is known of another cluster, and the connections to it.
    Cluster,
}

/// The bytes of each part.
type Parts = [usize; 6];

/// One budget for several stores. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<Mutex<MemoryBudget>>);

impl SharedBudget {
    /// As [`MemoryBudget::set_limit`].
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.0.lock().set_limit(bytes);
    }

    /// As [`MemoryBudget::set`].
    pub(crate) fn set(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.0.lock().set(owner, part, bytes)
    }

    /// As [`MemoryBudget::fits`].
    pub(crate) fn fits(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.0.lock().fits(owner, part, bytes)
    }

    /// As [`MemoryBudget::remove_owner`].
    pub(crate) fn remove_owner(&self, owner: &Owner) {
        self.0.lock().remove_owner(owner);
    }
}

/// The bytes that are kept for all owners.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    held: HashMap<Owner, Parts>,
    /// What is held in all, and by each namespace that holds anything.
    total: usize,
    namespaces: HashMap<String, usize>,
}

/// This part of the budget is left to the other namespaces by one that has more than its share, and this one by the only one.
const LEFT_TO_OTHERS: [usize; 2] = [4, 8];

impl Default for MemoryBudget {
    /// Without a limit.
    fn default() -> Self {
        Self { limit: usize::MAX, held: HashMap::new(), total: 0, namespaces: HashMap::new() }
    }
}

impl MemoryBudget {
    /// From now on there are so many bytes.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// So many bytes are to be kept for an owner from now on, instead of those before; whether they may. If not, those before
    /// still count.
    pub(crate) fn set(&mut self, owner: &Owner, part: Part, bytes: usize) -> bool {
        let fits = self.fits(owner, part, bytes);
        if fits {
            self.replace(owner, part, bytes);
        }
        fits
    }

    /// Whether so many bytes may be kept for an owner now, instead of those before.
    pub(crate) fn fits(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        let held = self.held.get(owner).copied().unwrap_or_default();
        if bytes <= held[part as usize] {
            return true;
        }
        let replaced = match part {
            Part::Objects | Part::Reading => held[Part::Objects as usize] + held[Part::Reading as usize],
            part => held[part as usize],
        };
        let own = self.namespaces.get(owner.resource().namespace());
        let namespaces = self.namespaces.len() + usize::from(own.is_none());
        let own = (own.copied().unwrap_or_default() - replaced).saturating_add(bytes);
        let total = (self.total - replaced).saturating_add(bytes);
        let is_within_share = own <= self.limit / namespaces.max(2);
        let left = LEFT_TO_OTHERS[usize::from(namespaces == 1)];
        total <= self.limit && (is_within_share || total <= self.limit - self.limit / left)
    }

    /// Nothing is kept for an owner any more but what it is itself and its cluster, which end by themselves.
    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        for part in [Part::Objects, Part::Reading, Part::Inventory] {
            self.replace(owner, part, 0);
        }
    }

    fn replace(&mut self, owner: &Owner, part: Part, bytes: usize) {
        let mut held = self.held.get(owner).copied().unwrap_or_default();
        let before = std::mem::replace(&mut held[part as usize], bytes);
        let namespace = owner.resource().namespace();
        let own = (self.namespaces.get(namespace).copied().unwrap_or_default() - before).saturating_add(bytes);
        self.total = (self.total - before).saturating_add(bytes);
        if own > 0 {
            self.namespaces.insert(namespace.to_owned(), own);
        } else {
            self.namespaces.remove(namespace);
        }
        if held.iter().any(|bytes| *bytes > 0) {
            self.held.insert(owner.clone(), held);
        } else {
            self.held.remove(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_namespace_leaves_memory_for_the_others() {
        let mut budget = MemoryBudget::default();
        let (greedy, second, web) =
            (Owner::git_sync("greedy", "a"), Owner::git_sync("greedy", "b"), Owner::git_sync("web", "a"));
        assert!(
            budget.set(&greedy, Part::Objects, 1 << 40) && budget.set(&greedy, Part::Objects, 0),
            "without a limit"
        );
        budget.set_limit(800);
        assert!(!budget.set(&greedy, Part::Objects, 701), "even alone");
        assert!(budget.set(&greedy, Part::Objects, 700));
        assert!(budget.set(&web, Part::Objects, 100) && !budget.set(&web, Part::Source, 1), "there are no more");
        assert!(!budget.set(&greedy, Part::Inventory, 1) && !budget.set(&second, Part::Source, 1));
        assert!(budget.set(&greedy, Part::Objects, 600), "less is always possible");
        assert!(budget.set(&web, Part::Source, 100), "it is within its share");
        assert!(!budget.set(&greedy, Part::Objects, 601), "this one is not");
        assert!(
            budget.fits(&web, Part::Source, 100)
                && !budget.fits(&web, Part::Source, 101)
                && !budget.fits(&greedy, Part::Objects, 601),
            "nothing changes by asking"
        );
        budget.remove_owner(&greedy);
        assert!(budget.set(&second, Part::Objects, 400) && !budget.set(&second, Part::Objects, 401));
    }

    #[test]
    fn a_commit_may_change_all_objects() {
        let (mut budget, owner) = (MemoryBudget::default(), Owner::git_sync("web", "a"));
        budget.set_limit(800);
        assert!(budget.set(&owner, Part::Objects, 600));
        for read in [100, 300, 700] {
            assert!(budget.set(&owner, Part::Reading, read));
        }
        assert!(!budget.set(&owner, Part::Reading, 701));
        assert!(budget.set(&owner, Part::Reading, 0) && budget.set(&owner, Part::Objects, 700));
    }

    #[test]
    fn the_size_of_an_owner_counts_until_it_is_gone() {
        let (mut budget, owner) = (MemoryBudget::default(), Owner::git_sync("web", "a"));
        assert!(budget.set(&owner, Part::Resource, 10) && budget.set(&owner, Part::Objects, 20));
        budget.remove_owner(&owner);
        assert_eq!((budget.total, budget.namespaces["web"], budget.held.len()), (10, 10, 1));
        assert!(budget.set(&owner, Part::Resource, 0));
        assert_eq!((budget.total, budget.namespaces.len(), budget.held.len()), (0, 0, 0));
    }
}
