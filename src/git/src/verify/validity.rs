//! Until when a judgement holds.

use jiff::Timestamp;

/// The earlier of two ends, of which there may be none.
pub(crate) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
