//! What can go wrong while a source is fetched and its installation is prepared.
//!
//! Invariant: no text holds a credential; names and words from a repository are shown without control characters.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::api::build::{BuildFailure, FailureReason, LONGEST_MESSAGE};
use crate::failure::{Class, chain};
use crate::source::{self, Commit, Fault, SshFault};

/// An attempt that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The remote, or what came from it.
    #[error(transparent)]
    Git(#[from] source::Error),
    /// The recorded commit is no longer to be had.
    #[error("commit {commit} is no longer to be had: {why}; the reference is resolved again")]
    BranchMoved {
        /// The recorded commit.
        commit: Commit,
        /// What was found instead.
        why: &'static str,
    },
    /// Only the user can put it right.
    #[error("{0}")]
    Found(#[from] Finding),
    /// A file that was mounted or fetched.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
    /// The workspace.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}

/// Something in the source that only the user can put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    reason: FailureReason,
    text: String,
}

impl Finding {
    /// The source is not what the Function says.
    pub(in crate::build) fn source(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::SourceInvalid, text: text.into() }
    }

    /// The dependency file cannot be used.
    pub(in crate::build) fn dependencies(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::DependencyInvalid, text: text.into() }
    }

    /// The source is larger than an image may be.
    pub(in crate::build) fn too_large(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::TooLarge, text: text.into() }
    }

    /// What is wrong and what to do.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Finding {}

impl Error {
    /// What the container reports.
    pub fn failure(&self) -> BuildFailure {
        let (reason, retry) = match self {
            Self::Git(error) => (reason(error), error.class() != Class::Invalid),
            Self::BranchMoved { .. } => (FailureReason::BranchMoved, true),
            Self::Found(finding) => (finding.reason, false),
            Self::Write { cause, .. } if is_full(cause) => (FailureReason::TooLarge, false),
            Self::Read { .. } | Self::Write { .. } => (FailureReason::Internal, true),
        };
        BuildFailure { reason, message: message(&chain(self)), retry }
    }
}

fn reason(error: &source::Error) -> FailureReason {
    match error.fault() {
        Fault::Denied { .. }
        | Fault::WebPage
        | Fault::MissingSecret
        | Fault::MissingKey { .. }
        | Fault::Ssh(
            SshFault::Refused { .. }
            | SshFault::MissingPrivateKey
            | SshFault::Unreadable { .. }
            | SshFault::MissingPassphrase
            | SshFault::WrongPassphrase
            | SshFault::HostKeyUnknown { .. }
            | SshFault::HostKeyChanged { .. }
            | SshFault::HostKeyRevoked { .. },
        ) => FailureReason::GitAuthorization,
        Fault::TooLarge { .. } => FailureReason::TooLarge,
        _ if matches!(error, source::Error::Authenticate { .. }) => FailureReason::GitAuthorization,
        _ if matches!(error, source::Error::Parse { .. }) => FailureReason::SourceInvalid,
        _ => FailureReason::Git,
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The text as a message: without control characters, and no longer than one may be.
fn message(text: &str) -> String {
    let mut message: String = text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_cannot_drive_a_terminal() {
        assert_eq!(message("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
        assert!(message(&"ß".repeat(LONGEST_MESSAGE)).len() <= LONGEST_MESSAGE);
    }

    #[test]
    fn a_full_disk_is_the_source_being_too_large() {
        let cause = io::Error::from(io::ErrorKind::StorageFull);
        let failure = Error::Write { path: "/workspace/src/a".into(), cause }.failure();
        assert_eq!((failure.reason, failure.retry), (FailureReason::TooLarge, false));
    }
}
