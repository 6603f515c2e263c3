//! When the revert backoff of which object has to be looked at again: nobody walks all objects with a backoff to find the
//! few whose backoff has expired.
//!
//! Invariant: every object with a revert backoff is listed, no later than at its next change.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_object::Key;

/// Objects with a revert backoff, by the time of the loop's clock at which one of them is to be looked at.
#[derive(Debug, Default)]
pub(crate) struct BackoffExpiry(BTreeSet<(Duration, Key)>);

impl BackoffExpiry {
    /// An object is to be looked at after so many seconds of the loop's clock.
    pub(crate) fn expect(&mut self, key: &Key, at: f64) {
        let at = Duration::try_from_secs_f64(at).unwrap_or_default();
        self.0.insert((at, key.clone()));
    }

    /// The next object that is to be looked at by now.
    pub(crate) fn due(&mut self, clock: f64) -> Option<Key> {
        let (at, _) = self.0.first()?;
        if at.as_secs_f64() > clock { None } else { self.0.pop_first().map(|(_, key)| key) }
    }
}
