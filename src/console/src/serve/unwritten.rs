//! The messages of writes and deletions that failed. A write without a response may have been carried out.

use super::watched::said;
use mainstay_cluster::Error;

/// Returns why nothing was changed, or that a change without a response may have been written.
pub(super) fn unwritten(error: &Error) -> String {
    unwritten_because(error, &said(error))
}

/// Same as `unwritten`, with this reason in place of that of the API server.
pub(super) fn unwritten_because(error: &Error, why: &str) -> String {
    if error.is_outcome_unknown() {
        return format!("The change may have been written. Open the object again to check it: {why}");
    }
    nothing_changed(why)
}

/// Returns the message of a change that was not sent.
pub(super) fn nothing_changed(why: &str) -> String {
    format!("Nothing was changed: {why}")
}

/// Returns why nothing was deleted, or that a deletion without a response may have been carried out.
pub(super) fn undeleted(error: &Error) -> String {
    if error.is_outcome_unknown() {
        return format!("The object may have been deleted. Open it again to check it: {}", said(error));
    }
    nothing_deleted(&said(error))
}

/// Returns the message of a deletion that was not sent.
pub(super) fn nothing_deleted(why: &str) -> String {
    format!("Nothing was deleted: {why}")
}

#[cfg(test)]
mod tests {
    use std::io;

    use mainstay_cluster::{Attempt, Cause, Target};

    use super::*;

    #[test]
    fn a_write_without_a_response_may_have_been_carried_out() {
        let error = |cause: Cause| Error {
            attempt: Attempt::Patch,
            subject: Box::new(Target::Cluster),
            cause: Box::new(cause),
        };
        let broken = error(Cause::Unreachable(Box::new(io::Error::other("reset"))));
        for text in [unwritten(&broken), undeleted(&broken)] {
            assert!(text.contains("may have been") && !text.contains("Nothing was"), "{text}");
        }
        let hidden = unwritten_because(&broken, "hidden");
        assert!(hidden.contains("may have been") && hidden.ends_with(": hidden"), "{hidden}");
        let unsent = error(Cause::Credentials);
        assert!(unwritten(&unsent).starts_with("Nothing was changed: "));
        assert!(undeleted(&unsent).starts_with("Nothing was deleted: "));
    }
}
