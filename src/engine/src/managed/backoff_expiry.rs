//! The times at which revert backoffs may expire, so that no loop walks all objects with a backoff.
//!
//! Invariant: every object with a revert backoff is listed, with a time no later than its next change.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_object::Key;

/// Objects with a revert backoff, by the time on the loop's clock at which they are checked.
#[derive(Debug, Default)]
pub(crate) struct BackoffExpiry(BTreeSet<(Duration, Key)>);

impl BackoffExpiry {
    /// Adds an object that must be checked at this time on the loop's clock, in seconds.
    pub(crate) fn expect(&mut self, key: &Key, at: f64) {
        let at = Duration::try_from_secs_f64(at).unwrap_or_default();
        self.0.insert((at, key.clone()));
    }

    /// Removes and returns the next object that is due.
    pub(crate) fn due(&mut self, clock: f64) -> Option<Key> {
        let (at, _) = self.0.first()?;
        if at.as_secs_f64() > clock { None } else { self.0.pop_first().map(|(_, key)| key) }
    }
}
