//! One commit of a remote, ready to be read.

use std::fmt;
use std::sync::Arc;

use super::error::{Error, Fault};
use super::id::{BlobId, Commit, Id, TreeId};
use super::mirror::Generation;
use super::objects::Objects;
use super::reference::BaseDir;
use super::settings::Limits;
use super::slots::Share;

/// One commit with its files, immutable. Cheap to clone; keeps the mirror that it reads from alive.
#[derive(Clone)]
pub struct Snapshot {
    /// The commit.
    pub commit: Commit,
    /// First line of its message, at most 200 characters.
    pub subject: Arc<str>,
    inner: Arc<Inner>,
}

struct Inner {
    root: Id,
    objects: Objects,
    /// `None`: a local repository.
    generation: Option<Arc<Generation>>,
    limits: Limits,
    share: Share,
}

/// A file, or what stands in a file's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root of the repository. Bytes that are no UTF-8 are replaced.
    pub path: String,
    /// Id of its content.
    pub id: BlobId,
    /// Bytes of its content; 0 for submodules.
    pub size: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Whether a regular file is marked as a program.
    pub executable: bool,
}

/// What an [`Entry`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is its target, and it is never followed.
    Symlink,
    /// Another repository's commit, which is never fetched.
    Submodule,
}

impl Snapshot {
    /// Reads the commit itself; `None` when the objects lack it or its root directory. Blocks.
    pub(super) fn open(
        objects: Objects,
        commit: Commit,
        generation: Option<Arc<Generation>>,
        limits: Limits,
        share: Share,
    ) -> Result<Option<Self>, Fault> {
        let Some(facts) = objects.commit(commit)? else { return Ok(None) };
        let inner = Inner { root: facts.tree, objects, generation, limits, share };
        inner.objects.directory(inner.root, &BaseDir::root())?;
        Ok(Some(Self { commit, subject: facts.subject.into(), inner: Arc::new(inner) }))
    }

    /// Id of the directory, which changes when anything in it does; `None` when there is no such directory.
    pub async fn tree(&self, base_dir: &BaseDir) -> Result<Option<TreeId>, Error> {
        let base_dir = base_dir.clone();
        self.blocking(move |snapshot| {
            let found = snapshot.inner.objects.directory(snapshot.inner.root, &base_dir);
            found.map(|id| id.map(TreeId)).map_err(|cause| snapshot.unread(base_dir.to_string(), cause))
        })
        .await?
    }

    /// Everything under the directory, recursively, in the order of paths. Blocks.
    pub fn entries(&self, base_dir: &BaseDir) -> Result<Vec<Entry>, Error> {
        let inner = &self.inner;
        let walked = inner.objects.directory(inner.root, base_dir).and_then(|directory| {
            let directory = directory.ok_or(Fault::MissingDirectory)?;
            inner.objects.walk(directory, base_dir.path(), &inner.limits)
        });
        walked.map_err(|cause| self.unread(base_dir.to_string(), cause))
    }

    /// A file's content, or the target of a link. Blocks.
    ///
    /// # Errors
    /// When it is larger than [`Limits::file_bytes`], or the mirror is damaged; the next fetch then makes a new one.
    pub fn read(&self, entry: &Entry) -> Result<Vec<u8>, Error> {
        let read = self.inner.objects.blob(entry.id, self.inner.limits.file_bytes);
        read.map_err(|cause| self.unread(entry.path.clone(), cause))
    }

    /// Runs `work`, which may block, on one of the source's slots, on behalf of the namespace that fetched it.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let snapshot = self.clone();
        let done = self.inner.share.run(move || work(&snapshot)).await;
        done.map_err(|cause| self.unread("files".to_owned(), cause))
    }

    fn unread(&self, path: String, cause: Fault) -> Error {
        if let (Fault::Corrupt { .. }, Some(generation)) = (&cause, &self.inner.generation) {
            generation.suspect();
        }
        Error::Read { path, commit: self.commit, cause: Arc::new(cause) }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.commit)
    }
}
