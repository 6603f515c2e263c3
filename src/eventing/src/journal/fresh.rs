//! Recent events in memory, so that most deliveries read nothing from disk while the subscribers are prompt.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::cloud_event::CloudEvent;
use super::tables::Kept;

/// Maximum memory of all events in bytes.
const MOST: usize = 4 << 20;
/// Memory of an event in addition to its contents, and of each of its attributes, in bytes.
const EACH: usize = 512;
const ATTRIBUTE: usize = 192;
/// Age in milliseconds at which an event makes room for others. Its subscriber is slow, and reads it from disk.
const OLD: u64 = 5_000;

/// The events by number.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    events: BTreeMap<u64, Entry>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    event: Arc<CloudEvent>,
    /// Time of publication in milliseconds since 1970.
    published: i64,
    bytes: usize,
}

impl Fresh {
    /// Keeps an event if there is room. `attributes` is the length of its attributes in JSON. The older events stay: they are
    /// delivered first.
    pub(super) fn insert(&mut self, number: u64, event: &Arc<CloudEvent>, attributes: usize, published: i64) {
        let bytes = event.data.len() + attributes + event.attributes.len() * ATTRIBUTE + EACH;
        while self.bytes + bytes > MOST {
            let Some((oldest, _)) =
                self.events.first_key_value().filter(|(_, one)| published.abs_diff(one.published) > OLD)
            else {
                return;
            };
            let oldest = *oldest;
            self.remove(oldest);
        }
        let entry = Entry { event: Arc::clone(event), published, bytes };
        if let Some(former) = self.events.insert(number, entry) {
            self.bytes -= former.bytes;
        }
        self.bytes += bytes;
    }

    pub(super) fn get(&self, number: u64) -> Option<Kept> {
        let one = self.events.get(&number)?;
        let published = Timestamp::from_millisecond(one.published).unwrap_or(Timestamp::UNIX_EPOCH);
        Some(Kept { event: Arc::clone(&one.event), published })
    }

    /// Forgets an event that no subscriber waits for.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(one) = self.events.remove(&number) {
            self.bytes -= one.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: usize) -> Arc<CloudEvent> {
        Arc::new(CloudEvent { data: "x".repeat(bytes).into(), ..CloudEvent::default() })
    }

    #[test]
    fn a_full_memory_takes_further_events_once_others_left_or_are_old() {
        let (mut fresh, large) = (Fresh::default(), of(MOST / 2 - EACH));
        let numbers = |fresh: &Fresh| fresh.events.keys().copied().collect::<Vec<_>>();
        for number in 1..=3 {
            fresh.insert(number, &large, 0, 1_000);
        }
        assert_eq!((numbers(&fresh), fresh.bytes), (vec![1, 2], MOST));
        fresh.remove(1);
        fresh.insert(4, &large, 0, 2_000);
        assert_eq!(numbers(&fresh), [2, 4]);
        fresh.insert(5, &large, 0, 1_001 + OLD.cast_signed());
        assert_eq!((numbers(&fresh), fresh.bytes), (vec![4, 5], MOST));
        assert_eq!(fresh.get(4).unwrap().published.as_millisecond(), 2_000);
        assert!(fresh.get(2).is_none());
        fresh.insert(6, &of(MOST), 0, 1_001 + OLD.cast_signed());
        assert_eq!(numbers(&fresh), [4, 5], "an event that is too large displaces no recent one");
    }

    #[test]
    fn small_attributes_count_with_their_memory() {
        let attributes = (0..64).map(|number| (format!("a{number}"), "1".to_owned())).collect();
        let event = Arc::new(CloudEvent { attributes, ..CloudEvent::default() });
        let mut fresh = Fresh::default();
        for number in 0..1000 {
            fresh.insert(number, &event, 640, 1_000);
        }
        assert!(fresh.events.len() < 350, "{}", fresh.events.len());
    }
}
