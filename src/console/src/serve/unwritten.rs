//! The message of a write that failed.

use super::watched::said;
use mainstay_cluster::Error;

/// Returns why nothing was changed, or that a change without a response may have been written.
pub(super) fn unwritten(error: &Error) -> String {
    if error.is_outcome_unknown() {
        return format!(
            "The change may have been written, because no response arrived. Open the object again: {}",
            said(error)
        );
    }
    nothing(&said(error))
}

/// Returns the message of a change that was not sent.
pub(super) fn nothing(why: &str) -> String {
    format!("Nothing was changed: {why}")
}
