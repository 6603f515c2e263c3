//! Objects without memory, in whole or in part: which of them are read again, and when.
//!
//! Invariant: at most a given number is read at a time, with namespaces taking turns. Only objects are read for which
//! there may be memory now, or that were not reported yet. While no memory becomes free, no object is read.
//!
//! Not here: reading them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Unbounded};

use super::kept::Name;

/// The objects, by namespace and name.
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
    /// The object that was served last.
    last: String,
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Withheld {
    /// Its memory, in bytes.
    bytes: usize,
    /// Whether its status reports this.
    is_reported: bool,
}

impl Rereads {
    /// Records an object without memory, with its size. Returns whether it is new. `is_reported` means that no report
    /// is needed.
    pub(super) fn insert(&mut self, (namespace, name): &Name, bytes: usize, is_reported: bool) -> bool {
        let queue = self.waiting.entry(namespace.clone()).or_default();
        let is_new = !queue.objects.contains_key(name);
        let known = queue.objects.entry(name.clone()).or_insert(Withheld { bytes, is_reported });
        (known.bytes, known.is_reported) = (bytes, known.is_reported || is_reported);
        is_new
    }

    /// Removes an object that is fully kept or deleted. Returns whether it was recorded.
    pub(super) fn remove(&mut self, (namespace, name): &Name) -> bool {
        let Entry::Occupied(mut queue) = self.waiting.entry(namespace.clone()) else { return false };
        let was_there = queue.get_mut().objects.remove(name).is_some();
        if queue.get().objects.is_empty() {
            queue.remove();
        }
        was_there
    }

    /// Records that the object's status reports this.
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

    /// Returns the next objects to read, at most `most`. `may_keep` returns whether there may be memory for one now.
    pub(super) fn next(&mut self, most: usize, may_keep: impl Fn(&Name, usize) -> bool) -> Vec<Name> {
        let mut next = Vec::new();
        let mut namespaces: Vec<String> = after(&self.waiting, &self.last).cloned().collect();
        while next.len() < most && !namespaces.is_empty() {
            namespaces.retain(|namespace| {
                let Some(queue) = self.waiting.get_mut(namespace).filter(|_| next.len() < most) else { return false };
                let name = |name: &String| (namespace.clone(), name.clone());
                let is_due = |of: &&String| {
                    let known = queue.objects[*of];
                    let name = name(of);
                    !next.contains(&name) && (!known.is_reported || may_keep(&name, known.bytes))
                };
                let Some(due) = after(&queue.objects, &queue.last).find(is_due).cloned() else { return false };
                next.push(name(&due));
                (queue.last, self.last) = (due, namespace.clone());
                true
            });
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

    #[test]
    fn those_of_one_namespace_keep_no_other_waiting_and_a_turn_is_bounded() {
        let mut rereads = Rereads::default();
        for number in 0..10_000 {
            assert!(rereads.insert(&name("greedy", number), 100, true));
        }
        rereads.insert(&name("web", 1), 100, true);
        let turn = rereads.next(4, |_, _| true);
        assert_eq!(turn, [name("greedy", 0), name("web", 1), name("greedy", 1), name("greedy", 2)]);
        assert_eq!(rereads.next(2, |_, _| true), [name("web", 1), name("greedy", 3)]);
        rereads.remove(&name("web", 1));
        assert_eq!(rereads.next(2, |_, _| true), [name("greedy", 4), name("greedy", 5)]);
        assert_eq!(rereads.names().count(), 10_000);
    }

    #[test]
    fn rereads_wait_until_memory_is_free() {
        let mut rereads = Rereads::default();
        for number in 0..3 {
            rereads.insert(&name("web", number), 100 * (number + 1), false);
        }
        let asked = Cell::new(0);
        let none = |_: &Name, _: usize| {
            asked.set(asked.get() + 1);
            false
        };
        assert_eq!(rereads.next(2, none), [name("web", 0), name("web", 1)], "nothing was said of them yet");
        for number in 0..3 {
            rereads.reported(&name("web", number));
        }
        assert_eq!((rereads.next(2, none), asked.get()), (Vec::new(), 3));
        assert_eq!(rereads.next(9, |_, bytes| bytes <= 200), [name("web", 0), name("web", 1)]);
        assert!(!rereads.insert(&name("web", 0), 300, false), "it is known");
        assert_eq!(rereads.next(9, |_, bytes| bytes <= 200), [name("web", 1)]);
        assert!(rereads.remove(&name("web", 1)) && !rereads.remove(&name("web", 1)));
    }
}
