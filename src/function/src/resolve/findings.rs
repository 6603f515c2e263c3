//! Collects violations and warnings.

use std::fmt;

use crate::violation::Violation;
use mainstay_api::EventReason;
use mainstay_api::events::Reason;

/// A problem that does not prevent the Function from working.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Reason of the Event.
    pub reason: EventReason,
    /// The problem, and how the problem is handled.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// Maximum number of warnings. Each warning is emitted as an Event, and a Function can contain many duplicate
/// variables.
const MAX_WARNINGS: usize = 20;

/// Violations and warnings found so far.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) violations: Vec<Violation>,
    pub(super) warnings: Vec<Warning>,
}

impl Findings {
    pub(super) fn wrong(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(super) fn warn(&mut self, reason: Reason, message: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(Warning { reason: reason.into(), message });
        }
    }
}
