//! Recent events in memory, so that the deliveries of a prompt subscriber read nothing from disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::cloud_event::CloudEvent;
use super::tables::Kept;

/// Maximum memory of all events in bytes.
const MOST: usize = 4 << 20;
/// Memory of an event in addition to its contents, in bytes.
const EACH: usize = 512;
/// Age in milliseconds at which an event makes room for others. Its subscriber is slow, and reads it from disk.
const OLD: i64 = 5_000;

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
    /// Keeps an event if there is room. The older events stay: they are delivered first.
    pub(super) fn insert(&mut self, number: u64, event: &Arc<CloudEvent>, attributes: usize, published: i64) {
        // The attributes stand in JSON on disk, and one by one in memory.
        let bytes = event.data.len() + 2 * attributes + EACH;
        while self.bytes + bytes > MOST {
            let Some((oldest, _)) = self.events.first_key_value().filter(|(_, one)| published - one.published > OLD)
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
        fresh.insert(5, &large, 0, 1_001 + OLD);
        assert_eq!((numbers(&fresh), fresh.bytes), (vec![4, 5], MOST));
        assert_eq!(fresh.get(4).unwrap().published.as_millisecond(), 2_000);
        assert!(fresh.get(2).is_none());
        fresh.insert(6, &of(MOST), 0, 1_001 + OLD);
        assert_eq!(numbers(&fresh), [4, 5], "an event that is too large displaces no recent one");
    }
}
