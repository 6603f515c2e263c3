//! What can go wrong with a remote: [`Error`] names the attempt, [`Fault`] its cause.
//!
//! Invariant: no text holds a credential: addresses are shown without user, password and query, what a server says is
//! shown only as far as it does not repeat the credentials, and bodies of answers are never quoted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::ssh_fault::SshFault;
use super::{Commit, Reference, RemoteUrl};
use crate::failure::Class;

/// An attempt that failed. Cheap to clone, because everyone who waited for one lookup gets the same answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value from outside does not have the form it needs.
    #[error("read the {what}")]
    Parse {
        /// Which value, in words.
        what: &'static str,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// The credentials of a repository cannot be used.
    #[error("read the credentials of the repository")]
    Authenticate {
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// The remote's references.
    #[error("look up {reference} at {url}")]
    Lookup {
        /// The remote.
        url: RemoteUrl,
        /// What was looked for.
        reference: Reference,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// The remote's default branch.
    #[error("look up the default branch of {url}")]
    LookupHead {
        /// The remote.
        url: RemoteUrl,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// A commit with its files.
    #[error("fetch commit {commit} from {url}")]
    Fetch {
        /// The remote.
        url: RemoteUrl,
        /// The commit.
        commit: Commit,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// A directory or file of a commit that was fetched.
    #[error("read {path} of commit {commit}")]
    Read {
        /// Path from the root of the repository.
        path: String,
        /// The commit.
        commit: Commit,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
    /// A local repository's references.
    #[error("watch the repository in {}", path.display())]
    Watch {
        /// The repository.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: Arc<Fault>,
    },
}

impl Error {
    pub(super) fn parse(what: &'static str, cause: Fault) -> Self {
        Self::Parse { what, cause: Arc::new(cause) }
    }

    /// What caused it.
    pub fn fault(&self) -> &Fault {
        match self {
            Self::Parse { cause, .. }
            | Self::Authenticate { cause }
            | Self::Lookup { cause, .. }
            | Self::LookupHead { cause, .. }
            | Self::Fetch { cause, .. }
            | Self::Read { cause, .. }
            | Self::Watch { cause, .. } => cause,
        }
    }

    /// What the failure means.
    pub fn class(&self) -> Class {
        self.fault().class()
    }

    /// How long the server asked us to wait, if it did.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.fault() {
            Fault::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The cause of a failed attempt, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A value does not have the form it needs.
    #[error("{why}")]
    Malformed {
        /// Which rule it breaks.
        why: &'static str,
    },
    /// A kind of remote that is not spoken here.
    #[error("{what} is not supported; {instead}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
    /// A local path where only remotes are served.
    #[error("local paths are read by `mainstay dev` only; give the address of a Git server")]
    LocalForbidden,
    /// The Secret that the repository names is not there.
    #[error("the Secret that `auth.secretName` names does not exist in the repository's namespace")]
    MissingSecret,
    /// The Secret lacks a key.
    #[error("missing field {key}: the Secret needs it (it may be empty)")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// The server wants other credentials.
    #[error("the server answered {status}: {}", denied_hint(*with, elsewhere.as_deref()))]
    Denied {
        /// HTTP status.
        status: u16,
        /// Whether credentials were sent.
        with: Sent,
        /// The host that the server redirected to, when it was another one.
        elsewhere: Option<String>,
    },
    /// A web page instead of Git.
    #[error(
        "the server answered a web page instead of Git, perhaps a login page; check the address and the credentials"
    )]
    WebPage,
    /// No repository there.
    #[error("the server has no repository there ({status}); check the address, and that the credentials may see it")]
    NotFound {
        /// HTTP status.
        status: u16,
    },
    /// Another status than success.
    #[error("the server answered {status}")]
    Status {
        /// HTTP status.
        status: u16,
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
    },
    /// A redirect that is not followed.
    #[error("the server redirects to {to}, which is not followed: {why}")]
    Redirect {
        /// Host redirected to.
        to: String,
        /// The rule.
        why: &'static str,
    },
    /// No connection, or it broke.
    #[error("{what}")]
    Network {
        /// What happened, without the address.
        what: String,
    },
    /// It took too long.
    #[error("no end after {} s ({what}); the server is slow or stuck", after.as_secs_f32())]
    Timeout {
        /// The deadline.
        after: Duration,
        /// Which deadline.
        what: &'static str,
    },
    /// The server does not keep to the protocol.
    #[error("the server does not speak Git as it should: {why}")]
    Protocol {
        /// Which rule it breaks.
        why: &'static str,
    },
    /// The server said no, in the protocol's own words.
    #[error("the server refused: {text}")]
    Refused {
        /// Its words, shortened and cleaned.
        text: String,
    },
    /// A limit was reached.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The limit, in bytes or pieces as `what` says.
        limit: u64,
    },
    /// The remote lacks the reference.
    #[error("there is no such branch or tag{}", missing_hint(default_branch.as_deref(), *empty))]
    MissingReference {
        /// The branch that the remote's HEAD names.
        default_branch: Option<String>,
        /// Whether the remote has nothing at all.
        empty: bool,
    },
    /// The remote has neither a reference of this name nor a commit whose id begins so.
    #[error(
        "there is no branch or tag of this name, and no commit on any of them has an id that begins so{}; for a commit, \
         write all 40 digits of its id",
        missing_hint(default_branch.as_deref(), false)
    )]
    MissingAbbreviated {
        /// The branch that the remote's HEAD names.
        default_branch: Option<String>,
    },
    /// Several commits have an id that begins so.
    #[error(
        "several commits have an id that begins so ({}); write all 40 digits of the one that is meant",
        some(among)
    )]
    AmbiguousCommit {
        /// The commits.
        among: Vec<Commit>,
    },
    /// The beginning of an id cannot be looked for.
    #[error(
        "there is no branch or tag of this name, and the history is too large to look for a commit whose id begins so \
         ({what} is larger than the limit of {limit}); for a commit, write all 40 digits of its id"
    )]
    HistoryTooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, in bytes or pieces as `what` says.
        limit: u64,
    },
    /// The remote lacks the commit.
    #[error("the repository has no such commit on any branch that can be fetched")]
    MissingCommit,
    /// The reference names something else than a commit.
    #[error("what it names is not a commit")]
    NotCommit,
    /// The commit lacks the directory.
    #[error("there is no such directory")]
    MissingDirectory,
    /// The server sent a pack without what was asked for.
    #[error("the server sent a pack that lacks the commit or its files")]
    Incomplete,
    /// Our copy is damaged; the next fetch makes a new one.
    #[error("the mirror is damaged ({what}); it is made anew by the next fetch")]
    Corrupt {
        /// What was found, in libgit2's words.
        what: String,
    },
    /// A pack that does not unpack.
    #[error("the server sent a damaged pack ({what})")]
    Pack {
        /// What was found.
        what: String,
    },
    /// Our disk.
    #[error("the directory of the mirrors cannot be used")]
    Disk(#[source] std::io::Error),
    /// A local path is no repository, or not one that may be read.
    #[error("{why}")]
    LocalUnusable {
        /// Why not.
        why: &'static str,
    },
    /// A local repository cannot be read.
    #[error("{what}")]
    Local {
        /// libgit2's words.
        what: String,
    },
    /// The watch on a local repository cannot be set up.
    #[error("{what}")]
    Watch {
        /// The system's words.
        what: String,
    },
    /// Something that only SSH has.
    #[error(transparent)]
    Ssh(#[from] SshFault),
    /// The work on a blocking thread ended without a result.
    #[error("the work was stopped or panicked")]
    Stopped,
}

/// Whether credentials went with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// They did.
    WithCredentials,
    /// They did not.
    Anonymously,
}

