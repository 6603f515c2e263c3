//! Objects that are not kept, or only in part, for lack of memory: which of them are read again, and when.
//!
//! Invariant: at most a given number is read at a time. Namespaces take turns, and the oldest objects of each namespace
//! come first. An object is read only if there may be memory for it now, or if it was not reported yet. While no memory
//! becomes free, no reported object is read.
//!
//! Not here: reading the objects.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use jiff::Timestamp;

use super::kept::Name;

/// The objects that lack memory, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    waiting: BTreeMap<String, Queue>,
    /// The namespace that was served last.
    last: String,
}

/// The objects of one namespace.
#[derive(Debug, Default)]
struct Queue {
    objects: BTreeMap<String, Withheld>,
    /// The names of the objects, by age.
    by_age: BTreeSet<(Timestamp, String)>,
}

/// The memory that an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Creation time.
    pub(super) since: Timestamp,
    /// Memory of the object itself, in bytes.
    pub(super) bytes: usize,
    /// Expected memory of the objects that it manages, in bytes.
    pub(super) expected: usize,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Withheld {
    need: Need,
    /// Whether the object's status reports the missing memory.
    is_reported: bool,
}

impl Rereads {
    /// Records an object without memory, with its need. Returns whether it is new. `is_reported` means that no report
    /// is due.
    pub(super) fn insert(&mut self, (namespace, name): &Name, need: Need, is_reported: bool) -> bool {
        let queue = self.waiting.entry(namespace.clone()).or_default();
        let before = queue.objects.get(name).copied();
        if let Some(before) = before {
            queue.by_age.remove(&(before.need.since, name.clone()));
        }
        let is_reported = is_reported || before.is_some_and(|before| before.is_reported);
        queue.objects.insert(name.clone(), Withheld { need, is_reported });
        queue.by_age.insert((need.since, name.clone()));
        before.is_none()
    }

    /// Removes an object that is fully kept or deleted. Returns whether it was recorded.
    pub(super) fn remove(&mut self, (namespace, name): &Name) -> bool {
        let Entry::Occupied(mut queue) = self.waiting.entry(namespace.clone()) else { return false };
        let removed = queue.get_mut().objects.remove(name);
        if let Some(removed) = removed {
            queue.get_mut().by_age.remove(&(removed.need.since, name.clone()));
        }
        if queue.get().objects.is_empty() {
            queue.remove();
        }
        removed.is_some()
    }

    /// Records that the object's status reports the missing memory.
    pub(super) fn reported(&mut self, (namespace, name): &Name) {
        if let Some(known) = self.waiting.get_mut(namespace).and_then(|queue| queue.objects.get_mut(name)) {
            known.is_reported = true;
        }
    }

    /// Returns the names of all objects.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        let names = |(namespace, queue): (&String, &Queue)| {
            queue.objects.keys().map(|name| (namespace.clone(), name.clone())).collect::<Vec<_>>()
        };
        self.waiting.iter().flat_map(names)
    }

    /// Returns the next objects to read, at most `most`. `may_keep` returns whether there may be memory for an object
    /// now.
    pub(super) fn next(&mut self, most: usize, may_keep: impl Fn(&Name, Need) -> bool) -> Vec<Name> {
        let mut due = Vec::new();
        for namespace in after(&self.waiting, &self.last) {
            let queue = &self.waiting[namespace];
            let names = queue.by_age.iter().map(|(_, name)| (namespace.clone(), name.clone()));
            let names = names.filter(|name| {
                let known = queue.objects[&name.1];
                !known.is_reported || may_keep(name, known.need)
            });
            due.push(names);
        }
        let mut next = Vec::new();
        while next.len() < most && !due.is_empty() {
            due.retain_mut(|names| {
                if next.len() == most {
                    return true;
                }
                let name = names.next();
                let is_left = name.is_some();
                next.extend(name);
                is_left
            });
        }
        if let Some((namespace, _)) = next.last() {
            self.last.clone_from(namespace);
        }
        next
    }
}

/// Returns all keys in circular order, beginning after `last`.
fn after<'a, T>(of: &'a BTreeMap<String, T>, last: &str) -> impl Iterator<Item = &'a String> {
    let later = of.range::<str, _>((Excluded(last), Unbounded));
    let earlier = of.range::<str, _>((Unbounded, std::ops::Bound::Included(last)));
    later.chain(earlier).map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn name(namespace: &str, number: usize) -> Name {
        (namespace.to_owned(), format!("{number:05}"))
    }

    fn need(second: i64, bytes: usize) -> Need {
        Need { since: Timestamp::from_second(second).unwrap(), bytes, expected: 0 }
    }

    #[test]
    fn those_of_one_namespace_keep_no_other_waiting_and_a_turn_is_bounded() {
        let mut rereads = Rereads::default();
        for number in 0..10_000 {
            assert!(rereads.insert(&name("greedy", number), need(0, 100), true));
        }
        rereads.insert(&name("web", 1), need(0, 100), true);
        let turn = rereads.next(4, |_, _| true);
        assert_eq!(turn, [name("greedy", 0), name("web", 1), name("greedy", 1), name("greedy", 2)]);
        assert_eq!(rereads.next(2, |_, _| true), [name("web", 1), name("greedy", 0)]);
        rereads.remove(&name("web", 1));
        rereads.remove(&name("greedy", 0));
        assert_eq!(rereads.next(2, |_, _| true), [name("greedy", 1), name("greedy", 2)]);
        assert_eq!(rereads.names().count(), 9_999);
    }

    #[test]
    fn the_oldest_of_a_namespace_comes_first() {
        let mut rereads = Rereads::default();
        for (number, second) in [(0, 30), (1, 20), (2, 10)] {
            rereads.insert(&name("web", number), need(second, 100), true);
        }
        assert_eq!(rereads.next(9, |_, _| true), [2, 1, 0].map(|number| name("web", number)));
        rereads.insert(&name("web", 2), need(40, 100), true);
        assert_eq!(rereads.next(2, |_, _| true), [1, 0].map(|number| name("web", number)), "it was made anew");
    }

    #[test]
    fn rereads_wait_until_memory_is_free() {
        let mut rereads = Rereads::default();
        for number in 0..3 {
            rereads.insert(&name("web", number), need(0, 100 * (number + 1)), false);
        }
        let asked = Cell::new(0);
        let none = |_: &Name, _: Need| {
            asked.set(asked.get() + 1);
            false
        };
        assert_eq!(rereads.next(2, none), [name("web", 0), name("web", 1)], "nothing was said of them yet");
        for number in 0..3 {
            rereads.reported(&name("web", number));
        }
        assert_eq!((rereads.next(2, none), asked.get()), (Vec::new(), 3));
        assert_eq!(rereads.next(9, |_, need| need.bytes <= 200), [name("web", 0), name("web", 1)]);
        assert!(!rereads.insert(&name("web", 0), need(0, 300), false), "it is known");
        assert_eq!(rereads.next(9, |_, need| need.bytes <= 200), [name("web", 1)]);
        assert!(rereads.remove(&name("web", 1)) && !rereads.remove(&name("web", 1)));
    }
}
