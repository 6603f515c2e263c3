//! Remembers published events for five minutes, so that an event published twice is delivered once.

use std::collections::{HashSet, VecDeque};

use sha2::{Digest as _, Sha256};

use super::super::subscriber::SubscriberId;

/// How long an event is remembered, in milliseconds.
pub(super) const MEMORY: i64 = 5 * 60 * 1000;
/// Maximum number of remembered pairs of event and subscriber. The oldest are forgotten first. Each pair takes about 60
/// bytes.
const MOST: usize = 200_000;

/// A digest of source, ID and subscriber of an event.
type Name = [u8; 16];

/// The remembered events.
#[derive(Debug, Default)]
pub(super) struct Recent {
    known: HashSet<Name>,
    order: VecDeque<(i64, Name)>,
}

impl Recent {
    /// Remembers an event for a subscriber. Returns whether it is new.
    pub(super) fn insert(&mut self, to: &str, source: &str, id: &str, now: i64) -> bool {
        while let Some((_, oldest)) =
            self.order.front().filter(|(at, _)| now - at >= MEMORY || self.order.len() >= MOST).copied()
        {
            self.order.pop_front();
            self.known.remove(&oldest);
        }
        let name = name(to, source, id);
        let is_new = self.known.insert(name);
        if is_new {
            self.order.push_back((now, name));
        }
        is_new
    }

    /// Forgets an event that was not stored.
    pub(super) fn forget(&mut self, to: &SubscriberId, source: &str, id: &str) {
        let name = name(to.as_str(), source, id);
        self.known.remove(&name);
        self.order.retain(|(_, known)| *known != name);
    }
}

fn name(to: &str, source: &str, id: &str) -> Name {
    let mut digest = Sha256::new();
    for text in [to, source, id] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    let mut name = Name::default();
    name.copy_from_slice(&digest.finalize()[..16]);
    name
}

#[cfg(test)]
mod tests {
    use super::super::super::subscriber::SubscriberKind;
    use super::*;

    #[test]
    fn an_event_is_new_once_within_five_minutes_for_each_subscriber() {
        let mut recent = Recent::default();
        assert!(recent.insert("a", "s", "1", 0));
        assert!(!recent.insert("a", "s", "1", MEMORY - 1));
        assert!(recent.insert("b", "s", "1", 0) && recent.insert("a", "s1", "", 0));
        assert!(recent.insert("a", "s", "1", MEMORY));
    }

    #[test]
    fn a_forgotten_event_is_new_again() {
        let (mut recent, id) = (Recent::default(), SubscriberId::new(SubscriberKind::Trigger, "a", "b"));
        assert!(recent.insert(id.as_str(), "s", "1", 0));
        recent.forget(&id, "s", "1");
        assert!(recent.insert(id.as_str(), "s", "1", 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        for number in 0..MOST + 10 {
            assert!(recent.insert("a", "s", &number.to_string(), 0));
        }
        assert_eq!((recent.order.len(), recent.known.len()), (MOST, MOST));
    }
}
