//! The order of deliveries to a subscriber: none, or that of the events of each source.
//!
//! In the journal, each source has a lane. A lane delivers one event at a time, and the next one only after that event is
//! delivered or is a dead letter. So an event that is retried holds the events of its source and no others.
//!
//! On NATS, any number of processes deliver, so the server keeps the order. The source decides the partition of an event,
//! and the partition is part of its subject: `mainstay.events.team.partition.7.trigger.mine`. Each partition has a consumer with at
//! most one unacknowledged message. A message that waits for a retry stays unacknowledged, so it holds its partition.
//! After a crash, the server delivers that message first.
//!
//! An event keeps the subject that it got when it was accepted, and all consumers of a subscriber are served, whatever its
//! annotation is now. So a change of the annotation loses no event. The order is that of the events that are accepted
//! after the change.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use mainstay_api::names::ORDERING;

/// Number of partitions of a subscriber on NATS. A different number would change the order of waiting events.
pub(super) const PARTITIONS: u8 = 16;

/// The order of deliveries to a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Ordering {
    /// Deliveries begin in the order in which events came, and run concurrently.
    #[default]
    None,
    /// Events of one source are delivered one after the other.
    Source,
}

impl Ordering {
    /// Reads the annotation of an object.
    pub(super) fn read(object: &Value) -> Result<Self, String> {
        match &object["metadata"]["annotations"][ORDERING] {
            Value::Null => Ok(Self::None),
            Value::String(text) if text == "source" => Ok(Self::Source),
            _ => Err(format!("metadata.annotations[{ORDERING}]: must be \"source\", or absent")),
        }
    }
}

/// A short form of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceDigest([u8; 16]);

impl SourceDigest {
    pub(super) fn of(source: &str) -> Self {
        let (digest, mut short) = (Sha256::digest(source), [0; 16]);
        short.copy_from_slice(&digest[..16]);
        Self(short)
    }

    /// Returns the partition of the source.
    pub(super) fn partition(self) -> u8 {
        self.0[0] % PARTITIONS
    }
}

/// The lane of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// A lane of this event alone, by its number.
    Own(u64),
    /// The lane of a source.
    Source(SourceDigest),
}

/// The events that wait for a delivery, by lane.
///
/// Invariant: at most one event of a lane is taken. Invariant: events of a lane are taken in the order of their numbers.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    waiting: HashMap<Lane, VecDeque<(u64, T)>>,
    /// The lanes with a taken event.
    held: HashSet<Lane>,
    /// The other lanes, by the number of their first event.
    ready: BTreeMap<u64, Lane>,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), held: HashSet::new(), ready: BTreeMap::new() }
    }
}

impl<T> Lanes<T> {
    /// Adds an event after all events of its lane.
    pub(super) fn push(&mut self, lane: Lane, number: u64, event: T) {
        let events = self.waiting.entry(lane).or_default();
        if events.is_empty() && !self.held.contains(&lane) {
            self.ready.insert(number, lane);
        }
        events.push_back((number, event));
    }

    /// Takes the first event of all lanes without a taken event.
    pub(super) fn take(&mut self) -> Option<(Lane, T)> {
        let (_, lane) = self.ready.pop_first()?;
        let events = self.waiting.get_mut(&lane)?;
        let (_, event) = events.pop_front()?;
        if events.is_empty() {
            self.waiting.remove(&lane);
        }
        self.held.insert(lane);
        Some((lane, event))
    }

    /// Returns a taken event, as the first one of its lane.
    pub(super) fn put_back(&mut self, lane: Lane, number: u64, event: T) {
        self.waiting.entry(lane).or_default().push_front((number, event));
        self.end(lane);
    }

    /// Ends the event that was taken of a lane.
    pub(super) fn end(&mut self, lane: Lane) {
        self.held.remove(&lane);
        if let Some((number, _)) = self.waiting.get(&lane).and_then(VecDeque::front) {
            self.ready.insert(*number, lane);
        }
    }

    /// Removes the further events of a lane with a taken event.
    pub(super) fn forget(&mut self, lane: Lane) {
        self.waiting.remove(&lane);
    }

