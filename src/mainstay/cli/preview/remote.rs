//! Where revisions are read from: the repository of the GitSync, one of this machine, or a work tree.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::cli::connection::{DEFAULT_NAMESPACE, own_kind};
use crate::cli::work_tree::WorkTree;
use crate::cli::{Error, syncs};
use mainstay_api::{GitRepository, GitSync, names};
use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_git::{Credentials, Reference, Remote, RemoteUrl, SharedHostKeys, Source};
use mainstay_gitsync::Preview;

/// A directory for mirrors, and Git.
pub(super) struct Git {
    pub(super) source: Source,
    room: TempDir,
}

impl Git {
    /// With the host keys that the agent knows, as far as they may be read.
    pub(super) async fn new(cluster: &Cluster) -> Result<Self, Error> {
        let room = tempfile::tempdir().map_err(|cause| Error::ReadFile { path: std::env::temp_dir(), cause })?;
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

    /// Where kustomizations and charts are rendered.
    pub(super) fn scratch(&self) -> PathBuf {
        self.room.path().join("render")
    }

    /// The work tree that a directory is in, as a repository, and the reference that has it as it is now.
    pub(super) fn work_tree(&self, directory: &Path) -> Result<(Remote, Reference), Error> {
        let root = root_of(directory)?;
        let place = self.room.path().join("work-tree.git");
        let tree = WorkTree::new(&root, &place).map_err(Error::WorkTree)?;
        let reference = Reference::parse(&tree.branch()).map_err(Error::Manifests)?;
        Ok((local(&place)?, reference))
    }
}

/// The repository of this machine that a directory is in.
pub(super) fn of_this_machine(directory: &Path) -> Result<Remote, Error> {
    local(&root_of(directory)?)
}

/// The repository of the GitSync, and what keeps the agent from using it.
pub(super) async fn of_sync(
    cluster: &Cluster,
    preview: &Preview,
    sync: &GitSync,
) -> Result<(Remote, Option<String>), Error> {
    let repository = repository(cluster, sync).await?;
    let remote = preview.remote(&repository).await?;
    // Whoever writes the address in the cluster does not choose what is read of this machine.
    if remote.0.url.local_path().is_some() {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        return Err(Error::PathOfAgent { repository: format!("{namespace}/{}", sync.spec.git_repository) });
    }
    Ok(remote)
}

/// Whether the agent fetches the submodules of a commit; not if nobody can tell.
pub(super) async fn has_submodules(cluster: &Cluster, sync: &GitSync) -> bool {
    repository(cluster, sync).await.is_ok_and(|repository| repository.spec.submodules)
}

/// The GitRepository of the GitSync.
async fn repository(cluster: &Cluster, sync: &GitSync) -> Result<GitRepository, Error> {
    let kind = own_kind::<GitRepository>(cluster).await?;
    let (namespace, name) = (sync.metadata.namespace.as_deref().unwrap_or_default(), &sync.spec.git_repository);
    let found = cluster.get(&kind, Some(namespace), name).await?;
    syncs::understand(found.ok_or_else(|| Error::Missing { what: format!("GitRepository {namespace}/{name}") })?)
}

fn local(path: &Path) -> Result<Remote, Error> {
    let path = fs::canonicalize(path).map_err(|cause| Error::ReadFile { path: path.to_owned(), cause })?;
    Ok(Remote::new(RemoteUrl::local(path), Credentials::Anonymous))
}

/// The work tree that a directory is in; the directory itself if it is in none.
fn root_of(directory: &Path) -> Result<PathBuf, Error> {
    let unread = |cause| Error::ReadFile { path: directory.to_owned(), cause };
    let directory = fs::canonicalize(directory).map_err(unread)?;
    fs::read_dir(&directory).map_err(unread)?;
    Ok(directory.ancestors().find(|above| above.join(".git").exists()).unwrap_or(&directory).to_owned())
}
