//! The index of events that subscribers wait for, with the positions of their records in the journal. The data of
//! events stays on disk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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

/// The position of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// An event that a subscriber still waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) place: Place,
    /// Time of publication in milliseconds since 1970.
    pub(super) published: i64,
    /// The waiting subscribers, with their numbers of failed deliveries.
    pub(super) to: Vec<(SubscriberId, u32)>,
}

/// The size and use of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Segment {
    bytes: u64,
    /// Bytes of events that subscribers wait for.
    live: u64,
    /// Time of the last write in milliseconds since 1970.
    written: i64,
}

/// The waiting events of a subscriber.
#[derive(Debug, Default)]
struct Pending {
    held: Held,
    /// Numbers of events to deliver, and numbers of events that exceed a share and become dead letters.
    numbers: BTreeSet<u64>,
    over: BTreeSet<u64>,
}

/// A group of events of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Events to deliver.
    Deliverable,
    /// Events that exceed a share.
    Over,
}

/// The index of all events and segments.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<u64, Entry>,
    segments: BTreeMap<u64, Segment>,
    /// The waiting events of each subscriber.
    waiting: HashMap<SubscriberId, Pending>,
    /// The waiting events of each namespace; the field `all` is their sum.
    of_namespaces: HashMap<String, Held>,
    all: Held,
}

impl Index {
    /// Records bytes that were written to a segment.
    pub(super) fn wrote(&mut self, segment: u64, bytes: u64, now: i64) {
        let segment = self.segments.entry(segment).or_default();
        segment.bytes += bytes;
        segment.written = segment.written.max(now);
    }

    /// Adds an event, or updates its position after its record was moved.
    pub(super) fn insert(&mut self, number: u64, entry: Entry) {
        self.remove(number);
        let length = entry.place.length as u64;
        self.segments.entry(entry.place.segment).or_default().live += length;
        for (id, attempts) in &entry.to {
            let one = Held { events: 1, bytes: length };
            self.all = self.all + one;
            let waiting = self.waiting.entry(id.clone()).or_default();
            waiting.held = waiting.held + one;
            let numbers = if *attempts == OVER { &mut waiting.over } else { &mut waiting.numbers };
            numbers.insert(number);
            let namespace = self.of_namespaces.entry(id.parts().1.to_owned()).or_default();
            *namespace = *namespace + one;
        }
        self.entries.insert(number, entry);
    }

    fn remove(&mut self, number: u64) {
        let Some(old) = self.entries.remove(&number) else { return };
        let length = old.place.length as u64;
        if let Some(segment) = self.segments.get_mut(&old.place.segment) {
            segment.live = segment.live.saturating_sub(length);
        }
        for (id, _) in &old.to {
            self.got(id, number, length);
        }
    }

    /// Removes an event of this length in bytes from a subscriber's waiting events.
    fn got(&mut self, id: &SubscriberId, number: u64, length: u64) {
        let Some(waiting) = self.waiting.get_mut(id) else { return };
        let one = Held { events: 1, bytes: length };
        self.all = self.all.without(one);
        waiting.held = waiting.held.without(one);
        waiting.numbers.remove(&number);
        waiting.over.remove(&number);
        if waiting.held.events == 0 {
            self.waiting.remove(id);
        }
        let namespace = id.parts().1;
        let Some(held) = self.of_namespaces.get_mut(namespace) else { return };
        *held = held.without(one);
        if held.events == 0 {
            self.of_namespaces.remove(namespace);
        }
    }

    /// Whether a subscriber's share in a journal of this capacity has space for a further event.
    pub(super) fn has_room(&self, capacity: Held, id: &SubscriberId) -> bool {
        let namespace = self.of_namespaces.get(id.parts().1).copied().unwrap_or_default();
        has_room(capacity, self.waiting(id), namespace, self.all)
    }

    /// Returns the waiting events of a subscriber.
    fn waiting(&self, id: &SubscriberId) -> Held {
        self.waiting.get(id).map(|pending| pending.held).unwrap_or_default()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(&number)
    }

