//! The files of Functions with code in Git, for `mainstay ui`.
//!
//! Invariant: the GitRepository and its Secrets are read with the permissions of the user. Invariant: sizes and times
//! have limits, and the only local repository that is read is that of `mainstay dev`. Invariant: no address in the cluster
//! leads to a loopback service of this machine.
//!
//! Not here: `mainstay console`. Its pod does not connect to Git hosts, because the users of a cluster choose their
//! addresses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::ResourceExt as _;
use serde_json::Value;
use tempfile::TempDir;

use super::page_secrets::PageSecrets;
use crate::cli::connection::{DEFAULT_NAMESPACE, own_kind};
use crate::cli::dev_run::DevRun;
use crate::cli::environment::variables;
use crate::cli::{Error, private_directory, syncs};
use mainstay_api::{Function, GitRepository, names};
use mainstay_cluster::secrets::Purpose;
use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_console::{Files, FilesReader};
use mainstay_git::{
    Access, BaseDir, EntryKind, Limits, Reference, Remote, RemoteUrl, Settings, SharedHostKeys, Snapshot, Source,
};
use mainstay_object::egress::{Egress, proxy_hosts};
use mainstay_object::failure::chain;

/// Maximum size of all mirrors, of a mirror and of a pack, in bytes.
const MIRRORS: u64 = 512 << 20;
const MIRROR: u64 = 256 << 20;
const PACK: u64 = 128 << 20;
/// Maximum number of files below the directory of a Function, and of files on a page.
const ENTRIES: usize = 10_000;
const LISTED: usize = 500;
/// Maximum size of a file that is read, in bytes.
const FILE: u64 = 1 << 20;
/// Maximum duration of a fetch.
const WITHIN: Duration = Duration::from_secs(60);
/// Age up to which the commit of a branch is not looked up again.
const MAX_AGE: Duration = Duration::from_secs(30);

/// The mirrors of this process. Their directory is removed with them.
struct Mirrors {
    source: Source,
    /// The repository that `mainstay dev` follows.
    local: Option<PathBuf>,
    egress: Egress,
    _room: TempDir,
}

/// Returns the reader of files.
pub(in crate::cli) fn files_reader(run: DevRun) -> Result<FilesReader, Error> {
    let room = private_directory::create().map_err(|cause| Error::ReadFile { path: std::env::temp_dir(), cause })?;
    let mut settings = Settings::new(room.path().join("mirrors"));
    settings.allow_local = run.repository.is_some();
    settings.egress.proxies = proxy_hosts(variables());
    settings.budget = MIRRORS;
    settings.deadlines.fetch = WITHIN;
    settings.limits = Limits {
        pack_bytes: PACK,
        unpacked_bytes: 2 * PACK,
        mirror_bytes: MIRROR,
        entries: ENTRIES,
        ..Limits::default()
    };
    let egress = run.egress();
    let mirrors = Arc::new(Mirrors { source: Source::new(settings), local: run.repository, egress, _room: room });
    Ok(Arc::new(move |cluster: Cluster, function: Value, path: String| -> BoxFuture<'static, _> {
        let mirrors = Arc::clone(&mirrors);
        Box::pin(async move { Box::pin(mirrors.files(&cluster, function, path)).await })
    }))
}

impl Mirrors {
    /// Reads the files of the commit that was built, or that the Function follows.
    async fn files(&self, cluster: &Cluster, function: Value, path: String) -> Result<Files, String> {
        let function: Function = syncs::understand(function).map_err(|error| chain(&error))?;
        let remote = self.remote(cluster, &function).await?;
        let built = function.status.as_ref().and_then(|status| status.commit.as_deref());
        let wanted = built.filter(|commit| !commit.is_empty()).or(function.spec.reference.as_deref());
        let reference = Reference::parse(wanted.unwrap_or_default().trim()).map_err(|error| chain(&error))?;
        let directory = function.spec.base_dir.as_deref().unwrap_or_default().trim();
        let directory = BaseDir::parse(directory).map_err(|error| chain(&error))?;
        self.learn_host_keys(cluster).await;
        let found = self.source.lookup(&remote, &reference, MAX_AGE).await.map_err(|error| chain(&error))?;
        let snapshot = self.source.fetch(&remote, &found).await.map_err(|error| chain(&error))?;
        let read = snapshot.blocking(move |snapshot| files_of(snapshot, &directory, &path)).await;
        read.map_err(|error| chain(&error))?.map_err(|error| chain(&error))
    }