fn denied_hint(with: Sent, elsewhere: Option<&str>) -> String {
    match (with, elsewhere) {
        (_, Some(host)) => format!(
            "it redirected to {host}, where credentials for another host are not sent; give that address instead"
        ),
        (Sent::WithCredentials, None) => "it does not accept the credentials; correct them in the Secret".into(),
        (Sent::Anonymously, None) => "it wants credentials; name a Secret in the repository's `auth`".into(),
    }
}

fn missing_hint(default_branch: Option<&str>, empty: bool) -> String {
    match (default_branch, empty) {
        (_, true) => "; the repository is empty".into(),
        (Some(branch), false) => format!("; the repository's default branch is {branch}"),
        (None, false) => String::new(),
    }
}

/// The first ones of many, for people.
fn some(commits: &[Commit]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = commits.iter().take(SHOWN).map(Commit::to_string).collect();
    let more = if commits.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

impl Fault {
    /// libgit2's words about something else than an object of a mirror.
    pub(super) fn git(error: git2::Error) -> Self {
        Self::Local { what: error.message().to_owned() }
    }

    /// What the failure means.
    pub fn class(&self) -> Class {
        match self {
            Self::Malformed { .. }
            | Self::Unsupported { .. }
            | Self::LocalForbidden
            | Self::LocalUnusable { .. }
            | Self::MissingKey { .. }
            | Self::NotFound { .. }
            | Self::Redirect { .. }
            | Self::TooLarge { .. }
            | Self::MissingReference { .. }
            | Self::MissingAbbreviated { .. }
            | Self::AmbiguousCommit { .. }
            | Self::HistoryTooLarge { .. }
            | Self::MissingCommit
            | Self::NotCommit
            | Self::MissingDirectory => Class::Invalid,
            Self::MissingSecret => Class::NotReady,
            Self::Denied { .. } | Self::WebPage => Class::Denied,
            Self::Status { status, .. } if !matches!(status, 408 | 425 | 429 | 500..) => Class::Invalid,
            Self::Status { .. }
            | Self::Network { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::Refused { .. }
            | Self::Incomplete
            | Self::Corrupt { .. }
            | Self::Pack { .. }
            | Self::Disk(_)
            | Self::Local { .. }
            | Self::Watch { .. } => Class::Unavailable,
            Self::Ssh(fault) => fault.class(),
            Self::Stopped => Class::Bug,
        }
    }
}
