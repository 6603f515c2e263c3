//! From the reference that a Git Function follows to the commit and the tree of its directory.
//!
//! All Functions of one remote share its lookups and its mirror: however many there are, one question and one transfer
//! answer them.
//!
//! Invariant: no credential stands in an address that goes to a Job: its arguments are for many eyes.
//! Invariant: a commit that leaves the directory as it is changes nothing: the commit that is told is the one in which
//! the present tree first appeared.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use crate::api::function::FunctionStatus;
use crate::api::function_conditions::Reason;
use crate::api::git_repository::AuthType;
use crate::failure::{Class, chain};
use crate::secrets::{Followed, Known};
use crate::source::{self, BaseDir, Credentials, Fault, Reference, Remote, RemoteUrl, SshFault};

/// What a Git Function is to be built from, as its spec says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Namespace of the Function and of the GitRepository.
    pub namespace: String,
    /// Name of the GitRepository.
    pub repository: String,
    /// Branch, tag, commit, or the beginning of a commit's id.
    pub reference: String,
    /// Directory in the repository.
    pub base_dir: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Where.
    pub wanted: Wanted,
    /// The newest commit that was looked at.
    pub head: String,
    /// The commit in which the tree first appeared, as far as it is known.
    pub commit: String,
    /// Id of the tree.
    pub tree: String,
}

/// What the build needs besides: where the repository is, and which Secret opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address, without credentials.
    pub url: String,
    /// How it authenticates, and the name of the Secret for it.
    pub secret: Option<(AuthType, String)>,
}

/// Why the source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message.
    pub message: String,
    /// What kind of failure it is.
    pub class: Class,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
}

impl Unread {
    fn options(class: Class, why: &str) -> Self {
        let message = format!("Reading git options failed: {why}");
        Self { reason: Reason::SourceUpdateFailed, message, class, retry_after: None }
    }
}

impl From<source::Error> for Unread {
    fn from(error: source::Error) -> Self {
        let class = error.class();
        let retry_after = error.retry_after();
        if class == Class::Denied {
            let message = format!("Authorization to git server failed: {}", chain(&error));
            return Self { reason: Reason::GitAuthorizationFailed, message, class, retry_after };
        }
        let message = format!("Sources update failed: {}: {}", kind_of(error.fault()), chain(&error));
        Self { reason: Reason::SourceUpdateFailed, message, class, retry_after }
    }
}

/// What went wrong in a few words, the same for all failures of a kind.
fn kind_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::MissingReference { .. } | Fault::MissingAbbreviated { .. } => "reference not found",
        Fault::AmbiguousCommit { .. } => "reference not unique",
        Fault::MissingCommit | Fault::NotCommit => "commit not found",
        Fault::MissingDirectory => "baseDir not found",
        Fault::NotFound { .. } | Fault::Ssh(SshFault::NoRepository { .. }) => "repository not found",
        Fault::Network { .. } | Fault::Timeout { .. } => "git server not reachable",
        Fault::TooLarge { .. } | Fault::HistoryTooLarge { .. } => "repository too large",
        Fault::MissingSecret | Fault::MissingKey { .. } => "credentials missing",
        Fault::Unsupported { .. } => "repository not supported",
        Fault::Ssh(_) => "credentials not usable",
        Fault::Malformed { .. } | Fault::LocalForbidden | Fault::LocalUnusable { .. } => "address not usable",
        _ => "git server failed",
    }
}

