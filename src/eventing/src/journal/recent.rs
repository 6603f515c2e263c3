//! Remembers published events for five minutes, so that an event published twice is delivered once.

use std::collections::{HashSet, VecDeque};

use sha2::{Digest as _, Sha256};

/// How long an event is remembered, in milliseconds.
pub(super) const MEMORY: i64 = 5 * 60 * 1000;
/// Maximum number of remembered pairs of event and subscriber. The oldest are forgotten first. Each pair takes about 60
/// bytes.
const MOST: usize = 200_000;

/// A digest of source, ID and subscriber of an event.
pub(super) type Name = u128;

/// Returns the name of an event for a subscriber.
pub(super) fn name(to: &str, source: &str, id: &str) -> Name {
    let mut digest = Sha256::new();
    for text in [to, source, id] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    let digest = digest.finalize();
    digest[..16].iter().fold(0, |name, byte| name << 8 | u128::from(*byte))
}

/// The remembered events.
#[derive(Debug, Default)]
pub(super) struct Recent {
    known: HashSet<Name>,
    order: VecDeque<(i64, Name)>,
}

impl Recent {
    /// Remembers an event. Returns whether it is new.
    pub(super) fn insert(&mut self, name: Name, now: i64) -> bool {
        while let Some((_, oldest)) =
            self.order.front().filter(|(at, _)| now - at >= MEMORY || self.order.len() >= MOST).copied()
        {
            self.order.pop_front();
            self.known.remove(&oldest);
        }
        let is_new = self.known.insert(name);
        if is_new {
            self.order.push_back((now, name));
        }
        is_new
    }

    /// Forgets an event that was not stored.
    pub(super) fn forget(&mut self, name: Name) {
        self.known.remove(&name);
        self.order.retain(|(_, known)| *known != name);
    }

    /// Returns the time of the oldest remembered event.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.order.front().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_new_once_within_five_minutes_for_each_subscriber() {
        let mut recent = Recent::default();
        let mut insert = |to: &str, source: &str, id: &str, now| recent.insert(name(to, source, id), now);
        assert!(insert("a", "s", "1", 0));
        assert!(!insert("a", "s", "1", MEMORY - 1));
        assert!(insert("b", "s", "1", 0) && insert("a", "s1", "", 0));
        assert!(insert("a", "s", "1", MEMORY));
    }

    #[test]
    fn a_forgotten_event_is_new_again() {
        let mut recent = Recent::default();
        assert!(recent.insert(1, 0));
        recent.forget(1);
        assert!(recent.insert(1, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        for number in 0..MOST + 10 {
            assert!(recent.insert(number as Name, 0));
        }
        assert_eq!((recent.order.len(), recent.known.len()), (MOST, MOST));
    }
}