    /// Removes all events that are not taken.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.ready.clear();
    }

    /// Returns all events that are not taken.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().flatten().map(|(_, event)| event)
    }

    /// Returns the number of events that can be taken now.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A worker, with a list of events. The first event of each source can be delivered.
    #[derive(Default)]
    struct Model {
        lanes: Lanes<(u64, u8)>,
        number: u64,
        left: Vec<(u64, u8)>,
        flying: Vec<(u64, u8)>,
        failed: Vec<(u64, u8)>,
    }

    fn lane(source: u8) -> Lane {
        Lane::Source(SourceDigest::of(&source.to_string()))
    }

    impl Model {
        fn step(&mut self, random: &mut fastrand::Rng) {
            match random.u8(0..6) {
                0 | 1 => {
                    let event = (self.number + 1, random.u8(0..4));
                    self.number += 1;
                    self.left.push(event);
                    self.lanes.push(lane(event.1), event.0, event);
                }
                2 => {
                    let is_held =
                        |source: u8| self.flying.iter().chain(&self.failed).any(|(_, other)| *other == source);
                    let expected = self.left.iter().find(|(_, source)| !is_held(*source)).copied();
                    assert_eq!(self.lanes.take().map(|(_, event)| event), expected);
                    self.flying.extend(expected);
                }
                3 if !self.flying.is_empty() => {
                    let (done, source) = self.flying.swap_remove(random.usize(..self.flying.len()));
                    self.left.retain(|(number, _)| *number != done);
                    self.lanes.end(lane(source));
                }
                4 if !self.flying.is_empty() => {
                    self.failed.push(self.flying.swap_remove(random.usize(..self.flying.len())));
                }
                5 if !self.failed.is_empty() => {
                    let (again, source) = self.failed.swap_remove(random.usize(..self.failed.len()));
                    self.lanes.put_back(lane(source), again, (again, source));
                }
                _ => {}
            }
            let sources: HashSet<u8> = self.left.iter().map(|(_, source)| *source).collect();
            assert_eq!(self.lanes.ready(), sources.len() - self.flying.len() - self.failed.len());
        }
    }

    #[test]
    fn each_source_is_delivered_in_order_and_holds_no_other() {
        for seed in 0..300 {
            let (mut model, mut random) = (Model::default(), fastrand::Rng::with_seed(seed));
            for _ in 0..300 {
                model.step(&mut random);
            }
        }
    }

    #[test]
    fn events_without_an_order_have_lanes_of_their_own() {
        let mut lanes = Lanes::default();
        for number in 1..=3 {
            lanes.push(Lane::Own(number), number, number);
        }
        let (lane, first) = lanes.take().unwrap();
        assert_eq!((first, lanes.take().unwrap().1), (1, 2));
        lanes.put_back(lane, 1, 1);
        assert_eq!([lanes.take().unwrap().1, lanes.take().unwrap().1], [1, 3]);
    }

    #[test]
    fn a_copy_of_a_taken_event_is_removed_and_others_stay() {
        let mut lanes = Lanes::default();
        for (number, copy) in [(1, "first"), (2, "other"), (1, "copy")] {
            lanes.push(Lane::Own(number), number, copy);
        }
        let (lane, first) = lanes.take().unwrap();
        lanes.push(lane, 1, "second copy");
        assert_eq!((first, lanes.ready(), lanes.all().count()), ("first", 1, 3));
        lanes.forget(lane);
        lanes.end(lane);
        assert_eq!((lanes.take().unwrap().1, lanes.take()), ("other", None));
    }

    #[test]
    fn events_that_are_not_taken_are_removed_and_the_lane_of_a_taken_one_continues() {
        let mut lanes = Lanes::default();
        for number in 1..=3 {
            lanes.push(Lane::Own(number), number, number);
        }
        let (lane, _) = lanes.take().unwrap();
        lanes.clear();
        assert_eq!((lanes.ready(), lanes.all().count(), lanes.take()), (0, 0, None));
        lanes.push(lane, 1, 1);
        assert_eq!(lanes.ready(), 0, "the first copy is in flight");
        lanes.put_back(lane, 1, 1);
        assert_eq!(lanes.ready(), 1);
    }

    #[test]
    fn the_annotation_is_source_or_absent() {
        let read = |value: Value| Ordering::read(&json!({"metadata": {"annotations": {ORDERING: value}}}));
        assert_eq!(Ordering::read(&json!({})), Ok(Ordering::None));
        assert_eq!((read(Value::Null), read(json!("source"))), (Ok(Ordering::None), Ok(Ordering::Source)));
        for value in [json!("Source"), json!(""), json!("true"), json!(1)] {
            assert!(read(value).unwrap_err().contains("must be \"source\""));
        }
    }

    #[test]
    fn sources_have_a_fixed_partition() {
        let partitions = ["shop", "crm", "/süd", ""].map(|source| SourceDigest::of(source).partition());
        assert!(partitions.iter().all(|partition| *partition < PARTITIONS));
        // Events that wait on NATS keep their partition after an upgrade.
        assert_eq!(SourceDigest::of("").partition(), 0xe3 % 16);
    }
}
