//! The remaining steps of an evaluation.

use super::limits::{STEPS, TEXT_STEP};

/// Number of remaining steps.
#[derive(Debug)]
pub(super) struct Steps(u32);

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// No steps remain.
    Exhausted,
    /// The problem.
    Because(String),
}

impl Halt {
    pub(super) fn because(why: impl Into<String>) -> Self {
        Self::Because(why.into())
    }
}

impl Steps {
    /// Returns the steps of one evaluation.
    pub(super) fn all() -> Self {
        Self(STEPS)
    }

    /// Returns the steps of one evaluation, but at most this number.
    pub(super) fn at_most(number: u32) -> Self {
        Self(number.min(STEPS))
    }

    /// Returns the number of remaining steps.
    pub(super) fn left(&self) -> u32 {
        self.0
    }

    /// Consumes steps.
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Halt> {
        let left = u32::try_from(steps).ok().and_then(|steps| self.0.checked_sub(steps));
        self.0 = left.unwrap_or(0);
        left.map(|_| ()).ok_or(Halt::Exhausted)
    }

    /// Consumes the steps for this many bytes of text.
    pub(super) fn spend_text(&mut self, bytes: usize) -> Result<(), Halt> {
        self.spend(bytes / TEXT_STEP + 1)
    }
}
