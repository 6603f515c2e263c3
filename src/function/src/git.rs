//! Resolves the reference of a Git Function to a commit and the tree of its directory.
//!
//! All Functions of one remote share one lookup and one mirror, so a remote receives one request and one fetch for all
//! of these Functions.
//!
//! Invariant: URLs in a Job's arguments contain no credentials, because many users can read them. Invariant: a commit
//! that does not change the directory has no effect. The reported commit is the one in which the current tree first
//! appeared.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::resolve::Origin;
use mainstay_api::function::{FunctionSpec, FunctionStatus};
use mainstay_api::function_conditions::Reason;
use mainstay_api::git_repository::{AuthType, GitRepository, GitRepositorySpec};
use mainstay_cluster::secrets::{Known, Purpose, RepositorySecrets, SecretData};
use mainstay_git::{AccessFault, BaseDir, Fault, Reference, Remote, RemoteUrl, SshFault, Verification};
use mainstay_object::failure::{Class, chain};

/// The source of a Git Function, as in its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitLocation {
    /// Namespace of the Function and of the GitRepository.
    pub namespace: String,
    /// Name of the GitRepository, or the URL of the Function's own repository.
    pub repository: String,
    /// Branch, tag or commit ID. A commit ID may be abbreviated.
    pub reference: String,
    /// Directory in the repository.
    pub base_dir: String,
}

/// The resolved source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The location in the spec.
    pub location: GitLocation,
    /// The newest commit.
    pub head: String,
    /// The commit in which the tree first appeared, if known.
    pub commit: String,
    /// Object ID of the tree.
    pub tree: String,
    /// The fetched submodules below the tree; `None` if they are disabled or unknown.
    pub submodules: Option<String>,
    /// Object ID of the commit's `.lfsconfig`, which specifies the LFS server. Empty if there is no such file; `None`
    /// if LFS is disabled or the ID is unknown.
    pub lfs: Option<String>,
}

impl Tree {
    /// Returns a string that identifies the files of the build. Different files result in different strings.
    pub fn content(&self) -> String {
        let submodules = self.submodules.as_deref().unwrap_or_default();
        let lfs = self.lfs.as_ref().map(|server| format!(" lfs {server}")).unwrap_or_default();
        format!("{}{submodules}{lfs}", self.tree)
    }

    /// Whether the files of the build are known. A tree from a status lacks submodules and Git LFS.
    pub(super) fn is_complete(&self, remote: &Remote) -> bool {
        (self.submodules.is_some() || !remote.submodules) && (self.lfs.is_some() || !remote.lfs)
    }
}

/// How the build accesses the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// URL, without credentials.
    pub url: String,
    /// Type of authentication, and the name of the Secret.
    pub secret: Option<(AuthType, String)>,
    /// Name of the Secret with the proxy's URL.
    pub proxy: Option<String>,
    /// Host keys for this host, in the format of `known_hosts`: the keys for all repositories and the pinned one.
    /// `None` selects the builder's own keys.
    pub known_hosts: Option<String>,
    /// Whether submodules are fetched as well.
    pub submodules: bool,
    /// Whether files in Git LFS are fetched.
    pub lfs: bool,
}

/// The reason that the source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError {
    /// The condition's reason.
    pub reason: Reason,
    /// The condition's message.
    pub message: String,
    /// The class of the failure.
    pub class: Class,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl SourceError {
    fn options(class: Class, why: &str) -> Self {
        let message = format!("Reading git options failed: {why}");
        Self { reason: Reason::SourceUpdateFailed, message, class, retry_after: None }
    }
}

