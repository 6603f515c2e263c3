//! The shares of namespaces and subscribers in the capacity for waiting events. If subscribers of a namespace accept no
//! events, the namespace fills only its own share and leaves space for others.
//!
//! Invariant: a namespace holds less than the free space, so other namespaces always have space. Invariant: a
//! subscriber that fills its share leaves space for other subscribers of its namespace, if no other namespace holds
//! events.
//!
//! Not here: storage of events. An event counts once for each subscriber that waits for it.

use std::ops::Add;

/// The share of one subscriber is the capacity divided by this number.
const PARTS: u8 = 4;

/// The number of waiting events, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) events: usize,
    pub(super) bytes: u64,
}

impl Held {
    pub(super) fn without(self, other: Self) -> Self {
        Self { events: self.events.saturating_sub(other.events), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

impl Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { events: self.events.saturating_add(other.events), bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// Whether a further event may be stored for a subscriber. `capacity` is the total capacity. `subscriber`, `namespace`
/// and `all` are the amounts that the subscriber, its namespace and all namespaces already use.
pub(super) fn has_room(capacity: Held, subscriber: Held, namespace: Held, all: Held) -> bool {
    let free = capacity.without(all);
    subscriber.events < capacity.events / usize::from(PARTS)
        && subscriber.bytes < capacity.bytes / u64::from(PARTS)
        && namespace.events < free.events
        && namespace.bytes < free.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Held = Held { events: 1000, bytes: 1_000_000 };

    /// Returns the amounts that namespaces store if they fill their shares one after the other, with this many
    /// subscribers each.
    fn filled(namespaces: usize, subscribers: usize) -> Vec<usize> {
        let one = Held { events: 1, bytes: 1000 };
        let mut all = Held::default();
        let fill = |_| {
            let mut namespace = Held::default();
            for _ in 0..subscribers {
                let mut subscriber = Held::default();
                while has_room(CAPACITY, subscriber, namespace, all) {
                    (subscriber, namespace, all) = (subscriber + one, namespace + one, all + one);
                }
            }
            namespace.events
        };
        (0..namespaces).map(fill).collect()
    }

    #[test]
    fn a_namespace_leaves_room_for_the_next_one_however_many_subscribers_it_has() {
        assert_eq!(filled(4, 1), [250, 250, 250, 125]);
        assert_eq!(filled(4, 100), [500, 250, 125, 63]);
        assert!(filled(9, 100).iter().all(|held| *held > 0));
    }

    #[test]
    fn a_subscriber_leaves_room_for_others_of_its_namespace() {
        assert_eq!((filled(1, 1), filled(1, 2), filled(1, 3)), (vec![250], vec![500], vec![500]));
    }

    #[test]
    fn few_large_events_count_as_many_small_ones() {
        let large = Held { events: 1, bytes: 500_000 };
        assert!(!has_room(CAPACITY, large, large, large));
        assert!(has_room(CAPACITY, Held::default(), Held::default(), large));
    }
}
