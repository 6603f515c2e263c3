//! The memory budget of owners: for their desired objects, inventories, Function sources, and their own resources.
//!
//! Invariant: a namespace keeps the memory that it has. If it grows beyond its share (the budget divided by the number
//! of namespaces in use), it must leave a part of the budget to the others.
//! Invariant: the objects of a new commit replace those of the old one in the budget, so a commit may change all of
//! them. Both together take at most twice the budget.
//! Invariant: memory is reserved for the objects of a new owner, so that later owners do not take it. An owner that
//! needs more than the available memory reserves none.
//! Invariant: when memory becomes available, waiting owners are woken in the order of their age, but only as many as
//! fit.
//!
//! Not here: the size of each part, and the handling of owners that do not fit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use mainstay_object::Owner;

/// A part of the memory of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The objects of the enforced commit.
    Objects,
    /// The objects of a commit that is being read.
    Reading,
    /// The loaded inventory.
    Inventory,
    /// The source of a Function.
    Source,
    /// The GitSync, GitRepository, Function or Receiver, and its task.
    Resource,
    /// The known state of a remote cluster, and the connections to it.
    Cluster,
    /// Reserved for the objects of an owner that has not read them yet.
    Expected,
}

/// Bytes by part.
type Parts = [usize; 7];

/// The parts for the objects of an owner. Only one part counts at a time.
const OBJECTS: [Part; 3] = [Part::Objects, Part::Reading, Part::Expected];

/// Returns the memory budget for a process with this memory limit, both in bytes.
pub fn kept_within(limit: usize) -> usize {
    limit / 10 * 3
}

/// Returns the memory limit for this budget, both in bytes.
pub fn memory_limit(kept: usize) -> usize {
    kept.div_ceil(3).saturating_mul(10)
}

/// An owner that waits for memory.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Creation time of the owner: the oldest is first.
    pub since: Timestamp,
    /// The part that the owner waits for.
    pub part: Part,
    /// The size of the part in bytes.
    pub bytes: usize,
    /// Notified when memory is available.
    pub room: Arc<Notify>,
}

/// One budget for several stores. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedBudget(Arc<Mutex<MemoryBudget>>);

impl SharedBudget {
    /// Calls [`MemoryBudget::set_limit`].
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.0.lock().set_limit(bytes);
    }

    /// Calls [`MemoryBudget::set`].
    pub(crate) fn set(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.0.lock().set(owner, part, bytes)
    }

    /// Calls [`MemoryBudget::admit`].
    pub(crate) fn admit(&self, owner: &Owner, resource: usize, expected: usize) -> bool {
        self.0.lock().admit(owner, resource, expected)
    }

    /// Calls [`MemoryBudget::wait`].
    pub(crate) fn wait(&self, owner: &Owner, waiting: Waiting) -> usize {
        self.0.lock().wait(owner, waiting)
    }

    /// Calls [`MemoryBudget::end_wait`].
    pub(crate) fn end_wait(&self, owner: &Owner) {
        self.0.lock().end_wait(owner);
    }

    /// Calls [`MemoryBudget::fits`].
    pub(crate) fn fits(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        self.0.lock().fits(owner, part, bytes)
    }

    /// Calls [`MemoryBudget::remove_owner`].
    pub(crate) fn remove_owner(&self, owner: &Owner) {
        self.0.lock().remove_owner(owner);
    }
}

/// The memory of all owners, in bytes.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    held: HashMap<Owner, Parts>,
    /// The total, and the sum of each namespace in use.
    total: usize,
    namespaces: HashMap<String, usize>,
    /// The waiting owners, by namespace.
    waiting: BTreeMap<String, Queue>,
    /// The creation time of each waiting owner.
    since: HashMap<Owner, Timestamp>,
}

/// The waiting owners of one namespace, by age.
#[derive(Debug, Default)]
struct Queue {
    owners: BTreeMap<(Timestamp, Owner), Waiting>,
    /// A lower bound of the sizes that the owners wait for.
    least: usize,
}

/// A namespace beyond its share leaves this part of the budget (as a reciprocal) to other namespaces. The second value
/// is for a namespace that is the only one.
const LEFT_TO_OTHERS: [usize; 2] = [4, 8];

impl Default for MemoryBudget {
    /// Returns a budget without a limit.
    fn default() -> Self {
        Self {
            limit: usize::MAX,
            held: HashMap::new(),
            total: 0,
            namespaces: HashMap::new(),
            waiting: BTreeMap::new(),
            since: HashMap::new(),
        }
    }
}

