//! Errors of a remote: [`Error`] names the attempt, [`Fault`] its cause.
//!
//! Invariant: no message contains a credential. Addresses are shown without user, password and query. Server messages
//! are shown only if they do not repeat the credentials, and response bodies are never quoted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::access_fault::AccessFault;
use super::cloud::CloudFault;
use super::ssh_fault::SshFault;
use super::verify::{SignatureFault, SigningFault};
use super::{Commit, Reference, RemoteUrl};
use mainstay_object::failure::Class;
use mainstay_object::printable;

/// A failed attempt. Cheap to clone: all callers that wait for one lookup get the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input value is malformed.
    #[error("read the {what}")]
    Parse {
        /// The value.
        what: &'static str,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The credentials of a repository cannot be used.
    #[error("read the credentials of the repository")]
    Authenticate {
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The proxy of a repository cannot be used.
    #[error("read the proxy of the repository")]
    Proxy {
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The keys for verifying signatures cannot be used.
    #[error("read the public keys for signature verification")]
    Signers {
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// A commit or tag lacks a valid signature.
    #[error("verify {what} of {url}")]
    Verify {
        /// The remote.
        url: RemoteUrl,
        /// The commit or tag.
        what: String,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// A new commit cannot be signed.
    #[error("sign the commit")]
    Sign {
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The lookup of a reference failed.
    #[error("look up {reference} at {url}")]
    Lookup {
        /// The remote.
        url: RemoteUrl,
        /// The reference.
        reference: Reference,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The lookup of the default branch failed.
    #[error("look up the default branch of {url}")]
    LookupHead {
        /// The remote.
        url: RemoteUrl,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// The fetch of a commit failed.
    #[error("fetch commit {commit} from {url}")]
    Fetch {
        /// The remote.
        url: RemoteUrl,
        /// The commit.
        commit: Commit,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// A directory or file of a fetched commit cannot be read.
    #[error("read {} of commit {commit}", printable(path))]
    Read {
        /// Path from the root of the repository.
        path: String,
        /// The commit.
        commit: Commit,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// A submodule of a commit cannot be fetched.
    #[error("fetch the submodule {}", printable(path))]
    Submodule {
        /// Path of the submodule in the repository that contains it.
        path: String,
        /// The cause.
        #[source]
        cause: Arc<Error>,
    },
    /// A Git LFS file cannot be fetched.
    #[error("fetch {}, which is kept in Git LFS", printable(path))]
    LargeFile {
        /// Path of the file in the repository.
        path: String,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
    /// A local repository cannot be watched.
    #[error("watch the repository in {}", path.display())]
    Watch {
        /// The repository.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: Arc<Fault>,
    },
}

impl Error {
    pub(super) fn parse(what: &'static str, cause: Fault) -> Self {
        Self::Parse { what, cause: Arc::new(cause) }
    }

    /// Returns the cause.
    pub fn fault(&self) -> &Fault {
        match self {
            Self::Submodule { cause, .. } => cause.fault(),
            Self::Parse { cause, .. }
            | Self::Authenticate { cause }
            | Self::Proxy { cause }
            | Self::Signers { cause }
            | Self::Verify { cause, .. }
            | Self::Sign { cause }
            | Self::Lookup { cause, .. }
            | Self::LookupHead { cause, .. }
            | Self::Fetch { cause, .. }
            | Self::Read { cause, .. }
            | Self::LargeFile { cause, .. }
            | Self::Watch { cause, .. } => cause,
        }
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        self.fault().class()
    }

    /// Returns the server's `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.fault() {
            Fault::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The cause of a failed attempt, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A value is malformed.
    #[error("{why}")]
    Malformed {
        /// The violated rule.
        why: &'static str,
    },
    /// The kind of remote is not supported.
    #[error("{what} is not supported; {instead}")]
    Unsupported {
        /// The kind.
        what: &'static str,
        /// The action to take instead.
        instead: &'static str,
    },
    /// A local path is used outside `mainstay dev`.
    #[error(
        "local paths are read by `mainstay dev` only, for a local repository or with --run-code; give the address of a Git server"
    )]
    LocalForbidden,
    /// The archive of an artifact is refused.
    #[error("the archive of the artifact is refused: {what}")]
    Archive {
        /// The violated rule.
        what: String,
    },
    /// The artifact of an OCIRepository or a HelmChart is missing.
    #[error("the source has no artifact: {why}")]
    NoArtifact {
        /// Why the artifact is missing.
        why: String,
    },
    /// The Secret of the repository does not exist.
    #[error("the Secret that `auth.secretName` names does not exist in the repository's namespace")]
    MissingSecret,
    /// The Secret cannot be used.
    #[error(transparent)]
    Access(#[from] AccessFault),
    /// One side rejects the other's certificate.
    #[error("TLS: {why}")]
    Certificate {
        /// The cause, and what to do.
        why: String,
    },
    /// The TLS handshake failed.
    #[error("TLS: {why}")]
    Tls {
        /// The cause.
        why: String,
    },
    /// GitHub does not issue a token for the App.
    #[error("{host} did not issue a token for the GitHub App: {why}")]
    App {
        /// Host of the API.
        host: String,
        /// The cause, and what to do.
        why: String,
    },
    /// An identity of a cloud gives no login.
    #[error(transparent)]
    Cloud(#[from] CloudFault),
    /// The proxy rejects the login, or requires one.
    #[error(
        "the proxy requires a valid user name and password; correct username and password in the Secret that \
         `proxySecretRef` names, or else the agent's HTTPS_PROXY"
    )]
    ProxyDenied,
    /// The proxy cannot be reached, or does not connect to the host.
    #[error("the connection through the proxy failed: {why}")]
    Proxy {
        /// The cause.
        why: String,
    },
    /// The server rejects the credentials, or requires credentials.
    #[error("the server answered {status}: {}", denied_hint(*with, elsewhere.as_deref()))]
    Denied {
        /// HTTP status.
        status: u16,
        /// Which credentials were sent.
        with: Sent,
        /// The host that the server redirected to, if it differs.
        elsewhere: Option<String>,
    },
    /// The response is a web page instead of Git data.
    #[error(
        "the server answered with a web page instead of Git, perhaps a login page; check the address and the \
         credentials"
    )]
    WebPage,
    /// The server has no such repository.
    #[error("the server has no repository there ({status}); check the address, and that the credentials may see it")]
    NotFound {
        /// HTTP status.
        status: u16,
    },
    /// The response has an error status that no other variant covers.
    #[error("the server answered {status}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The server's `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The server redirects to a target that must not receive the credentials.
    #[error("the server redirects to {to}, which is not followed: {why}")]
    Redirect {
        /// The host of the redirect.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
    /// The connection failed or broke.
    #[error("{what}")]
    Network {
        /// The cause, without the address.
        what: String,
    },
    /// The address is not allowed.
    #[error("{why}")]
    Confined {
        /// The reason, which reveals nothing about the address.
        why: &'static str,
    },
    /// A deadline passed.
    #[error("timed out after {} s while {what}; the server is slow or stuck", after.as_secs_f32())]
    Timeout {
        /// The deadline.
        after: Duration,
        /// The operation that timed out, as in "while …".
        what: &'static str,
    },
    /// The server violates the Git protocol.
    #[error("the server violates the Git protocol: {why}")]
    Protocol {
        /// The violation.
        why: &'static str,
    },
    /// The server refused in a protocol message.
    #[error("the server refused: {text}")]
    Refused {
        /// The message, shortened and cleaned.
        text: String,
    },
    /// A limit was exceeded.
    #[error("{what} is larger than the limit of {limit}")]
    TooLarge {
        /// The measured quantity, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The remote does not have the reference.
    #[error("there is no such branch or tag{}", missing_hint(default_branch.as_deref(), *empty))]
    MissingReference {
        /// The branch to which the remote's HEAD points.
        default_branch: Option<String>,
        /// Whether the repository is empty.
        empty: bool,
    },
    /// The remote has neither a reference with this name nor a commit with this abbreviated id.
    #[error(
        "there is no branch or tag with this name, and no commit on any of them has an id that begins with it{}; for \
         a commit, \
         write all 40 digits of its id",
        missing_hint(default_branch.as_deref(), false)
    )]
    MissingAbbreviated {
        /// The branch to which the remote's HEAD points.
        default_branch: Option<String>,
    },
    /// The history does not reach back as far as an expression requires.
    #[error("the history does not go back that far, or the commit has fewer parents")]
    MissingAncestor,
    /// No tag is a version in the range.
    #[error("no tag is a version in this range; {}", versions_hint(*tags, highest.as_deref()))]
    MissingVersion {
        /// The number of tags.
        tags: usize,
        /// The tag with the highest version.
        highest: Option<String>,
    },
    /// The abbreviated id is ambiguous.
    #[error("the abbreviated id matches several commits ({}); write all 40 digits of the commit", some(among))]
    AmbiguousCommit {
        /// The commits.
        among: Vec<Commit>,
    },
    /// The history is too large to search for an abbreviated id.
    #[error(
        "there is no branch or tag with this name, and the history is too large to search for a commit whose id \
         begins with it \
         ({what} is larger than the limit of {limit}); for a commit, write all 40 digits of its id"
    )]
    HistoryTooLarge {
        /// The measured quantity, with its unit.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The remote does not have the commit.
    #[error("the repository has no such commit on any branch that can be fetched")]
    MissingCommit,
    /// The reference points to a tree or blob.
    #[error("the reference does not point to a commit")]
    NotCommit,
    /// The directory does not exist in the commit.
    #[error("there is no such directory")]
    MissingDirectory,
    /// The server sent an incomplete pack.
    #[error("the server sent a pack without the commit or its files")]
    Incomplete,
    /// The mirror is damaged; the next fetch replaces it.
    #[error("the mirror is damaged ({what}); the next fetch replaces it")]
    Corrupt {
        /// The damage, as libgit2 describes it.
        what: String,
    },
    /// The server sent a damaged pack.
    #[error("the server sent a damaged pack ({what})")]
    Pack {
        /// The damage.
        what: String,
    },
    /// The directory of the mirrors cannot be used.
    #[error("the directory of the mirrors cannot be used")]
    Disk(#[source] std::io::Error),
    /// The volume of the mirrors is full.
    #[error("the volume of the mirrors is full; enlarge it, or lower `--mirror-budget` of the agent below its size")]
    DiskFull,
    /// A Git LFS server does not provide a file.
    #[error("{why}")]
    Lfs {
        /// The reason, without text from the server.
        why: &'static str,
    },
    /// The mirrors in use and the shares of other namespaces leave no space.
    #[error(
        "no space for this Git mirror: mirrors in use and the shares of other namespaces leave too little of the {} MiB for \
         all mirrors; raise `--mirror-budget` of the agent, and the volume with it",
        budget >> 20
    )]
    NoRoom {
        /// Budget of all mirrors, in bytes.
        budget: u64,
    },
    /// A commit or directory of the remote is damaged at its source.
    #[error("the repository itself is damaged ({what}); run `git fsck`, and push a commit without the damaged object")]
    Broken {
        /// The damage.
        what: String,
    },
    /// The server omitted an object that a commit contains, or sent a different kind of object.
    #[error(
        "the server omitted objects of the commit ({what}); run `git fsck` in the repository to find the damage; the \
         mirror is fetched again once an hour"
    )]
    Lacking {
        /// The missing object.
        what: String,
    },
    /// A local path is not a repository, or access is denied.
    #[error("{why}")]
    LocalUnusable {
        /// The reason.
        why: &'static str,
    },
    /// A local repository cannot be read.
    #[error("{what}")]
    Local {
        /// libgit2's message.
        what: String,
    },
    /// The watch on a local repository cannot be set up.
    #[error("{what}")]
    Watch {
        /// The system's message.
        what: String,
    },
    /// A signature is missing or invalid.
    #[error(transparent)]
    Signature(#[from] SignatureFault),
    /// A key cannot sign a commit.
    #[error(transparent)]
    Signing(#[from] SigningFault),
    /// An error specific to SSH.
    #[error(transparent)]
    Ssh(#[from] SshFault),
    /// The blocking thread ended without a result.
    #[error("the operation was stopped or panicked")]
    Stopped,
}

/// The credentials that a request carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// User and password, or a token.
    WithCredentials,
    /// The login of an identity of a cloud.
    WithIdentity,
    /// Only a client certificate.
    WithCertificate,
    /// No credentials.
    Anonymously,
    /// No credentials, because the Secret has none.
    AnonymouslyWithSecret,
}

fn denied_hint(with: Sent, elsewhere: Option<&str>) -> String {
    match (with, elsewhere) {
        (_, Some(host)) => format!(
            "it redirected to {host}, where credentials for another host are not sent; give that address instead"
        ),
        (Sent::WithCredentials, None) => "it does not accept the credentials; correct them in the Secret".into(),
        (Sent::WithIdentity, None) => {
            "it does not accept the identity of spec.provider; grant this identity access to the repository".into()
        }
        (Sent::WithCertificate, None) => {
            "the client certificate is not enough; correct tls.crt and tls.key in the Secret, or add username and \
             password, or \
             bearerToken"
                .into()
        }
        (Sent::Anonymously, None) => "it asks for credentials; name a Secret in the repository's `auth`".into(),
        (Sent::AnonymouslyWithSecret, None) => {
            "it asks for credentials; add username and password, or bearerToken, to the Secret".into()
        }
    }
}

/// Returns the system's message for an error, without the error number.
fn system_message(error: rustix::io::Errno) -> String {
    let text = io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn missing_hint(default_branch: Option<&str>, empty: bool) -> String {
    match (default_branch, empty) {
        (_, true) => "; the repository is empty".into(),
        (Some(branch), false) => format!("; the repository's default branch is {branch}"),
        (None, false) => String::new(),
    }
}

fn versions_hint(tags: usize, highest: Option<&str>) -> String {
    match highest {
        None if tags == 0 => "the repository has no tags".into(),
        None => format!("none of the {tags} tags is a version such as v1.2.3"),
        Some(highest) if highest.contains('-') => format!(
            "of {tags} tags the highest version is {highest}, and a pre-release is chosen only by a range that names \
             one, such \
             as `>=1.2.0-0`"
        ),
        Some(highest) => format!("of {tags} tags the highest version is {highest}"),
    }
}

/// Lists the first commits for a message.
fn some(commits: &[Commit]) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<_> = commits.iter().take(SHOWN).map(Commit::to_string).collect();
    let more = if commits.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

impl Fault {
    /// Converts an I/O error in the mirrors' directory.
    pub(super) fn disk(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Self::DiskFull,
            _ => Self::Disk(error),
        }
    }

    /// Converts a libgit2 error in the mirrors' directory.
    pub(super) fn storage(error: git2::Error) -> Self {
        // libgit2 appends the system's message to its own.
        let is_full = |kind: rustix::io::Errno| error.message().ends_with(&system_message(kind));
        if [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::FBIG].into_iter().any(is_full) {
            Self::DiskFull
        } else {
            Self::Disk(io::Error::other(error.message().to_owned()))
        }
    }

    /// Converts a libgit2 error that does not concern an object of a mirror.
    pub(super) fn git(error: git2::Error) -> Self {
        Self::Local { what: error.message().to_owned() }
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Malformed { .. }
            | Self::Unsupported { .. }
            | Self::LocalForbidden
            | Self::Archive { .. }
            | Self::LocalUnusable { .. }
            | Self::Access(_)
            | Self::Signature(_)
            | Self::Signing(_)
            | Self::NotFound { .. }
            | Self::Redirect { .. }
            | Self::TooLarge { .. }
            | Self::MissingReference { .. }
            | Self::MissingAbbreviated { .. }
            | Self::MissingAncestor
            | Self::MissingVersion { .. }
            | Self::AmbiguousCommit { .. }
            | Self::HistoryTooLarge { .. }
            | Self::MissingCommit
            | Self::NotCommit
            | Self::Broken { .. }
            | Self::MissingDirectory => Class::Invalid,
            Self::MissingSecret | Self::NoArtifact { .. } => Class::NotReady,
            Self::Denied { .. }
            | Self::WebPage
            | Self::Certificate { .. }
            | Self::ProxyDenied
            | Self::App { .. }
            | Self::Confined { .. } => Class::Denied,
            Self::Status { status, .. } if !matches!(status, 408 | 425 | 429 | 500..) => Class::Invalid,
            Self::Status { .. }
            | Self::Network { .. }
            | Self::Tls { .. }
            | Self::Proxy { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::Refused { .. }
            | Self::Incomplete
            | Self::Corrupt { .. }
            | Self::Pack { .. }
            | Self::Disk(_)
            | Self::DiskFull
            | Self::NoRoom { .. }
            | Self::Lacking { .. }
            | Self::Lfs { .. }
            | Self::Local { .. }
            | Self::Watch { .. } => Class::Unavailable,
            Self::Cloud(fault) => fault.class(),
            Self::Ssh(fault) => fault.class(),
            Self::Stopped => Class::Bug,
        }
    }
}
