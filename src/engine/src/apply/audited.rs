//! What became of an audit, and of all of them.

use std::sync::atomic::{AtomicU64, Ordering};

use super::load::ServerLoad;
use mainstay_object::Owner;

/// What became of an audit.
#[derive(Clone, Debug)]
pub(crate) enum Audited {
    /// It is as it is known.
    Confirmed,
    /// It is not, and no watch had shown it. It is reverted or reported now.
    Different,
    /// The server refuses the dry run, or answers it otherwise each time, for this cause.
    Refused {
        /// For whom the object is managed.
        owner: Owner,
        /// Why, redacted.
        cause: String,
    },
    /// The server has too much to do.
    Unanswered(ServerLoad),
    /// It is busy, left alone, or changed all the time.
    Passed,
}

/// What became of all audits.
#[derive(Debug, Default)]
pub struct AuditCounts {
    confirmed: AtomicU64,
    different: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

impl AuditCounts {
    /// How many have ended so, by the word for it.
    pub fn all(&self) -> [(&'static str, u64); 4] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("confirmed", read(&self.confirmed)),
            ("different", read(&self.different)),
            ("refused", read(&self.refused)),
            ("unanswered", read(&self.unanswered)),
        ]
    }

    pub(super) fn add(&self, audited: &Audited) {
        let count = match audited {
            Audited::Confirmed => &self.confirmed,
            Audited::Different => &self.different,
            Audited::Refused { .. } => &self.refused,
            Audited::Unanswered(_) => &self.unanswered,
            Audited::Passed => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}
