//! A queue of pending Events of one priority, with its rate limits.
//!
//! Invariant: namespaces take turns, and Events of the namespace with the most pending ones are dropped first.
//! Invariant: of an object's failures and changes of state, the newest is written first. So the rate limit of the
//! object never delays the current problem in favour of an older one.
//!
//! Not here: the content of an Event, and clocks.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::event::{AggregationKey, Priority};
use super::event_bucket::Bucket;
use mainstay_object::Key;

/// Maximum number of pending Events of one object, so that other objects have space, too.
const MAX_PENDING: usize = 50;
/// Maximum number of pending Details of one namespace: about a second's worth.
const MAX_DETAILS: usize = 25;

pub(super) struct EventQueue {
    priority: Priority,
    /// Namespaces in the order of turns, with their Events and the earliest time of each write.
    pending: VecDeque<(String, VecDeque<(AggregationKey, Instant)>)>,
    /// Number of pending Events by object.
    waiting: HashMap<Key, usize>,
    buckets: HashMap<Key, Bucket>,
    altogether: Bucket,
}

impl EventQueue {
    pub(super) fn new(priority: Priority) -> Self {
        let altogether = match priority {
            Priority::Failure => Bucket::new(100.0, 50.0),
            // In a storm, these writes compete with reverts.
            Priority::State | Priority::Routine | Priority::Detail => Bucket::new(25.0, 20.0),
        };
        Self { priority, pending: VecDeque::new(), waiting: HashMap::new(), buckets: HashMap::new(), altogether }
    }

    /// The rate limit of one object.
    fn per_object(&self) -> Bucket {
        match self.priority {
            Priority::Failure | Priority::State => Bucket::new(25.0, 1.0),
            Priority::Routine | Priority::Detail => Bucket::new(25.0, 0.1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.iter().map(|(_, waiting)| waiting.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether another Event about this object may be queued.
    pub(super) fn admits(&self, key: &Key) -> bool {
        let own = self.waiting.get(key).copied().unwrap_or_default();
        own < MAX_PENDING && (self.priority != Priority::Detail || self.len_of(namespace_of(key)) < MAX_DETAILS)
    }

    fn len_of(&self, namespace: &str) -> usize {
        self.pending.iter().find(|(waiting, _)| waiting == namespace).map_or(0, |(_, own)| own.len())
    }

    /// Queues an Event. It is not written before `not_before`.
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
        // This runs for each new Event, so the queue is searched only if there is a token.
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

    /// Takes the first Event whose object has a token.
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

    /// Takes the newest Event of the namespace with the most Events, if that has more than `namespace`. Without a
    /// `namespace`, takes it in any case.
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

    /// Forgets full buckets, because they equal new ones.
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
