//! How much memory owners may take for what is kept for them: the objects that they want, inventories, the sources of
//! Functions.
//!
//! Invariant: a namespace keeps what it has; what it may add leaves a part of the budget to the others, unless it stays within
//! its share: the budget, divided by the number of namespaces that have anything.
//! Invariant: while a new commit is read, its objects count instead of those of the one before, so that a commit may change
//! all of them; both together are within twice the budget.
//!
//! Deliberately absent: what takes how much, and what becomes of what does not fit.

use std::collections::{HashMap, HashSet};

use crate::object::Owner;

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
}

/// The bytes that are kept for all owners.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    held: HashMap<(Owner, Part), usize>,
}

/// This part of the budget is left to the other namespaces by one that has more than its share, and this one by the only one.
const LEFT_TO_OTHERS: [usize; 2] = [4, 8];

impl Default for MemoryBudget {
    /// Without a limit.
    fn default() -> Self {
        Self { limit: usize::MAX, held: HashMap::new() }
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
        let key = (owner.clone(), part);
        let fits = self.held.get(&key).is_some_and(|before| bytes <= *before) || self.fits(owner, part, bytes);
        if fits && bytes > 0 {
            self.held.insert(key, bytes);
        } else if fits {
            self.held.remove(&key);
        }
        fits
    }

    /// Nothing is kept for an owner any more.
    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        self.held.retain(|(other, _), _| other != owner);
    }

    fn fits(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        let replaced = |of: &Owner, held: Part| match part {
            Part::Objects | Part::Reading => of == owner && matches!(held, Part::Objects | Part::Reading),
            part => of == owner && held == part,
        };
        let others = self.held.iter().filter(|((of, held), _)| !replaced(of, *held));
        let (mut total, mut own, mut namespaces) = (bytes, bytes, HashSet::from([owner.resource().namespace()]));
        for ((of, _), bytes) in others {
            total = total.saturating_add(*bytes);
            namespaces.insert(of.resource().namespace());
            if of.resource().namespace() == owner.resource().namespace() {
                own = own.saturating_add(*bytes);
            }
        }
        let is_within_share = own <= self.limit / namespaces.len().max(2);
        let left = LEFT_TO_OTHERS[usize::from(namespaces.len() == 1)];
        total <= self.limit && (is_within_share || total <= self.limit - self.limit / left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_namespace_adds_leaves_room_to_the_others() {
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
}
