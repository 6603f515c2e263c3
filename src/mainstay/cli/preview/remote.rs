//! The sources of revisions: the GitSync's repository, a local repository, or a work tree.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cli::connection::{DEFAULT_NAMESPACE, own_kind};
use crate::cli::dev_run::DevRun;
use crate::cli::work_tree::WorkTree;
use crate::cli::{Error, private_directory, syncs};
use mainstay_api::{GitRepository, GitSync, names};
use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_git::{Credentials, Expression, Reference, Remote, RemoteUrl, SharedHostKeys, Source};
use mainstay_gitsync::Preview;

/// A Git source with a directory for mirrors.
pub(super) struct Git {
    pub(super) source: Source,
    room: TempDir,
}

impl Git {
    /// Creates a source with the agent's host keys, if they can be read.
    pub(super) async fn new(cluster: &Cluster) -> Result<Self, Error> {
        let room =
            private_directory::create().map_err(|cause| Error::ReadFile { path: std::env::temp_dir(), cause })?;
        let mut settings = mainstay_git::Settings::new(room.path().join("mirrors"));
        settings.allow_local = true;
        let source = Source::new(settings);
        let maps = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
        let map = cluster.get(&maps, Some(DEFAULT_NAMESPACE), names::KNOWN_HOSTS).await.ok().flatten();
        if let Some(lines) = map.unwrap_or_default()["data"][names::KNOWN_HOSTS_KEY].as_str() {
            source.set_host_keys(SharedHostKeys::Lines(lines.into()));
        }
        Ok(Self { source, room })
    }

    /// Returns the directory for rendering kustomizations and charts.
    pub(super) fn scratch(&self) -> PathBuf {
        self.room.path().join("render")
    }

    /// Returns the reference that a revision resolves to.
    pub(super) async fn resolve(&self, remote: &Remote, expression: &Expression) -> Result<Reference, Error> {
        self.source.resolve(remote, expression).await.map_err(Error::Revision)
    }

    /// Returns the work tree around a directory as a repository, and the reference to its current state.
    pub(super) fn work_tree(&self, directory: &Path) -> Result<(Remote, Reference), Error> {
        let root = root_of(directory)?;
        let place = self.room.path().join("work-tree.git");
        let tree = WorkTree::new(&root, &place).map_err(Error::WorkTree)?;
        let reference = Reference::parse(&tree.branch()).map_err(Error::Manifests)?;
        Ok((local(&place)?, reference))
    }
}

/// Returns the local repository around a directory.
pub(super) fn of_this_machine(directory: &Path) -> Result<Remote, Error> {
    local(&root_of(directory)?)
}

/// Returns the repository of the GitSync, and the reason why the agent cannot use it.
pub(super) async fn of_sync(
    cluster: &Cluster,
    run: &DevRun,
    preview: &Preview,
    sync: &GitSync,
) -> Result<(Remote, Option<String>), Error> {
    let repository = repository(cluster, sync).await?;
    let remote = preview.remote(&repository).await?;
    // A user who can write the URL in the cluster must not be able to choose local files. Only the directory of
    // `mainstay dev` is allowed, because it is in the kubeconfig.
    if remote.0.url.local_path().is_some_and(|path| run.repository.as_deref() != Some(path)) {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        return Err(Error::PathOfAgent { repository: format!("{namespace}/{}", sync.spec.git_repository) });
    }
    Ok(remote)
}

/// Returns whether the agent fetches the submodules of a commit; false if this is unknown.
pub(super) async fn has_submodules(cluster: &Cluster, sync: &GitSync) -> bool {
    repository(cluster, sync).await.is_ok_and(|repository| repository.spec.submodules)
}

/// Returns the GitRepository of the GitSync.
async fn repository(cluster: &Cluster, sync: &GitSync) -> Result<GitRepository, Error> {
    if sync.spec.source_ref.is_some() {
        return Err(Error::PreviewArtifact {
            repository: sync.spec.source().0.to_owned() + " " + sync.spec.source().1,
        });
    }
    let kind = own_kind::<GitRepository>(cluster).await?;
    let (namespace, name) = (sync.metadata.namespace.as_deref().unwrap_or_default(), &sync.spec.git_repository);
    let found = cluster.get(&kind, Some(namespace), name).await?;
    syncs::understand(found.ok_or_else(|| Error::Missing { what: format!("GitRepository {namespace}/{name}") })?)
}

fn local(path: &Path) -> Result<Remote, Error> {
    let path = fs::canonicalize(path).map_err(|cause| Error::ReadFile { path: path.to_owned(), cause })?;
    Ok(Remote::new(RemoteUrl::local(path), Credentials::Anonymous))
}

/// Returns the root of the work tree around a directory, or the directory itself.
fn root_of(directory: &Path) -> Result<PathBuf, Error> {
    let unread = |cause| Error::ReadFile { path: directory.to_owned(), cause };
    let directory = fs::canonicalize(directory).map_err(unread)?;
    fs::read_dir(&directory).map_err(unread)?;
    Ok(directory.ancestors().find(|above| above.join(".git").exists()).unwrap_or(&directory).to_owned())
}
