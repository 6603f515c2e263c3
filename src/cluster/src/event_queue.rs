//! The Events of one priority that wait to be written, and how often they may be.
//!
//! Invariant: namespaces write in turn, and the one with the most waiting Events makes room.
//! Invariant: of several Events about one object that are no routine, the newest is written first: the object's rate limit never
//! delays what is wrong now behind what was wrong before.
//! Deliberately absent: what an Event says, and clocks.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::event::{AggregationKey, Priority};
use super::event_bucket::Bucket;
use mainstay_object::Key;

/// Most Events of one object that wait: they would take the room of all others.
const MAX_PENDING: usize = 50;
/// Most Events of one namespace that wait although another Event names them too: about a second's worth.
const MAX_DETAILS: usize = 25;

/// The waiting Events of one priority.
pub(super) struct EventQueue {
    priority: Priority,
    /// Events by namespace; the next namespace is first. Each Event has the time from which it may be written.
    pending: VecDeque<(String, VecDeque<(AggregationKey, Instant)>)>,
    /// How many of them are about which object.
    waiting: HashMap<Key, usize>,
    buckets: HashMap<Key, Bucket>,
    altogether: Bucket,
}

impl EventQueue {
    pub(super) fn new(priority: Priority) -> Self {
        let altogether = match priority {
            Priority::Failure => Bucket::new(100.0, 50.0),
            // In a storm the first of them are requests beside those that revert objects.
            Priority::State | Priority::Routine | Priority::Detail => Bucket::new(25.0, 20.0),
        };
        Self { priority, pending: VecDeque::new(), waiting: HashMap::new(), buckets: HashMap::new(), altogether }
    }

    /// Writes about one object: this many at once, then one per interval.
    fn per_object(&self) -> Bucket {
        match self.priority {
            Priority::Failure | Priority::State => Bucket::new(25.0, 1.0),
            Priority::Routine | Priority::Detail => Bucket::new(25.0, 0.1),
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.pending.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether another Event about this object may wait.
    pub(super) fn admits(&self, key: &Key) -> bool {
        let own = self.waiting.get(key).copied().unwrap_or_default();
        own < MAX_PENDING && (self.priority != Priority::Detail || self.len_of(namespace_of(key)) < MAX_DETAILS)
    }

    fn len_of(&self, namespace: &str) -> usize {
        self.pending.iter().find(|(waiting, _)| waiting == namespace).map_or(0, |(_, own)| own.len())
    }

    /// Lets an Event wait until it is written, which is not before a time.
    pub(super) fn push(&mut self, identity: AggregationKey, not_before: Instant) {
        *self.waiting.entry(identity.key.clone()).or_default() += 1;
        let namespace = namespace_of(&identity.key);
        let entry = (identity.clone(), not_before);
        if let Some((_, waiting)) = self.pending.iter_mut().find(|(waiting, _)| waiting == namespace) {
            waiting.push_back(entry);
        } else {
            self.pending.push_back((namespace.to_owned(), [entry].into()));
        }
    }

    /// Takes the next Event that may be written now.
    pub(super) fn take(&mut self, now: Instant) -> Option<AggregationKey> {
        // Called for every new Event: without a token, the waiting ones are not searched.
        if self.is_empty() || !self.altogether.refill(now).has_token() {
            return None;
        }
        for _ in 0..self.pending.len() {
            let (namespace, mut waiting) = self.pending.pop_front()?;
            let found = self.first_of(&mut waiting, now);
            if !waiting.is_empty() {
                self.pending.push_back((namespace, waiting));
            }
            let Some(identity) = found else { continue };
            self.altogether.take();
            self.waits_no_longer(&identity.key);
            return Some(identity);
        }
        None
    }

    /// The first of those that wait whose object may be written about.
    fn first_of(&mut self, waiting: &mut VecDeque<(AggregationKey, Instant)>, now: Instant) -> Option<AggregationKey> {
        for at in 0..waiting.len() {
            let (identity, not_before) = waiting.get(at)?;
            if *not_before > now {
                continue;
            }
            let key = &identity.key;
            let per_object = self.per_object();
            let bucket = self.buckets.entry(key.clone()).or_insert(per_object);
            if !bucket.refill(now).has_token() {
                continue;
            }
            bucket.take();
            let newest = || waiting.iter().rposition(|(other, _)| other.key == *key);
            let is_newest_first = matches!(self.priority, Priority::Failure | Priority::State);
            let at = if is_newest_first { newest().unwrap_or(at) } else { at };
            return waiting.remove(at).map(|(identity, _)| identity);
        }
        None
    }

    /// Takes the newest Event of the namespace with the most, if that has more than `namespace`, or none is named.
    pub(super) fn drop_of_largest(&mut self, namespace: Option<&str>) -> Option<AggregationKey> {
        let own = namespace.map(|namespace| self.len_of(namespace));
        let (_, largest) = self.pending.iter_mut().max_by_key(|(_, waiting)| waiting.len())?;
        if own.is_some_and(|own| own >= largest.len()) {
            return None;
        }
        let (identity, _) = largest.pop_back()?;
        self.pending.retain(|(_, waiting)| !waiting.is_empty());
        self.waits_no_longer(&identity.key);
        Some(identity)
    }

    fn waits_no_longer(&mut self, key: &Key) {
        if let Some(waiting) = self.waiting.get_mut(key) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(key);
            }
        }
    }

    /// Forgets buckets that are full.
    pub(super) fn forget(&mut self, now: Instant) {
        self.buckets.retain(|_, bucket| !bucket.refill(now).is_full());
    }
}

#[cfg(test)]
impl EventQueue {
    pub(super) fn buckets(&mut self) -> &mut HashMap<Key, Bucket> {
        &mut self.buckets
    }

    pub(super) fn waiting(&self) -> &HashMap<Key, usize> {
        &self.waiting
    }
}

pub(super) fn namespace_of(key: &Key) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}