impl MemoryBudget {
    /// Sets the limit in bytes.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Sets the bytes of a part of an owner. Returns whether they fit; otherwise the old value stays.
    pub(crate) fn set(&mut self, owner: &Owner, part: Part, bytes: usize) -> bool {
        if !self.fits(owner, part, bytes) {
            return false;
        }
        let before = self.total;
        self.replace(owner, part, bytes);
        if matches!(part, Part::Objects | Part::Reading) && bytes > 0 {
            self.replace(owner, Part::Expected, 0);
        }
        if part == Part::Objects {
            self.end_wait(owner);
        }
        if self.total < before {
            self.wake();
        }
        true
    }

    /// Admits an owner: records the bytes of its own resource and reserves `expected` bytes for its objects. Returns
    /// whether both fit.
    pub(crate) fn admit(&mut self, owner: &Owner, resource: usize, expected: usize) -> bool {
        let held = self.held.get(owner).copied().unwrap_or_default();
        let begins = held[Part::Objects as usize] + held[Part::Reading as usize] == 0;
        let expected = if begins { expected } else { 0 };
        let replaced = held[Part::Resource as usize] + held[Part::Expected as usize];
        if resource > held[Part::Resource as usize] && !self.has_room(owner, replaced, resource + expected) {
            return false;
        }
        self.replace(owner, Part::Resource, resource);
        if !self.waits_for_objects(owner) {
            self.replace(owner, Part::Expected, expected);
            self.end_wait(owner);
        }
        true
    }

    /// Queues an owner that did not fit, to be woken later. It reserves no memory until then. Returns the budget in
    /// bytes with which it would fit after the current owners and the older waiting ones.
    pub(crate) fn wait(&mut self, owner: &Owner, waiting: Waiting) -> usize {
        self.end_wait(owner);
        self.replace(owner, Part::Expected, 0);
        let id = (waiting.since, owner.clone());
        let older = self.waiting.values().flat_map(|queue| queue.owners.range(..&id)).map(|(_, one)| one.bytes);
        let needed = self.needed(owner, waiting.part, waiting.bytes, older.sum());
        self.since.insert(owner.clone(), waiting.since);
        let queue = self.waiting.entry(owner.resource().namespace().to_owned()).or_default();
        queue.least = if queue.owners.is_empty() { waiting.bytes } else { queue.least.min(waiting.bytes) };
        queue.owners.insert(id, waiting);
        self.wake();
        needed
    }

    fn waits_for_objects(&self, owner: &Owner) -> bool {
        let Some(since) = self.since.get(owner) else { return false };
        let queue = self.waiting.get(owner.resource().namespace());
        let waiting = queue.and_then(|queue| queue.owners.get(&(*since, owner.clone())));
        waiting.is_some_and(|waiting| waiting.part != Part::Resource)
    }

    /// Removes an owner from the queue.
    pub(crate) fn end_wait(&mut self, owner: &Owner) {
        let Some(since) = self.since.remove(owner) else { return };
        let namespace = owner.resource().namespace();
        let Some(queue) = self.waiting.get_mut(namespace) else { return };
        queue.owners.remove(&(since, owner.clone()));
        if queue.owners.is_empty() {
            self.waiting.remove(namespace);
        }
    }

    /// Wakes the owners that fit now, the oldest first. The size of each is subtracted before the next. Skips a
    /// namespace if not even its smallest owner fits.
    fn wake(&mut self) {
        let first = |queue: &Queue| queue.owners.first_key_value().map(|((_, owner), _)| owner.clone());
        let may_fit = |queue: &Queue| first(queue).is_some_and(|owner| self.has_room(&owner, 0, queue.least));
        let queues = self.waiting.values().filter(|queue| may_fit(queue)).flat_map(|queue| &queue.owners);
        let mut all = queues.collect::<Vec<_>>();
        all.sort_by_key(|(id, _)| *id);
        let mut taken = 0;
        for ((_, owner), waiting) in all {
            if self.fits(owner, waiting.part, waiting.bytes.saturating_add(taken)) {
                waiting.room.notify_one();
                taken += waiting.bytes;
            }
        }
    }

    /// Returns the minimum budget in which these bytes fit, in addition to the current owners and to `others`, in
    /// bytes.
    fn needed(&self, owner: &Owner, part: Part, bytes: usize, others: usize) -> usize {
        let (own, total, namespaces) = self.with(owner, self.replaced(owner, part), bytes.saturating_add(others));
        let left = LEFT_TO_OTHERS[usize::from(namespaces == 1)];
        let as_share = own.saturating_mul(namespaces.max(2));
        let as_rest = total.saturating_mul(left).div_ceil(left - 1);
        total.max(as_share.min(as_rest))
    }

    /// Whether these bytes of a part fit now, in place of the part's current bytes.
    pub(crate) fn fits(&self, owner: &Owner, part: Part, bytes: usize) -> bool {
        let held = self.held.get(owner).copied().unwrap_or_default();
        if bytes <= held[part as usize] {
            return true;
        }
        self.has_room(owner, self.replaced(owner, part), bytes)
    }