    /// Records that a subscriber no longer needs an event. Returns whether this is new.
    pub(super) fn end(&mut self, number: u64, to: &SubscriberId) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        let (before, length) = (entry.to.len(), entry.place.length as u64);
        entry.to.retain(|(id, _)| id != to);
        let (is_new, is_last) = (entry.to.len() < before, entry.to.is_empty());
        if is_new {
            self.got(to, number, length);
        }
        if is_last {
            self.remove(number);
        }
        is_new
    }

    /// Records the number of failed deliveries.
    pub(super) fn tried(&mut self, number: u64, to: &SubscriberId, attempts: u32) {
        let entry = self.entries.get_mut(&number);
        if let Some((_, known)) = entry.and_then(|entry| entry.to.iter_mut().find(|(id, _)| id == to)) {
            *known = attempts;
        }
    }

    /// Returns the subscribers with waiting events.
    pub(super) fn subscribers(&self) -> impl Iterator<Item = &SubscriberId> {
        self.waiting.keys()
    }

    /// Returns the next events of a subscriber after `number`, oldest first, at most `most`.
    pub(super) fn after(&self, to: &SubscriberId, which: Which, number: u64, most: usize) -> Vec<Queued> {
        let Some(pending) = self.waiting.get(to) else { return Vec::new() };
        let numbers = match which {
            Which::Deliverable => &pending.numbers,
            Which::Over => &pending.over,
        };
        let next = numbers.range((Bound::Excluded(number), Bound::Unbounded)).take(most);
        next.map(|number| Queued { number: *number, attempts: self.attempts(*number, to) }).collect()
    }

    fn attempts(&self, number: u64, to: &SubscriberId) -> u32 {
        let found = self.entries.get(&number).and_then(|entry| entry.to.iter().find(|(id, _)| id == to));
        found.map(|(_, attempts)| *attempts).unwrap_or_default()
    }

    /// Returns the number of waiting events.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the total size of all segments in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Returns the number of the newest waiting event, or 0.
    pub(super) fn last(&self) -> u64 {
        self.entries.keys().next_back().copied().unwrap_or_default()
    }

    /// Returns the oldest segment if it contains no waiting events, was last written before `since`, and is not the
    /// current segment.
    pub(super) fn removable(&self, current: u64, since: i64) -> Option<u64> {
        let (oldest, segment) = self.segments.first_key_value()?;
        (*oldest != current && segment.live == 0 && segment.written < since).then_some(*oldest)
    }

    /// Returns the oldest segment and its events if less than half of its bytes are needed and it is not the current
    /// segment.
    pub(super) fn sparse(&self, current: u64) -> Option<(u64, Vec<u64>)> {
        let (oldest, segment) = self.segments.first_key_value()?;
        if *oldest == current || segment.live * 2 >= segment.bytes {
            return None;
        }
        let of_segment = self.entries.iter().filter(|(_, entry)| entry.place.segment == *oldest);
        Some((*oldest, of_segment.map(|(number, _)| *number).collect()))
    }

    /// Removes a deleted segment.
    pub(super) fn forget(&mut self, segment: u64) {
        self.segments.remove(&segment);
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

    fn entry(segment: u64, to: &[&str]) -> Entry {
        let place = Place { segment, offset: 0, length: 10 };
        Entry { place, published: 0, to: to.iter().map(|name| (id(name), 0)).collect() }
    }

    #[test]
    fn waiting_events_of_each_subscriber_are_counted() {
        let mut index = Index::default();
        index.insert(1, entry(1, &["a", "b"]));
        index.insert(2, entry(1, &["a"]));
        // The record of the event is moved.
        index.insert(1, entry(2, &["a", "b"]));
        assert_eq!((index.waiting(&id("a")), index.waiting(&id("b"))), (held(2, 20), held(1, 10)));
        assert_eq!((index.of_namespaces["default"], index.all), (held(3, 30), held(3, 30)));
        for _ in 0..2 {
            index.end(1, &id("a"));
        }
        assert_eq!((index.waiting(&id("a")), index.waiting(&id("b"))), (held(1, 10), held(1, 10)));
        index.end(1, &id("b"));
        index.end(2, &id("a"));
        assert_eq!((index.waiting(&id("a")), index.waiting.len()), (held(0, 0), 0));
        assert_eq!((index.of_namespaces.len(), index.all), (0, held(0, 0)));
    }

    #[test]
    fn a_segment_goes_when_everybody_has_its_events() {
        let mut index = Index::default();
        index.wrote(1, 30, 5);
        index.insert(1, entry(1, &["a", "b"]));
        assert!(index.end(1, &id("a")) && !index.end(1, &id("a")));
        assert_eq!((index.removable(2, 9), index.len()), (None, 1));
        assert!(index.end(1, &id("b")));
        assert_eq!((index.removable(2, 9), index.removable(1, 9), index.removable(2, 5)), (Some(1), None, None));
    }

    #[test]
    fn a_moved_event_is_counted_once() {
        let mut index = Index::default();
        index.wrote(1, 30, 0);
        index.insert(1, entry(1, &["a"]));
        assert_eq!(index.sparse(2), Some((1, vec![1])));
        index.wrote(2, 10, 0);
        index.insert(1, entry(2, &["a"]));
        assert_eq!((index.removable(2, 1), index.bytes()), (Some(1), 40));
        index.forget(1);
        assert_eq!((index.bytes(), index.sparse(2)), (10, None));
    }

    #[test]
    fn attempts_are_kept() {
        let mut index = Index::default();
        index.insert(1, entry(1, &["a", "b"]));
        index.tried(1, &id("b"), 3);
        index.tried(9, &id("b"), 3);
        assert_eq!(index.get(1).unwrap().to, [(id("a"), 0), (id("b"), 3)]);
    }
}
