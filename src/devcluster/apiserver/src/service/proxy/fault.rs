//! Errors of a proxy.

use crate::status::Status;

/// Returns the 503 for a pod that does not answer.
pub(super) fn unreachable(why: &str) -> Status {
    Status::new(503, "ServiceUnavailable", format!("error trying to reach service: {why}"))
}
