//! The index of events that subscribers wait for. The events themselves stay on disk.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::super::shares::{Held, has_room};
use super::super::subscriber::SubscriberId;

/// The number of attempts that marks an event as a dead letter, because the share of its subscriber or namespace is
/// used up.
pub(crate) const OVER: u32 = u32::MAX;

/// An event to deliver to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) number: u64,
    /// Number of failed deliveries.
    pub(crate) attempts: u32,
}

/// An event that subscribers still wait for.
#[derive(Debug)]
struct Entry {
    /// Bytes on disk.
    length: u64,
    /// Number of waiting subscribers.
    waiting: usize,
}

/// The waiting events of a subscriber, with their numbers of failed deliveries.
#[derive(Debug, Default)]
struct Pending {
    held: Held,
    deliverable: BTreeMap<u64, u32>,
    /// Events that exceed a share and become dead letters.
    over: BTreeMap<u64, u32>,
}

/// A group of events of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Events to deliver.
    Deliverable,
    /// Events that exceed a share.
    Over,
}

/// The index of all events.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<u64, Entry>,
    /// The sum of the entries' lengths.
    bytes: u64,
    /// The waiting events of each subscriber.
    waiting: HashMap<SubscriberId, Pending>,
    /// The waiting events of each namespace; the field `all` is their sum.
    of_namespaces: HashMap<String, Held>,
    all: Held,
}

impl Index {
    /// Adds a subscriber that waits for an event of this length in bytes.
    pub(super) fn insert(&mut self, number: u64, length: u64, to: &SubscriberId, attempts: u32) {
        let entry = self.entries.entry(number).or_insert_with(|| {
            self.bytes += length;
            Entry { length, waiting: 0 }
        });
        entry.waiting += 1;
        let one = Held { events: 1, bytes: length };
        self.all = self.all + one;
        let pending = self.waiting.entry(to.clone()).or_default();
        pending.held = pending.held + one;
        let group = if attempts == OVER { &mut pending.over } else { &mut pending.deliverable };
        group.insert(number, attempts);
        let namespace = self.of_namespaces.entry(to.parts().1.to_owned()).or_default();
        *namespace = *namespace + one;
    }

    /// Records that a subscriber no longer needs an event. Returns whether it was the last subscriber; `None` if it
    /// does not wait for the event.
    pub(super) fn end(&mut self, number: u64, to: &SubscriberId) -> Option<bool> {
        let pending = self.waiting.get_mut(to)?;
        pending.deliverable.remove(&number).or_else(|| pending.over.remove(&number))?;
        let entry = self.entries.get_mut(&number)?;
        let one = Held { events: 1, bytes: entry.length };
        entry.waiting -= 1;
        let is_last = entry.waiting == 0;
        pending.held = pending.held.without(one);
        if pending.held.events == 0 {
            self.waiting.remove(to);
        }
        if is_last {
            self.entries.remove(&number);
            self.bytes -= one.bytes;
        }
        self.all = self.all.without(one);
        let namespace = to.parts().1;
        let held = self.of_namespaces.get_mut(namespace)?;
        *held = held.without(one);
        if held.events == 0 {
            self.of_namespaces.remove(namespace);
        }
        Some(is_last)
    }

    /// Records the number of failed deliveries. Returns the length of the event, if the subscriber waits for it.
    pub(super) fn tried(&mut self, number: u64, to: &SubscriberId, attempts: u32) -> Option<u64> {
        *self.waiting.get_mut(to)?.deliverable.get_mut(&number)? = attempts;
        Some(self.entries.get(&number)?.length)
    }

    /// Whether a subscriber's share in a journal of this capacity has space for a further event.
    pub(super) fn has_room(&self, capacity: Held, id: &SubscriberId) -> bool {
        let namespace = self.of_namespaces.get(id.parts().1).copied().unwrap_or_default();
        has_room(capacity, self.held(id), namespace, self.all)
    }

    fn held(&self, id: &SubscriberId) -> Held {
        self.waiting.get(id).map(|pending| pending.held).unwrap_or_default()
    }

    /// Returns the subscribers with waiting events.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = &SubscriberId> {
        self.waiting.keys()
    }

    /// Returns the next events of a subscriber after `number`, oldest first, at most `most`.
    pub(super) fn after(&self, to: &SubscriberId, which: Which, number: u64, most: usize) -> Vec<Queued> {
        let Some(pending) = self.waiting.get(to) else { return Vec::new() };
        let group = match which {
            Which::Deliverable => &pending.deliverable,
            Which::Over => &pending.over,
        };
        let next = group.range((Bound::Excluded(number), Bound::Unbounded)).take(most);
        next.map(|(number, attempts)| Queued { number: *number, attempts: *attempts }).collect()
    }

    /// Returns the number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of the waiting events on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::subscriber::SubscriberKind;
    use super::*;

    fn held(events: usize, bytes: u64) -> Held {
        Held { events, bytes }
    }

    fn id(name: &str) -> SubscriberId {
        SubscriberId::new(SubscriberKind::Trigger, "default", name)
    }

    fn of(all: &[(u64, &str)]) -> Index {
        let mut index = Index::default();
        for (number, to) in all {
            index.insert(*number, 10, &id(to), 0);
        }
        index
    }

    #[test]
    fn waiting_events_of_each_subscriber_are_counted() {
        let mut index = of(&[(1, "a"), (1, "b"), (2, "a")]);
        assert_eq!((index.held(&id("a")), index.held(&id("b"))), (held(2, 20), held(1, 10)));
        assert_eq!((index.of_namespaces["default"], index.all), (held(3, 30), held(3, 30)));
        assert_eq!((index.len(), index.bytes()), (2, 20));
        assert_eq!([1, 1].map(|number| index.end(number, &id("a"))), [Some(false), None]);
        assert_eq!((index.held(&id("a")), index.held(&id("b"))), (held(1, 10), held(1, 10)));
        assert_eq!((index.end(1, &id("b")), index.end(2, &id("a"))), (Some(true), Some(true)));
        assert_eq!((index.held(&id("a")), index.waiting.len()), (held(0, 0), 0));
        assert_eq!((index.of_namespaces.len(), index.all, index.len(), index.bytes()), (0, held(0, 0), 0, 0));
    }

    #[test]
    fn attempts_are_kept() {
        let mut index = of(&[(1, "a"), (1, "b")]);
        assert_eq!((index.tried(1, &id("b"), 3), index.tried(9, &id("b"), 3)), (Some(10), None));
        let attempts = ["a", "b"].map(|name| index.after(&id(name), Which::Deliverable, 0, 9)[0].attempts);
        assert_eq!(attempts, [0, 3]);
    }
}
