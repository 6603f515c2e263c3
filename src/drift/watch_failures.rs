//! What keeps the watch of a kind from working.

use crate::cluster::{Cause, WatchEvent};

/// Failed attempts in a row to watch a kind after which its owners' statuses say so: what passes by itself has passed by
/// then.
const REMARKABLE_FAILURES: u32 = 3;

/// Attempts in a row that the server refused or did not answer, and the last cause.
#[derive(Debug, Default)]
pub(super) struct WatchFailures {
    count: u32,
    why: String,
}

impl WatchFailures {
    /// Takes in an event of the watch. Whether there may be something else to report than before.
    pub(super) fn update(&mut self, event: &WatchEvent) -> bool {
        match event {
            WatchEvent::Synced(_) | WatchEvent::Resumed => std::mem::take(self).remarkable().is_some(),
            // While nothing comes through, no kind is worse off than the others, and nobody could be told.
            WatchEvent::Failed(error) if matches!(&*error.cause, Cause::Unreachable(_)) => false,
            WatchEvent::Failed(error) => {
                self.count = self.count.saturating_add(1);
                self.why = crate::failure::chain(error);
                self.remarkable().is_some()
            }
            _ => false,
        }
    }

    /// What keeps the watch from working, if that is worth reporting.
    pub(super) fn remarkable(&self) -> Option<&str> {
        (self.count >= REMARKABLE_FAILURES).then_some(&*self.why)
    }
}