    /// Returns the bytes that a new value of this part replaces.
    fn replaced(&self, owner: &Owner, part: Part) -> usize {
        let held = self.held.get(owner).copied().unwrap_or_default();
        match part {
            Part::Objects | Part::Reading => OBJECTS.iter().map(|part| held[*part as usize]).sum(),
            part => held[part as usize],
        }
    }

    /// Returns the state if `bytes` took the place of `replaced`: the bytes of the owner's namespace, the total bytes,
    /// and the number of namespaces in use.
    fn with(&self, owner: &Owner, replaced: usize, bytes: usize) -> (usize, usize, usize) {
        let own = self.namespaces.get(owner.resource().namespace());
        let namespaces = self.namespaces.len() + usize::from(own.is_none());
        let own = (own.copied().unwrap_or_default() - replaced).saturating_add(bytes);
        (own, (self.total - replaced).saturating_add(bytes), namespaces)
    }

    fn has_room(&self, owner: &Owner, replaced: usize, bytes: usize) -> bool {
        let (own, total, namespaces) = self.with(owner, replaced, bytes);
        let is_within_share = own <= self.limit / namespaces.max(2);
        let left = LEFT_TO_OTHERS[usize::from(namespaces == 1)];
        total <= self.limit && (is_within_share || total <= self.limit - self.limit / left)
    }

    /// Removes all parts of an owner except its resource and its cluster, which are removed separately.
    pub(crate) fn remove_owner(&mut self, owner: &Owner) {
        for part in [Part::Objects, Part::Reading, Part::Inventory, Part::Expected] {
            self.replace(owner, part, 0);
        }
        self.end_wait(owner);
        self.wake();
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

    fn waiting(second: i64, part: Part, bytes: usize) -> (Arc<Notify>, Waiting) {
        let room = Arc::new(Notify::new());
        let since = Timestamp::from_second(second).unwrap();
        (Arc::clone(&room), Waiting { since, part, bytes, room })
    }

    fn is_woken(room: &Notify) -> bool {
        use futures::FutureExt;
        room.notified().now_or_never().is_some()
    }

    #[test]
    fn reserves_memory_for_the_objects_of_a_new_owner() {
        let mut budget = MemoryBudget::default();
        budget.set_limit(800);
        let owners = ["a", "b", "c"].map(|name| Owner::git_sync("web", name));
        let admitted = owners.clone().map(|owner| budget.admit(&owner, 100, 200));
        assert_eq!(admitted, [true, true, false], "even before the first has read its objects");
        assert!(budget.admit(&owners[0], 100, 200), "it is there already");
        assert!(budget.set(&owners[0], Part::Reading, 300) && !budget.set(&owners[1], Part::Reading, 300));
        assert!(budget.set(&owners[0], Part::Objects, 250) && budget.set(&owners[0], Part::Reading, 0));
        assert_eq!((budget.total, budget.held[&owners[0]][Part::Expected as usize]), (650, 0));
        assert!(budget.admit(&owners[0], 100, 200) && budget.total == 650, "nothing is set aside beside objects");
    }

    #[test]
    fn memory_wakes_as_many_owners_as_fit_in_the_order_of_age() {
        let mut budget = MemoryBudget::default();
        budget.set_limit(800);
        let (greedy, old, young) =
            (Owner::git_sync("web", "z"), Owner::git_sync("web", "y"), Owner::git_sync("web", "x"));
        assert!(budget.set(&greedy, Part::Objects, 700) && budget.admit(&old, 0, 0));
        let (younger, needs) = waiting(9, Part::Objects, 200);
        assert_eq!(budget.wait(&young, needs), 1029, "900 leave an eighth");
        let (older, needs) = waiting(3, Part::Objects, 200);
        assert_eq!(budget.wait(&old, needs.clone()), 1029, "those that wait since later do not count");
        assert!(!is_woken(&older) && !is_woken(&younger));
        assert!(budget.set(&greedy, Part::Objects, 650));
        assert!(!is_woken(&older) && !is_woken(&younger), "there is no room for either");
        assert!(budget.set(&greedy, Part::Objects, 500));
        assert!(is_woken(&older) && !is_woken(&younger));
        assert!(budget.set(&old, Part::Objects, 200));
        budget.end_wait(&old);
        assert!(budget.set(&greedy, Part::Objects, 100));
        assert!(is_woken(&younger) && !is_woken(&older));
        assert!(budget.wait(&old, needs) > 0);
        budget.remove_owner(&old);
        budget.remove_owner(&young);
        assert!(budget.waiting.is_empty() && budget.since.is_empty());
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
