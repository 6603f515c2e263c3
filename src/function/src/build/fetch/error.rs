//! Errors of fetching a source and preparing its installation.
//!
//! Invariant: no message contains a credential. Names and strings from a repository appear without control characters.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::runtimes::libraries;
use mainstay_api::build::{BuildFailure, FailureReason, MAX_MESSAGE};
use mainstay_git::{Commit, Fault, SshFault};
use mainstay_object::failure::{Class, chain};
use mainstay_object::is_unprintable;

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading the remote failed, or its content is invalid.
    #[error(transparent)]
    Git(#[from] mainstay_git::Error),
    /// The recorded commit is not available, or its directory has changed.
    #[error("commit {commit} is gone: {why}; the reference is resolved again")]
    BranchMoved {
        /// The recorded commit.
        commit: Commit,
        /// Why the files at the reference do not match.
        why: &'static str,
    },
    /// The source has a problem that only the user can fix.
    #[error("{0}")]
    ResolvedRef(#[from] Finding),
    /// A mounted or fetched file could not be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The packages of the runtime server are missing.
    #[error(transparent)]
    Libraries(#[from] libraries::Error),
    /// The workspace could not be written.
    #[error("write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
}

/// A problem of the source that only the user can fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    reason: FailureReason,
    text: String,
}

impl Finding {
    /// Returns the finding for a source that does not match the Function.
    pub(in crate::build) fn source(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::SourceInvalid, text: text.into() }
    }

    /// Returns the finding for an invalid dependency file.
    pub(in crate::build) fn dependencies(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::DependencyInvalid, text: text.into() }
    }

    /// Returns the finding for a source that is too large for an image.
    pub(in crate::build) fn too_large(text: impl Into<String>) -> Self {
        Self { reason: FailureReason::TooLarge, text: text.into() }
    }

    /// Returns the problem and how to fix it.
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
    /// Returns the report of the container.
    pub fn failure(&self) -> BuildFailure {
        let (reason, retry) = match self {
            Self::Git(error) => (reason(error), error.class() != Class::Invalid),
            Self::BranchMoved { .. } => (FailureReason::BranchMoved, true),
            Self::ResolvedRef(finding) => (finding.reason, false),
            Self::Write { cause, .. } if is_full(cause) => (FailureReason::TooLarge, false),
            Self::Libraries(_) => (FailureReason::Internal, false),
            Self::Read { .. } | Self::Write { .. } => (FailureReason::Internal, true),
        };
        BuildFailure { reason, message: message(&chain(self)), retry, waits_for_registry: false }
    }
}

fn reason(error: &mainstay_git::Error) -> FailureReason {
    match error.fault() {
        Fault::Denied { .. }
        | Fault::Certificate { .. }
        | Fault::ProxyDenied
        | Fault::App { .. }
        | Fault::WebPage
        | Fault::MissingSecret
        | Fault::Access(_)
        | Fault::Ssh(
            SshFault::Refused { .. }
            | SshFault::MissingPrivateKey
            | SshFault::Unreadable { .. }
            | SshFault::MissingPassphrase
            | SshFault::WrongPassphrase
            | SshFault::HostKeyUnknown { .. }
            | SshFault::HostKeyChanged { .. }
            | SshFault::HostKeyRevoked { .. }
            | SshFault::HostCertificate { .. },
        ) => FailureReason::GitAuthorization,
        Fault::TooLarge { .. } => FailureReason::TooLarge,
        _ if matches!(error, mainstay_git::Error::Authenticate { .. } | mainstay_git::Error::Proxy { .. }) => {
            FailureReason::GitAuthorization
        }
        _ if matches!(error, mainstay_git::Error::Parse { .. }) => FailureReason::SourceInvalid,
        _ => FailureReason::Git,
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns the message without control characters, cut to the maximum length.
fn message(text: &str) -> String {
    let mut message: String =
        text.chars().map(|c| if is_unprintable(c) && c != '\n' { '\u{fffd}' } else { c }).collect();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_short_and_cannot_drive_a_terminal() {
        assert_eq!(message("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
        assert!(message(&"ß".repeat(MAX_MESSAGE)).len() <= MAX_MESSAGE);
    }

    #[test]
    fn a_full_disk_is_the_source_being_too_large() {
        let cause = io::Error::from(io::ErrorKind::StorageFull);
        let failure = Error::Write { path: "/workspace/src/a".into(), cause }.failure();
        assert_eq!((failure.reason, failure.retry), (FailureReason::TooLarge, false));
    }
}
