//! What an owner asks for all of its objects.

use crate::api::DriftPolicy;

/// What applies to all objects of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What to do about drift.
    pub drift: DriftPolicy,
    /// Both loops are stopped.
    pub suspended: bool,
}
