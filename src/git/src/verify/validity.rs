//! Expiry of verification results.

use jiff::Timestamp;

/// Returns the earlier of two optional times.
pub(crate) fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
