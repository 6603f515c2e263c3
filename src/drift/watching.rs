//! A running watch of one kind, and whether it works.
//!
//! Deliberately absent: the watch itself; that is `watch`'s.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cause, WatchEvent};

/// Failed attempts in a row to watch a kind after which its owners' statuses say so: what passes by itself has passed by
/// then.
const REMARKABLE_FAILURES: u32 = 3;

/// A running watch of one kind.
#[derive(Default)]
pub(super) struct Watching {
    pub(super) relist: Notify,
    pub(super) stop: CancellationToken,
    failures: Mutex<WatchFailures>,
}

/// What keeps a watch from working.
#[derive(Default)]
struct WatchFailures {
    /// Attempts in a row that the server refused or did not answer.
    count: u32,
    /// The last cause.
    why: String,
}

impl WatchFailures {
    fn last(&self) -> Option<&str> {
        (self.count >= REMARKABLE_FAILURES).then_some(&*self.why)
    }
}

impl Watching {
    /// Takes in whether the watch works. Whether there is now something else to say about it than before.
    pub(super) fn heard(&self, event: &WatchEvent) -> bool {
        match event {
            WatchEvent::Synced(_) | WatchEvent::Resumed => self.works(),
            // While nothing comes through, no kind is worse off than the others, and nobody could be told.
            WatchEvent::Failed(error) if matches!(&*error.cause, Cause::Unreachable(_)) => false,
            WatchEvent::Failed(error) => self.failed(crate::failure::chain(error)),
            _ => false,
        }
    }

    /// An attempt to watch failed. Whether there is now something to say about it.
    fn failed(&self, why: String) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.count = failures.count.saturating_add(1);
        failures.why = why;
        failures.count == REMARKABLE_FAILURES
    }

    /// It works. Whether there was something to say about it.
    fn works(&self) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *failures).last().is_some()
    }

    /// What keeps it from working, if that is worth telling.
    pub(super) fn failure(&self) -> Option<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).last().map(str::to_owned)
    }
}
