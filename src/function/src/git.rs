//! Resolves the reference of a Git Function to a commit and the tree of its directory.
//!
//! All Functions of one remote share its lookups and its mirror: however many there are, one request and one fetch
//! serve them.
//!
//! Invariant: no credential is in an address that is passed to a Job, because its arguments are visible to many.
//! Invariant: a commit that does not change the directory changes nothing: the reported commit is the one in which the
//! current tree first appeared.

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

/// The source of a Git Function as in its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitLocation {
    /// Namespace of the Function and of the GitRepository.
    pub namespace: String,
    /// Name of the GitRepository, or the address of the Function's own repository.
    pub repository: String,
    /// Branch, tag or commit id, which may be abbreviated.
    pub reference: String,
    /// Directory in the repository.
    pub base_dir: String,
}

/// The resolved source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The spec.
    pub location: GitLocation,
    /// The newest commit.
    pub head: String,
    /// The commit in which the tree first appeared, as far as known.
    pub commit: String,
    /// Id of the tree.
    pub tree: String,
    /// Which submodules below the tree were fetched; `None` if none are to be, or if that is not known yet.
    pub submodules: Option<String>,
    /// Which LFS server the commit names, by the id of its `.lfsconfig`; empty without one; `None` if files in Git LFS are not
    /// fetched, or if that is not known yet.
    pub lfs: Option<String>,
}

impl Tree {
    /// What is built from it: other files have another text.
    pub fn content(&self) -> String {
        let submodules = self.submodules.as_deref().unwrap_or_default();
        let lfs = self.lfs.as_ref().map(|server| format!(" lfs {server}")).unwrap_or_default();
        format!("{}{submodules}{lfs}", self.tree)
    }

    /// Whether it is known what is built from it. What a status tells leaves out submodules and Git LFS.
    pub(super) fn is_complete(&self, remote: &Remote) -> bool {
        (self.submodules.is_some() || !remote.submodules) && (self.lfs.is_some() || !remote.lfs)
    }
}

/// How the build accesses the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address, without credentials.
    pub url: String,
    /// Type of authentication, and the name of the Secret.
    pub secret: Option<(AuthType, String)>,
    /// Name of the Secret with the proxy.
    pub proxy: Option<String>,
    /// The host keys that hold for all repositories, and the one that is pinned, in the format of `known_hosts`, as far as
    /// they are about this host; `None` if those that the builder brings along hold.
    pub known_hosts: Option<String>,
    /// Whether submodules are fetched as well.
    pub submodules: bool,
    /// Whether files in Git LFS are fetched.
    pub lfs: bool,
}

/// Why the source cannot be read.
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

/// A short description, the same for all faults of a kind.
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

/// The GitRepository with this name.
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

/// The remote of a repository. From now on `followed` watches the Secrets that it names, and no others.
pub(super) async fn remote(
    context: &Context,
    followed: &mut RepositorySecrets,
    namespace: &str,
    origin: &Origin,
) -> Result<(Remote, Access), SourceError> {
    let (found, used_for) = match origin {
        Origin::Named(name) => (named(context, namespace, name)?, Purpose::Repository),
        // It has no name, so nothing can be pinned.
        Origin::Own(_, spec) => {
            (Arc::new(GitRepository::new("", GitRepositorySpec::clone(spec))), Purpose::FunctionRepository)
        }
    };
    let spec = &found.spec;
    let known = followed.of(&context.secrets, namespace, spec, used_for).await;
    // Errors that no Secret can fix are reported first.
    let unusable = |error: mainstay_git::Error| SourceError::options(error.class(), &chain(&error));
    let url = RemoteUrl::parse(&spec.url).map_err(unusable)?;
    mainstay_git::supported(&url, spec.auth.as_ref()).map_err(unusable)?;
    let refused = |name: &str, error: mainstay_git::Error| {
        SourceError::options(error.class(), &format!("Secret \"{name}\": {}", chain(&error)))
    };
    let missing = |name: &str, known: &Option<Known>| match known.as_ref().and_then(Known::problem) {
        Some((class, problem)) => Err(SourceError::options(class, &format!("Secret \"{name}\" {problem}"))),
        None => Ok(()),
    };
    let named = spec.auth.as_ref().map_or("", |auth| &auth.secret_name);
    missing(named, &known.auth)?;
    let access = mainstay_git::access(spec.auth.as_ref(), known.auth.as_ref().and_then(Known::data));
    let mut access = access.map_err(|error| refused(named, error))?.with_pins(&found, &url);
    if let Some(proxy) = &spec.proxy_secret_ref {
        missing(&proxy.name, &known.proxy)?;
        let data = known.proxy.as_ref().and_then(Known::data);
        access =
            access.through_proxy(data.unwrap_or(&SecretData::new())).map_err(|error| refused(&proxy.name, error))?;
    }
    let mainstay_git::Access { credentials, connection } = access;
    let connection = connection.within(context.source.egress(namespace));
    let known_hosts = context.source.host_keys_of(&url, &credentials).await.map_err(|why| {
        SourceError::options(
            Class::Unavailable,
            &format!("the host keys that hold for all repositories are not known: {why}"),
        )
    })?;
    // A local path would be a path in the container.
    let file = url.local_path().and_then(|path| reqwest::Url::from_file_path(path).ok());
    let access = Access {
        url: file.map_or_else(|| url.to_string(), String::from),
        secret: spec.auth.as_ref().map(|auth| (auth.kind, auth.secret_name.clone())),
        proxy: spec.proxy_secret_ref.as_ref().map(|proxy| proxy.name.clone()),
        known_hosts: known_hosts.map(|lines| lines.join("\n")),
        submodules: spec.submodules,
        lfs: spec.lfs,
    };
    let mut verification = None;
    if let Some(verify) = &spec.verify {
        missing(&verify.secret_ref.name, &known.verify)?;
        verification =
            Verification::new(Some(verify), known.verify.as_ref().and_then(Known::data)).map_err(unusable)?;
    }
    Ok((Remote { url, credentials, connection, verification, submodules: spec.submodules, lfs: spec.lfs }, access))
}

/// The tree that the reference resolves to, by a lookup that is at most `max_age` old. `last` is the previous result.
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
    // The Job builds this tree, from whichever commit it fetches it.
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
    // An older commit names the LFS server that it had.
    let is_same = |last: &&Tree| last.tree == tree && (lfs.is_none() || last.lfs == lfs);
    let commit = last.filter(is_same).map_or_else(|| head.clone(), |last| last.commit.clone());
    let submodules = remote.submodules.then(|| snapshot.submodules_below(&base_dir).unwrap_or_default());
    Ok(Tree { location: location.clone(), head, commit, tree, submodules, lfs })
}

/// Passes on what an abbreviated commit id resolved to before this process began, so that the remote is not searched
/// again.
pub(super) fn hint(context: &Context, remote: &Remote, last: &Tree) {
    if let (Ok(reference), Ok(head)) = (Reference::parse(&last.location.reference), last.head.parse()) {
        context.source.hint(remote, &reference, head);
    }
}

/// What a status says of the source: as in the spec, or the address of the Function's own repository.
pub(super) fn said(spec: &FunctionSpec) -> Cow<'_, str> {
    match spec.own_repository() {
        // One that cannot be read may hold a password.
        Some(own) => RemoteUrl::parse(&own.spec().url).map(|url| url.to_string()).unwrap_or_default().into(),
        None => (&*spec.source).into(),
    }
}

/// The last resolved source in the status.
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
