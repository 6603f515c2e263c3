//! Shows drift in the status while its revert waits.
//!
//! Not here: the length of the wait (`managed::revert_backoff`) and its timer (`drift`).

use std::time::Duration;

use super::Writer;
use crate::managed::drifted::Waiting;
use mainstay_object::Key;

/// Minimum wait that is shown in the status.
const REMARKABLE: Duration = Duration::from_secs(1);

impl Writer {
    /// Records that a revert or report waits. A missing object is read once, because it may have lost only its label.
    pub(crate) async fn note_waiting(&self, key: &Key, generation: u32, wait: Duration) {
        if wait < REMARKABLE {
            return;
        }
        let (now, waiting) = (self.now(), self.store().waiting(key, generation));
        let Some(Waiting { owner, desired, mut live, is_missing }) = waiting else { return };
        if is_missing && let Some(acting) = self.acting_for(&owner) {
            let found = acting.cluster().get(&desired.kind, key.namespace.as_deref(), &key.name).await;
            match found {
                Ok(None) => self.store().note_absent(key),
                Ok(found) => live = found,
                // The read failed; the revert reads the object again.
                Err(_) => {}
            }
        }
        let owner = self.store().note_waiting(key, generation, live.as_ref(), now + wait, now);
        if let Some(owner) = owner {
            self.notify(&owner);
        }
    }

    /// Records that an object has no drift.
    pub(super) fn end_drift(&self, key: &Key) {
        self.store().end_drift(key);
        self.notify_owner_of(key);
    }
}