    /// Reads the agent's host keys, if the user may read them.
    async fn learn_host_keys(&self, cluster: &Cluster) {
        let maps = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
        let map = cluster.get(&maps, Some(DEFAULT_NAMESPACE), names::KNOWN_HOSTS).await.ok().flatten();
        if let Some(lines) = map.unwrap_or_default()["data"][names::KNOWN_HOSTS_KEY].as_str() {
            self.source.set_host_keys(SharedHostKeys::Lines(lines.into()));
        }
    }

    /// Returns the repository of a Function with its login.
    async fn remote(&self, cluster: &Cluster, function: &Function) -> Result<Remote, String> {
        let namespace = function.namespace().unwrap_or_default();
        let repository = match function.spec.own_repository() {
            Some(own) => GitRepository::new("", own.spec()),
            None => named(cluster, &namespace, function.spec.source.trim()).await?,
        };
        let spec = &repository.spec;
        let url = RemoteUrl::parse(&spec.url).map_err(|error| chain(&error))?;
        mainstay_git::supported(&url, spec).map_err(|error| chain(&error))?;
        if mainstay_git::needs_identity(spec) {
            return Err(
                "The repository is read with an identity of a cloud, which this machine does not have.".to_owned()
            );
        }
        // A user who can write the URL in the cluster must not be able to choose files of this machine.
        if url.local_path().is_some_and(|path| self.local.as_deref() != Some(path)) {
            return Err("The repository is a directory of the agent's machine.".to_owned());
        }
        let Access { credentials, connection } = access(cluster, function, &repository, &url).await?;
        let connection = connection.within(self.egress);
        Ok(Remote { connection, submodules: spec.submodules, lfs: spec.lfs, ..Remote::new(url, credentials) })
    }
}

/// Reads the GitRepository that a Function names.
async fn named(cluster: &Cluster, namespace: &str, name: &str) -> Result<GitRepository, String> {
    let kind = own_kind::<GitRepository>(cluster).await.map_err(|error| chain(&error))?;
    let found = cluster.get(&kind, Some(namespace), name).await.map_err(|error| chain(&error))?;
    let found = found.ok_or_else(|| format!("The GitRepository {name} does not exist in this namespace."))?;
    syncs::understand(found).map_err(|error| chain(&error))
}

/// Reads the login and the proxy of a repository. One without Secrets needs no list of their purposes.
async fn access(
    cluster: &Cluster,
    function: &Function,
    repository: &GitRepository,
    url: &RemoteUrl,
) -> Result<Access, String> {
    let (namespace, spec) = (function.namespace().unwrap_or_default(), &repository.spec);
    if spec.auth.is_none() && spec.proxy_secret_ref.is_none() {
        let access = mainstay_git::access(None, None).map_err(|error| chain(&error))?;
        return Ok(access.with_pins(repository, url));
    }
    let secrets = PageSecrets::list(cluster, &namespace).await?;
    let login = match &spec.auth {
        Some(auth) if function.spec.own_repository().is_some() => Some(secrets.own(function, auth, url).await?),
        Some(auth) => Some(secrets.read(&auth.secret_name, Purpose::Repository).await?),
        None => None,
    };
    let access = mainstay_git::access(spec.auth.as_ref(), login.as_ref()).map_err(|error| chain(&error))?;
    let access = access.with_pins(repository, url);
    let Some(proxy) = &spec.proxy_secret_ref else { return Ok(access) };
    let proxy = secrets.read(&proxy.name, Purpose::Proxy).await?;
    access.through_proxy(&proxy).map_err(|error| chain(&error))
}

/// Lists the files of a directory, and reads the one at this path. Blocks.
fn files_of(snapshot: &Snapshot, directory: &BaseDir, path: &str) -> Result<Files, mainstay_git::Error> {
    let mut entries = snapshot.entries(directory)?;
    // Links are not followed, and the path of a flawed entry need not be unique.
    entries.retain(|entry| entry.kind == EntryKind::File && entry.flaw.is_none());
    let file = match entries.iter().find(|entry| entry.path == path) {
        Some(entry) if entry.size > FILE => Some(Err(format!("The file has more than {} MiB.", FILE >> 20))),
        Some(entry) => {
            let text = String::from_utf8(snapshot.read(entry)?);
            Some(text.map_err(|_| "The file is not encoded as UTF-8.".to_owned()))
        }
        None => None,
    };
    let more = entries.len().saturating_sub(LISTED);
    entries.truncate(LISTED);
    let paths = entries.into_iter().map(|entry| (entry.path, entry.size)).collect();
    Ok(Files { commit: snapshot.commit.to_string(), paths, more, file })
}
