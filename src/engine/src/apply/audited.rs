//! Outcomes of audits, and their counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::load::ServerLoad;
use mainstay_object::Owner;

/// The outcome of an audit.
#[derive(Clone, Debug)]
pub(crate) enum Audited {
    /// The object is in the state of its last apply.
    Confirmed,
    /// The object drifted and no watch event had shown it. The drift loop reverts or reports it.
    Different,
    /// The server rejects the dry run or gives a different response each time.
    Refused {
        /// The owner of the object.
        owner: Owner,
        /// The cause, redacted.
        cause: String,
    },
    /// The server is overloaded.
    Unanswered(ServerLoad),
    /// No result: the object is being written, is exempt from reverts, or changes all the time.
    Passed,
}

/// Counts of audits since the start.
#[derive(Debug, Default)]
pub struct AuditCounts {
    confirmed: AtomicU64,
    different: AtomicU64,
    refused: AtomicU64,
    unanswered: AtomicU64,
}

impl AuditCounts {
    /// Returns the counts with their metric labels.
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
