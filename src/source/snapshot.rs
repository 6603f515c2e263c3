//! A commit of a remote, ready to be read.

use std::fmt;
use std::sync::Arc;

use super::ancestry::{Ancestry, ancestry};
use super::error::{Error, Fault};
use super::id::{BlobId, Commit, Id, TreeId};
use super::mirror::Generation;
use super::objects::Objects;
use super::permits::TenantPermits;
use super::reference::BaseDir;
use super::settings::Limits;

/// A commit with its files, immutable. Cheap to clone; keeps the mirror that it reads from.
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
    /// `None` for a local repository.
    generation: Option<Arc<Generation>>,
    limits: Limits,
    share: TenantPermits,
}

/// A file, symlink or submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root of the repository. Invalid UTF-8 is replaced.
    pub path: String,
    /// Id of its content.
    pub id: BlobId,
    /// Bytes of its content; 0 for submodules.
    pub size: u64,
    /// Its kind.
    pub kind: EntryKind,
    /// Whether it is an executable file.
    pub executable: bool,
}

/// The kind of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is its target, and it is never followed.
    Symlink,
    /// A submodule, which is never fetched.
    Submodule,
}

impl Snapshot {
    /// Reads the commit; `None` if it or its root directory is missing. Blocks.
    pub(super) fn open(
        objects: Objects,
        commit: Commit,
        generation: Option<Arc<Generation>>,
        limits: Limits,
        share: TenantPermits,
    ) -> Result<Option<Self>, Fault> {
        let Some(info) = objects.commit(commit)? else { return Ok(None) };
        let inner = Inner { root: info.tree, objects, generation, limits, share };
        inner.objects.directory(inner.root, &BaseDir::root())?;
        Ok(Some(Self { commit, subject: info.subject.into(), inner: Arc::new(inner) }))
    }

    /// How the commit is related to one that was followed before, as far as the mirror shows that. Blocks.
    pub fn ancestry(&self, old: Commit) -> Result<Ancestry, Error> {
        let related = ancestry(self.commit.0, old.0, |id| self.inner.objects.parents(Commit(id)));
        related.map_err(|cause| self.unread("the history".to_owned(), cause))
    }

    /// The commit as Git stores it. Blocks.
    pub(super) fn raw_commit(&self) -> Result<Vec<u8>, Fault> {
        self.inner.objects.raw_commit(self.commit)
    }

    /// A tag object as Git stores it. Blocks.
    pub(super) fn raw_tag(&self, id: Id) -> Result<Vec<u8>, Fault> {
        self.inner.objects.raw_tag(id)
    }

    /// Tree id of a directory; `None` if the directory does not exist.
    pub async fn tree(&self, base_dir: &BaseDir) -> Result<Option<TreeId>, Error> {
        let base_dir = base_dir.clone();
        self.blocking(move |snapshot| {
            let found = snapshot.inner.objects.directory(snapshot.inner.root, &base_dir);
            found.map(|id| id.map(TreeId)).map_err(|cause| snapshot.unread(base_dir.to_string(), cause))
        })
        .await?
    }

    /// All entries of the directory, recursively, ordered by path. Blocks.
    pub fn entries(&self, base_dir: &BaseDir) -> Result<Vec<Entry>, Error> {
        self.listing(base_dir, |_| true)
    }

    /// The same for somebody who reads only some of the files: the others have the size 0, and need not be there. So a
    /// directory with very many other files costs little. Blocks.
    pub fn listing(&self, base_dir: &BaseDir, is_read: impl Fn(&str) -> bool) -> Result<Vec<Entry>, Error> {
        let inner = &self.inner;
        let walked = inner.objects.directory(inner.root, base_dir).and_then(|directory| {
            let directory = directory.ok_or(Fault::MissingDirectory)?;
            inner.objects.walk(directory, base_dir.path(), &inner.limits, is_read)
        });
        walked.map_err(|cause| self.unread(base_dir.to_string(), cause))
    }

    /// A file's content, or the target of a link. Blocks.
    ///
    /// # Errors
    /// If it is larger than [`Limits::file_bytes`], or the mirror is damaged; the next fetch then replaces the mirror.
    pub fn read(&self, entry: &Entry) -> Result<Vec<u8>, Error> {
        let read = self.inner.objects.blob(entry.id, self.inner.limits.file_bytes);
        read.map_err(|cause| self.unread(entry.path.clone(), cause))
    }

    /// Runs blocking `work` with a permit of the namespace that fetched the snapshot.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let snapshot = self.clone();
        let done = self.inner.share.run(move || work(&snapshot)).await;
        done.map_err(|cause| self.unread("files".to_owned(), cause))
    }

    fn unread(&self, path: String, cause: Fault) -> Error {
        let cause = match (cause, &self.inner.generation) {
            (Fault::Corrupt { what }, Some(generation)) => generation.blame(what),
            (cause, _) => cause,
        };
        Error::Read { path, commit: self.commit, cause: Arc::new(cause) }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.commit)
    }
}
