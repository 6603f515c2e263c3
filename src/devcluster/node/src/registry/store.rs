//! Repositories on disk, one OCI image layout each.
//!
//! Invariant: a file gets its final name only when it is complete.

use super::{
    RegistryOptions,
    error::Refusal,
    files::absent,
    manifest::{self, Entry, Index, MAX_MANIFEST},
    name::{Digest, Reference, Repository},
    upload::Uploads,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};
use tokio::fs;

/// Maximum size of `index.json` in bytes: about sixty thousand tags.
const MAX_INDEX: u64 = 16 << 20;
/// Maximum number of manifests that are received concurrently.
const MANIFESTS: usize = 4;
/// Maximum number of repositories.
const MAX_REPOSITORIES: usize = 20_000;

/// The registry of a cluster.
#[derive(Debug)]
pub struct Registry {
    directory: PathBuf,
    pub(super) uploads: Uploads,
    /// Locked while an index changes.
    changing: tokio::sync::Mutex<()>,
    served_at: Mutex<BTreeSet<SocketAddr>>,
    /// Permits to receive a manifest.
    pub(super) manifests: tokio::sync::Semaphore,
}

impl Registry {
    /// Creates the registry of a directory.
    pub fn new(options: RegistryOptions) -> Self {
        let uploads = Uploads::new(options.directory.join(".uploads"));
        let directory = options.directory;
        Self {
            directory,
            uploads,
            changing: tokio::sync::Mutex::default(),
            served_at: Mutex::default(),
            manifests: tokio::sync::Semaphore::new(MANIFESTS),
        }
    }

