//! Uploads of blobs: a growing file and the digest of its content so far.
//!
//! Invariant: the digest matches the written bytes, even if a client disconnects midway.

use super::{
    error::Refusal,
    files::absent,
    name::{Digest, Repository},
};
use bytes::Bytes;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{fs, io::AsyncWriteExt as _, sync::OnceCell};

/// Maximum size of a blob in bytes.
pub(super) const MAX_BLOB: u64 = 8 << 30;
/// Maximum number of concurrent uploads.
const MAX_UPLOADS: usize = 256;
/// An upload idle for longer than this may be removed.
const IDLE: Duration = Duration::from_mins(30);

/// All uploads of a registry.
#[derive(Debug)]
pub(super) struct Uploads {
    directory: PathBuf,
    ready: OnceCell<()>,
    open: Mutex<BTreeMap<String, Arc<Upload>>>,
}

/// One upload.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: String,
    repository: Repository,
    path: PathBuf,
    used_at: Mutex<Instant>,
    /// Locked by the request that writes.
    pub(super) content: tokio::sync::Mutex<Content>,
}

/// The content received so far.
#[derive(Debug)]
pub(super) struct Content {
    file: fs::File,
    hasher: Sha256,
    pub(super) size: u64,
    /// Whether a write failed, so that the content of the file is unknown.
    broken: bool,
}

impl Uploads {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, ready: OnceCell::new(), open: Mutex::default() }
    }

    /// Begins an upload.
    pub(super) async fn begin(&self, repository: &Repository) -> Result<Arc<Upload>, Refusal> {
        self.ready.get_or_try_init(|| self.prepare()).await?;
        for stale in self.take_stale() {
            absent(fs::remove_file(&stale.path).await)?;
        }
        if self.open.lock().len() >= MAX_UPLOADS {
            return Err(Refusal::new(429, "TOOMANYREQUESTS", format!("{MAX_UPLOADS} uploads are under way")));
        }
        let id = uuid::Uuid::new_v4().to_string();
        let path = self.directory.join(&id);
        let file = fs::File::create_new(&path).await?;
        let content = Content { file, hasher: Sha256::new(), size: 0, broken: false };
        let upload = Arc::new(Upload {
            id: id.clone(),
            repository: repository.clone(),
            path,
            used_at: Mutex::new(Instant::now()),
            content: tokio::sync::Mutex::new(content),
        });
        self.open.lock().insert(id, upload.clone());
        Ok(upload)
    }

    /// Removes uploads of an earlier process, because their digests are unknown.
    async fn prepare(&self) -> Result<(), Refusal> {
        absent(fs::remove_dir_all(&self.directory).await)?;
        Ok(fs::create_dir_all(&self.directory).await?)
    }

    fn take_stale(&self) -> Vec<Arc<Upload>> {
        let mut open = self.open.lock();
        let stale = |upload: &Upload| upload.last_used().elapsed() > IDLE && upload.content.try_lock().is_ok();
        open.extract_if(.., |_, upload| stale(upload)).map(|(_, upload)| upload).collect()
    }

    /// Returns an upload of a repository.
    pub(super) fn find(&self, repository: &Repository, id: &str) -> Result<Arc<Upload>, Refusal> {
        let found = self.open.lock().get(id).filter(|upload| upload.repository == *repository).cloned();
        let upload = found.ok_or_else(Refusal::upload_unknown)?;
        *upload.used_at.lock() = Instant::now();
        Ok(upload)
    }

    /// Removes an upload.
    pub(super) async fn forget(&self, upload: &Upload) -> Result<(), Refusal> {
        self.open.lock().remove(&upload.id);
        absent(fs::remove_file(&upload.path).await)?;
        Ok(())
    }
}

impl Upload {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn last_used(&self) -> Instant {
        *self.used_at.lock()
    }
}

impl Content {
    /// Appends bytes.
    pub(super) async fn append(&mut self, bytes: &Bytes) -> Result<(), Refusal> {
        if self.broken {
            return Err(Refusal::upload_invalid("an earlier part could not be written"));
        }
        let size = self.size + bytes.len() as u64;
        if size > MAX_BLOB {
            return Err(Refusal::too_large(MAX_BLOB));
        }
        self.broken = true;
        self.file.write_all(bytes).await?;
        self.broken = false;
        self.hasher.update(bytes);
        self.size = size;
        Ok(())
    }

    /// Flushes the file and returns the digest of its content.
    pub(super) async fn finish(&mut self) -> Result<Digest, Refusal> {
        if self.broken {
            return Err(Refusal::upload_invalid("a part could not be written"));
        }
        self.file.flush().await?;
        Ok(Digest::finished(self.hasher.clone()))
    }
}
