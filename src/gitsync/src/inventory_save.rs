//! The time of the saves of an inventory outside of attempts.
//!
//! Invariant: two such saves are at least [`SAVE_EVERY`] apart.
//!
//! Not here: the save (`inventory`).

use std::time::{Duration, Instant};

/// Minimum time between two inventory saves outside of attempts. An inventory grows with the number of objects.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// When the inventory may be saved outside of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum InventorySave {
    /// Immediately.
    #[default]
    Free,
    /// At this time or later. There is no change to save yet.
    NotBefore(Instant),
    /// A change was postponed to this time.
    Owed(Instant),
}

impl InventorySave {
    /// Returns the time of a postponed save.
    pub(super) fn owed(self) -> Option<Instant> {
        match self {
            Self::Owed(at) => Some(at),
            Self::Free | Self::NotBefore(_) => None,
        }
    }

    /// Records that there is no change to save.
    pub(super) fn settle(&mut self) {
        if let Self::Owed(at) = *self {
            *self = Self::NotBefore(at);
        }
    }

    /// Returns whether a change may be saved at `now`. Otherwise, its save is postponed.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        match *self {
            Self::NotBefore(at) | Self::Owed(at) if at > now => {
                *self = Self::Owed(at);
                false
            }
            Self::Free | Self::NotBefore(_) | Self::Owed(_) => {
                *self = Self::NotBefore(now + SAVE_EVERY);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_is_postponed_until_enough_time_has_passed() {
        let (start, mut save) = (Instant::now(), InventorySave::default());
        assert!(save.begin(start));
        assert_eq!(save.owed(), None);
        assert!(!save.begin(start + SAVE_EVERY / 2));
        assert_eq!(save.owed(), Some(start + SAVE_EVERY));
        save.settle();
        assert_eq!(save, InventorySave::NotBefore(start + SAVE_EVERY), "an attempt has saved the change");
        assert!(!save.begin(start + SAVE_EVERY / 2));
        assert!(save.begin(start + SAVE_EVERY));
        assert_eq!(save, InventorySave::NotBefore(start + SAVE_EVERY * 2));
    }
}