impl From<mainstay_git::Error> for SourceError {
    fn from(error: mainstay_git::Error) -> Self {
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

/// Returns a short description that is the same for all errors of one kind.
fn kind_of(fault: &Fault) -> &'static str {
    match fault {
        Fault::MissingReference { .. } | Fault::MissingAbbreviated { .. } | Fault::MissingVersion { .. } => {
            "reference not found"
        }
        Fault::AmbiguousCommit { .. } => "reference not unique",
        Fault::MissingCommit | Fault::NotCommit => "commit not found",
        Fault::MissingDirectory => "baseDir not found",
        Fault::NotFound { .. } | Fault::Ssh(SshFault::NoRepository { .. }) => "repository not found",
        Fault::Network { .. } | Fault::Tls { .. } | Fault::Proxy { .. } | Fault::Timeout { .. } => {
            "git server not reachable"
        }
        Fault::TooLarge { .. } | Fault::HistoryTooLarge { .. } => "repository too large",
        Fault::MissingSecret | Fault::Access(AccessFault::MissingKey { .. } | AccessFault::MissingHalf { .. }) => {
            "credentials missing"
        }
        Fault::Signature(_) => "commit not trusted",
        Fault::Unsupported { .. } => "repository not supported",
        Fault::Access(_) | Fault::Ssh(_) => "credentials not usable",
        Fault::Malformed { .. } | Fault::Confined { .. } | Fault::LocalForbidden | Fault::LocalUnusable { .. } => {
            "address not usable"
        }
        _ => "git server failed",
    }
}

/// Returns the GitRepository with this name.
fn named(context: &Context, namespace: &str, name: &str) -> Result<Arc<GitRepository>, SourceError> {
    let repositories = &context.repositories;
    repositories.get(namespace, name).ok_or_else(|| {
        let (class, why) = match repositories.problem(namespace, name) {
            Some(why) if repositories.unknown().is_none() => {
                (Class::NotReady, format!("cannot be read; correct it: {why}"))
            }
            Some(why) => (Class::Unavailable, format!("cannot be read: {why}")),
            None => (Class::NotReady, format!("does not exist in namespace {namespace}")),
        };
        SourceError::options(class, &format!("GitRepository \"{name}\" {why}"))
    })
}

/// Returns the remote of a repository. Afterwards `followed` watches exactly the Secrets that the repository
/// references.
pub(super) async fn remote(
    context: &Context,
    followed: &mut RepositorySecrets,
    namespace: &str,
    origin: &Origin,
) -> Result<(Remote, Access), SourceError> {
    let (found, used_for) = match origin {
        Origin::Named(name) => (named(context, namespace, name)?, Purpose::Repository),
        // The Function's own repository has no name, so no host key can be pinned for it.
        Origin::Own(_, spec) => {
            (Arc::new(GitRepository::new("", GitRepositorySpec::clone(spec))), Purpose::FunctionRepository)
        }
    };
    let spec = &found.spec;
    let known = followed.of(&context.secrets, namespace, spec, used_for).await;
    // Errors that a Secret cannot fix are reported first.
    let url = RemoteUrl::parse(&spec.url).map_err(unusable)?;
    mainstay_git::supported(&url, spec).map_err(unusable)?;
    if mainstay_git::needs_identity(spec) {
        let provider = spec.provider.as_deref().unwrap_or_default();
        let why = format!(
            "spec.provider {provider} of the GitRepository: builds have no identity of a cloud; name a GitRepository with \
             a Secret in spec.auth"
        );
        return Err(SourceError::options(Class::Invalid, &why));
    }
    let refused = |name: &str, error: mainstay_git::Error| {
        SourceError::options(error.class(), &format!("Secret \"{name}\": {}", chain(&error)))
    };
    let named = spec.auth.as_ref().map_or("", |auth| &auth.secret_name);
    missing(named, known.auth.as_ref())?;
    let access = mainstay_git::access(spec.auth.as_ref(), known.auth.as_ref().and_then(Known::data));
    let mut access = access.map_err(|error| refused(named, error))?.with_pins(&found, &url);
    if let Some(proxy) = &spec.proxy_secret_ref {
        missing(&proxy.name, known.proxy.as_ref())?;
        let data = known.proxy.as_ref().and_then(Known::data);
        access =
            access.through_proxy(data.unwrap_or(&SecretData::new())).map_err(|error| refused(&proxy.name, error))?;
    }
    let mainstay_git::Access { credentials, connection } = access;
    let connection = connection.within(context.source.egress(namespace));
    let known_hosts = context.source.host_keys_of(&url, &credentials).await.map_err(|why| {
        SourceError::options(Class::Unavailable, &format!("the host keys for all repositories are unknown: {why}"))
    })?;
    // Inside the container, a local path would point to the container's own files.
    let file = url.local_path().and_then(|path| reqwest::Url::from_file_path(path).ok());
    let access = Access {
        url: file.map_or_else(|| url.to_string(), String::from),
        secret: spec.auth.as_ref().map(|auth| (auth.kind, auth.secret_name.clone())),
        proxy: spec.proxy_secret_ref.as_ref().map(|proxy| proxy.name.clone()),
        known_hosts: known_hosts.map(|lines| lines.join("\n")),
        submodules: spec.submodules,
        lfs: spec.lfs,
    };
    let verification = verification(spec, known.verify.as_ref())?;
    Ok((Remote { url, credentials, connection, verification, submodules: spec.submodules, lfs: spec.lfs }, access))
}

fn unusable(error: mainstay_git::Error) -> SourceError {
    SourceError::options(error.class(), &chain(&error))
}

/// Fails if a Secret is missing or cannot be read.
fn missing(name: &str, known: Option<&Known>) -> Result<(), SourceError> {
    match known.and_then(Known::problem) {
        Some((class, problem)) => Err(SourceError::options(class, &format!("Secret \"{name}\" {problem}"))),
        None => Ok(()),
    }
}

fn verification(spec: &GitRepositorySpec, known: Option<&Known>) -> Result<Option<Arc<Verification>>, SourceError> {
    let Some(verify) = &spec.verify else { return Ok(None) };
    missing(&verify.secret_ref.name, known)?;
    Verification::new(Some(verify), known.and_then(Known::data)).map_err(unusable)
}

/// Resolves the reference to a tree, with a lookup no older than `max_age`. `last` is the previous result.
pub(super) async fn tree(
    context: &Context,
    remote: &Remote,
    location: &GitLocation,
    last: Option<&Tree>,
    max_age: Duration,
) -> Result<Tree, SourceError> {
    let reference = Reference::parse(&location.reference)?;
    let base_dir = BaseDir::parse(&location.base_dir)?;
    let last = last.filter(|last| last.location == *location);
    let source = context.source.for_namespace(&location.namespace);
    let found = source.lookup(remote, &reference, max_age).await?;
    // The Job builds this tree, regardless of the commit from which it fetches the tree.
    source.verify(remote, &found).await?;
    let head = found.commit.to_string();
    let is_same = |last: &&Tree| {
        last.head == head && last.submodules.is_some() == remote.submodules && last.lfs.is_some() == remote.lfs
    };
    if let Some(last) = last.filter(is_same) {
        return Ok(last.clone());
    }
    let snapshot = source.fetch(remote, &found).await?;
    let Some(tree) = snapshot.tree(&base_dir).await? else {
        return Err(mainstay_git::Error::Read {
            path: base_dir.to_string(),
            commit: found.commit,
            cause: Arc::new(Fault::MissingDirectory),
        }
        .into());
    };
    let tree = tree.to_string();
    let lfs = if remote.lfs { Some(snapshot.lfs_config().await?.unwrap_or_default()) } else { None };
    // An older commit may specify a different LFS server.
    let is_same = |last: &&Tree| last.tree == tree && (lfs.is_none() || last.lfs == lfs);
    let commit = last.filter(is_same).map_or_else(|| head.clone(), |last| last.commit.clone());
    let submodules = remote.submodules.then(|| snapshot.submodules_below(&base_dir).unwrap_or_default());
    Ok(Tree { location: location.clone(), head, commit, tree, submodules, lfs })
}

/// Passes on the commit that an earlier process found for an abbreviated commit ID, so that the remote's commits are
/// not searched again.
pub(super) fn hint(context: &Context, remote: &Remote, last: &Tree) {
    if let (Ok(reference), Ok(head)) = (Reference::parse(&last.location.reference), last.head.parse()) {
        context.source.hint(remote, &reference, head);
    }
}

/// Returns the source for a status: the name in the spec, or the URL of the Function's own repository.
pub(super) fn said(spec: &FunctionSpec) -> Cow<'_, str> {
    match spec.own_repository() {
        // A URL that cannot be parsed may contain a password.
        Some(own) => RemoteUrl::parse(&own.spec().url).map(|url| url.to_string()).unwrap_or_default().into(),
        None => (&*spec.source).into(),
    }
}

/// Returns the last resolved source from the status.
pub(crate) fn last_resolved(namespace: &str, status: &FunctionStatus) -> Option<Tree> {
    let text = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let commit = text(&status.commit)?;
    Some(Tree {
        location: GitLocation {
            namespace: namespace.to_owned(),
            repository: text(&status.source)?,
            reference: Reference::parse(text(&status.reference)?.trim()).ok()?.to_string(),
            base_dir: BaseDir::parse(text(&status.base_dir)?.trim()).ok()?.to_string(),
        },
        head: commit.clone(),
        commit,
        tree: text(&status.tree)?,
        submodules: None,
        lfs: None,
    })
}