    /// Returns the directory of the images.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn serve_at(&self, address: SocketAddr) {
        self.served_at.lock().insert(address);
    }

    /// Whether the host of an image reference is this registry: `ADDRESS:PORT` of a listener, or `localhost:PORT`.
    pub fn is_at(&self, host: &str) -> bool {
        let served_at = self.served_at.lock();
        match host.strip_prefix("localhost:").map(str::parse::<u16>) {
            Some(Ok(port)) => served_at.iter().any(|address| address.port() == port),
            Some(Err(_)) => false,
            None => host.parse().is_ok_and(|host| served_at.contains(&host)),
        }
    }

    fn layout(&self, repository: &Repository) -> PathBuf {
        self.directory.join(repository.folder())
    }

    /// Returns the path of a blob or manifest, whether it exists or not.
    pub(super) fn blob_path(&self, repository: &Repository, digest: &Digest) -> PathBuf {
        self.layout(repository).join("blobs/sha256").join(digest.hex())
    }

    /// Returns the size of a blob or manifest in bytes; `None` if it is missing.
    pub(super) async fn blob_size(&self, repository: &Repository, digest: &Digest) -> Result<Option<u64>, Refusal> {
        Ok(absent(fs::metadata(self.blob_path(repository, digest)).await)?.map(|metadata| metadata.len()))
    }

    /// Creates a repository unless it exists.
    async fn ensure(&self, repository: &Repository) -> Result<(), Refusal> {
        let layout = self.layout(repository);
        if absent(fs::metadata(layout.join("index.json")).await)?.is_some() {
            return Ok(());
        }
        let _changing = self.changing.lock().await;
        if self.repositories().await?.len() >= MAX_REPOSITORIES {
            return Err(Refusal::new(507, "DENIED", format!("there are {MAX_REPOSITORIES} repositories already")));
        }
        fs::create_dir_all(layout.join("blobs/sha256")).await?;
        self.write(&layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#).await?;
        if absent(fs::metadata(layout.join("index.json")).await)?.is_none() {
            self.write_index(repository, &Index::default()).await?;
        }
        Ok(())
    }

    /// Moves a finished upload into the repository.
    pub(super) async fn keep(&self, repository: &Repository, digest: &Digest, file: &Path) -> Result<(), Refusal> {
        self.ensure(repository).await?;
        Ok(fs::rename(file, self.blob_path(repository, digest)).await?)
    }

    /// Links a blob from another repository. Returns false if that repository does not have the blob, or the link
    /// fails.
    pub(super) async fn mount(&self, from: &Repository, to: &Repository, digest: &Digest) -> Result<bool, Refusal> {
        if self.blob_size(from, digest).await?.is_none() {
            return Ok(false);
        }
        self.ensure(to).await?;
        match fs::hard_link(self.blob_path(from, digest), self.blob_path(to, digest)).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(true),
            // The file system has no hard links: the client uploads the blob.
            Err(error) => {
                tracing::debug!(%error, "a blob cannot be shared between repositories");
                Ok(false)
            }
        }
    }

    /// Removes a blob. Manifests are not removed.
    pub(super) async fn remove_blob(&self, repository: &Repository, digest: &Digest) -> Result<bool, Refusal> {
        let is_manifest = |index: Index| index.find(&Reference::Digest(digest.clone())).is_some();
        if self.index(repository).await?.is_none_or(is_manifest) {
            return Ok(false);
        }
        Ok(absent(fs::remove_file(self.blob_path(repository, digest)).await)?.is_some())
    }

    /// Reads the index of a repository; `None` if there is no such repository.
    pub(super) async fn index(&self, repository: &Repository) -> Result<Option<Index>, Refusal> {
        let Some(bytes) = bounded(&self.layout(repository).join("index.json"), MAX_INDEX).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            tracing::warn!(%error, repository = repository.as_str(), "the index of a repository cannot be read");
            Refusal::new(500, "UNKNOWN", "the index of the repository cannot be read")
        })
    }

    /// Reads a manifest and its entry.
    pub(super) async fn manifest(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<(Entry, Vec<u8>), Refusal> {
        let index = self.index(repository).await?.ok_or_else(Refusal::name_unknown)?;
        let entry = index.find(reference).ok_or_else(Refusal::manifest_unknown)?.clone();
        let digest = Digest::parse(&entry.digest).ok_or_else(Refusal::manifest_unknown)?;
        let bytes = bounded(&self.blob_path(repository, &digest), MAX_MANIFEST).await?;
        let bytes = bytes.filter(|bytes| Digest::of(bytes) == digest).ok_or_else(Refusal::manifest_unknown)?;
        Ok((entry, bytes))
    }

    /// Stores a manifest. All its parts must exist.
    pub(super) async fn put_manifest(
        &self,
        repository: &Repository,
        reference: &Reference,
        content_type: &str,
        bytes: &[u8],
    ) -> Result<Digest, Refusal> {
        let digest = Digest::of(bytes);
        if matches!(reference, Reference::Digest(asked) if *asked != digest) {
            return Err(Refusal::digest_invalid());
        }
        let needs = manifest::needs(content_type, bytes)?;
        for part in needs.blobs.iter().chain(&needs.manifests) {
            if self.blob_size(repository, part).await?.is_none() {
                let message = format!("{} is referenced and not there", part.as_str());
                return Err(Refusal::new(404, "MANIFEST_BLOB_UNKNOWN", message));
            }
        }
        self.ensure(repository).await?;
        let _changing = self.changing.lock().await;
        let mut index = self.index(repository).await?.unwrap_or_default();
        self.write(&self.blob_path(repository, &digest), bytes).await?;
        index.put(reference, &needs.media_type, &digest, bytes.len() as u64);
        self.write_index(repository, &index).await?;
        Ok(digest)
    }

    /// Removes a tag or a manifest. Returns whether it existed.
    pub(super) async fn remove_manifest(
        &self,
        repository: &Repository,
        reference: &Reference,
    ) -> Result<bool, Refusal> {
        let _changing = self.changing.lock().await;
        let mut index = self.index(repository).await?.ok_or_else(Refusal::name_unknown)?;
        if !index.remove(reference) {
            return Ok(false);
        }
        self.write_index(repository, &index).await?;
        if let Reference::Digest(digest) = reference {
            absent(fs::remove_file(self.blob_path(repository, digest)).await)?;
        }
        Ok(true)
    }

    /// Returns all repositories in order.
    pub(super) async fn repositories(&self) -> Result<Vec<Repository>, Refusal> {
        let mut found = Vec::new();
        let Some(mut folders) = absent(fs::read_dir(&self.directory).await)? else { return Ok(found) };
        while let Some(folder) = folders.next_entry().await? {
            found.extend(folder.file_name().to_str().and_then(Repository::of_folder));
        }
        found.sort_unstable();
        Ok(found)
    }

    async fn write_index(&self, repository: &Repository, index: &Index) -> Result<(), Refusal> {
        let bytes = serde_json::to_vec(index).map_err(io::Error::from)?;
        if bytes.len() as u64 > MAX_INDEX {
            return Err(Refusal::new(507, "DENIED", "the repository has too many manifests"));
        }
        self.write(&self.layout(repository).join("index.json"), &bytes).await
    }

    /// Writes a file atomically. The caller must hold `changing`.
    async fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, bytes).await?;
        Ok(fs::rename(&unfinished, path).await?)
    }
}

/// Reads a file; `None` if it is missing. A file above `limit` bytes is an error.
pub(super) async fn bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(metadata) = absent(fs::metadata(path).await)? else { return Ok(None) };
    if metadata.len() > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a file of the layout is too large"));
    }
    absent(fs::read(path).await)
}