/// Where the repository is and how it is opened. The Secret that it names is `followed` from now on, and no other one.
pub(super) async fn remote(
    context: &Context,
    followed: &mut Option<Followed>,
    wanted: &Wanted,
) -> Result<(Remote, Access), Unread> {
    let Wanted { namespace, repository, .. } = wanted;
    let Some(found) = context.repositories.get(namespace, repository) else {
        let (class, why) = match context.repositories.unknown() {
            Some(why) => (Class::Unavailable, format!("cannot be read: {why}")),
            None => (Class::NotReady, format!("does not exist in namespace {namespace}")),
        };
        return Err(Unread::options(class, &format!("GitRepository \"{repository}\" {why}")));
    };
    let auth = found.spec.auth.as_ref().map(|auth| (auth.kind, auth.secret_name.clone()));
    let secret = auth.as_ref().map(|(_, name)| name.clone());
    if followed.as_ref().map(Followed::of) != secret.as_deref().map(|name| (&**namespace, name)) {
        *followed = secret.as_deref().map(|name| context.secrets.follow(namespace, name));
    }
    let known = match followed {
        Some(followed) => followed.known().await,
        None => Known::Absent,
    };
    // What no Secret can help is told whatever there is of it.
    let unusable = |error: source::Error| Unread::options(error.class(), &chain(&error));
    let url = RemoteUrl::parse(&found.spec.url).map_err(unusable)?;
    source::supported(&url, found.spec.auth.as_ref()).map_err(unusable)?;
    let named = secret.as_deref().unwrap_or_default();
    if let (Some(_), Some((class, problem))) = (&secret, known.problem()) {
        return Err(Unread::options(class, &format!("Secret \"{named}\" {problem}")));
    }
    let credentials: Credentials = source::credentials(found.spec.auth.as_ref(), known.data())
        .map_err(|error| Unread::options(error.class(), &format!("Secret \"{named}\": {}", chain(&error))))?;
    if url.holds_credentials() && auth.is_none() {
        let why = format!(
            "the address in GitRepository \"{repository}\" holds a user name or password; put them into a Secret with the \
             keys username and password, and name it in spec.auth"
        );
        return Err(Unread::options(Class::Invalid, &why));
    }
    // A bare path would mean a place in the container.
    let file = url.local_path().and_then(|path| reqwest::Url::from_file_path(path).ok());
    let access = Access { url: file.map_or_else(|| url.to_string(), String::from), secret: auth };
    Ok((Remote { url, credentials }, access))
}

/// The tree that the reference leads to now, or at most `max_age` ago. `last` is what was found last.
pub(super) async fn tree(
    context: &Context,
    remote: &Remote,
    wanted: &Wanted,
    last: Option<&Tree>,
    max_age: Duration,
) -> Result<Tree, Unread> {
    let reference = Reference::parse(&wanted.reference)?;
    let base_dir = BaseDir::parse(&wanted.base_dir)?;
    let last = last.filter(|last| last.wanted == *wanted);
    let source = context.source.for_namespace(&wanted.namespace);
    let found = source.lookup(remote, &reference, max_age).await?;
    let head = found.commit.to_string();
    if let Some(last) = last.filter(|last| last.head == head) {
        return Ok(last.clone());
    }
    let snapshot = source.fetch(remote, &found).await?;
    let Some(tree) = snapshot.tree(&base_dir).await? else {
        return Err(source::Error::Read {
            path: base_dir.to_string(),
            commit: found.commit,
            cause: Arc::new(Fault::MissingDirectory),
        }
        .into());
    };
    let tree = tree.to_string();
    let commit = last.filter(|last| last.tree == tree).map_or_else(|| head.clone(), |last| last.commit.clone());
    Ok(Tree { wanted: wanted.clone(), head, commit, tree })
}

/// Tells what the reference was found to mean before this process began: where it is the beginning of a commit's id, the
/// remote need not be searched again.
pub(super) fn remind(context: &Context, remote: &Remote, last: &Tree) {
    if let (Ok(reference), Ok(head)) = (Reference::parse(&last.wanted.reference), last.head.parse()) {
        context.source.remind(remote, &reference, head);
    }
}

/// What the status says was last found in Git.
pub fn remembered(namespace: &str, status: &FunctionStatus) -> Option<Tree> {
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let commit = text(&status.commit)?;
    Some(Tree {
        wanted: Wanted {
            namespace: namespace.to_owned(),
            repository: text(&status.source)?,
            reference: Reference::parse(text(&status.reference)?.trim()).ok()?.to_string(),
            base_dir: BaseDir::parse(text(&status.base_dir)?.trim()).ok()?.to_string(),
        },
        head: commit.clone(),
        commit,
        tree: text(&status.tree)?,
    })
}
