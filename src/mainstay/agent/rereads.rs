//! Objects for which there was no memory, in whole or in part: which of them are read again, and when.
//!
//! Invariant: so many at a time, the namespaces by turns, whoever has more of them; and only those for which there may be memory
//! by now, or of which nothing has been said yet. While no memory becomes free, nothing is read.
//!
//! Deliberately absent: reading them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{Excluded, Unbounded};

use super::kept::Name;

/// The objects, by namespace and name.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    waiting: BTreeMap<String, Queue>,
    /// The namespace whose turn it was last.
    last: String,
}

/// Those of one namespace.
#[derive(Debug, Default)]
struct Queue {
    objects: BTreeMap<String, Withheld>,
    /// The one whose turn it was last.
    last: String,
}

/// What is known of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Withheld {
    /// Memory that it takes, in bytes.
    bytes: usize,
    /// Its status says so.
    is_reported: bool,
}

impl Rereads {
    /// There is no memory for this one, which takes so much; whether that is new. `is_reported`: nobody needs to say so.
    pub(super) fn insert(&mut self, (namespace, name): &Name, bytes: usize, is_reported: bool) -> bool {
        let queue = self.waiting.entry(namespace.clone()).or_default();
        let is_new = !queue.objects.contains_key(name);
        let known = queue.objects.entry(name.clone()).or_insert(Withheld { bytes, is_reported });
        (known.bytes, known.is_reported) = (bytes, known.is_reported || is_reported);
        is_new
    }

    /// All of it is kept, or it is gone; whether it was one of them.
    pub(super) fn remove(&mut self, (namespace, name): &Name) -> bool {
        let Entry::Occupied(mut queue) = self.waiting.entry(namespace.clone()) else { return false };
        let was_there = queue.get_mut().objects.remove(name).is_some();
        if queue.get().objects.is_empty() {
            queue.remove();
        }
        was_there
    }

    /// The status of this one says so.
    pub(super) fn reported(&mut self, (namespace, name): &Name) {
        if let Some(known) = self.waiting.get_mut(namespace).and_then(|queue| queue.objects.get_mut(name)) {
            known.is_reported = true;
        }
    }

    /// All of them.
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        let names = |(namespace, queue): (&String, &Queue)| {
            queue.objects.keys().map(|name| (namespace.clone(), name.clone())).collect::<Vec<_>>()
        };
        self.waiting.iter().flat_map(names)
    }

    /// The next ones to read, at most so many. `may_keep` says whether there may be memory for one by now.
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

/// All keys, from the one after this on.
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
