//! A readable commit of a remote.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::ancestry::{Ancestry, ancestry};
use super::entry::{Entry, EntryKind, Found};
use super::error::{Error, Fault};
use super::id::{BlobId, Commit, Id, TreeId};
use super::large_files::{LargeFiles, WantedFiles};
use super::lfs::{self, Pointer};
use super::mirror::Generation;
use super::missing_directory::MissingDirectory;
use super::objects::{CommitHeader, Objects, damaged};
use super::permits::{Permit, TenantPermits};
use super::reference::BaseDir;
use super::settings::Limits;
use super::skipped_trees::SkippedTrees;
use super::submodules;
use super::walk::{PATHS, walk};

/// Size in bytes above which only one file is read at a time, because decoding it may take 40 times as much memory.
const LARGE_FILE: u64 = 128 << 10;

/// Maximum total path bytes of a short listing.
const SHORT: usize = 2 << 20;

/// An immutable commit with its files. Cheap to clone. While a snapshot exists, the mirror that it reads from is kept.
#[derive(Clone)]
pub struct Snapshot {
    /// The commit.
    pub commit: Commit,
    /// Subject and author of the commit.
    pub header: Arc<CommitHeader>,
    inner: Arc<Inner>,
    /// Fetched submodules of the commit, by path.
    submodules: Arc<BTreeMap<String, Snapshot>>,
    /// Fetched Git LFS files of the commit.
    large: Option<Arc<LargeFiles>>,
}

/// A submodule of a commit that `.gitmodules` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SubmoduleLink {
    pub(super) path: String,
    /// The address as written in `.gitmodules`.
    pub(super) address: String,
    pub(super) commit: Commit,
}

struct Inner {
    root: Id,
    objects: Objects,
    /// `None` for a local repository.
    generation: Option<Arc<Generation>>,
    limits: Limits,
    permits: ReadPermits,
}

/// Permits for reading a snapshot.
#[derive(Clone, Debug)]
pub(super) struct ReadPermits {
    pub(super) threads: TenantPermits,
    /// Permit for large files.
    pub(super) large: TenantPermits,
    /// Permit for long listings.
    pub(super) long: TenantPermits,
}

/// Exclusive access: while this value exists, no other caller has such a value.
#[derive(Debug)]
pub struct Alone(#[expect(dead_code, reason = "it is held")] Option<Permit>);

/// The content of a file. Only one large file exists at a time, since decoding may take much memory.
pub struct Content {
    bytes: Vec<u8>,
    _alone: Alone,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Omits the content, which may be that of a Secret.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.bytes.len())
    }
}

impl Snapshot {
    /// Opens the commit; `None` if it or its root directory is missing. Blocks.
    pub(super) fn open(
        objects: Objects,
        commit: Commit,
        generation: Option<Arc<Generation>>,
        limits: Limits,
        permits: ReadPermits,
    ) -> Result<Option<Self>, Fault> {
        let Some(info) = objects.commit(commit)? else { return Ok(None) };
        let inner = Inner { root: info.tree, objects, generation, limits, permits };
        inner.objects.directory(inner.root, &BaseDir::root())?;
        Ok(Some(Self {
            commit,
            header: Arc::new(info.header),
            inner: Arc::new(inner),
            submodules: Arc::default(),
            large: None,
        }))
    }

    /// Returns how the commit is related to an earlier one, as far as the mirror contains the history. Blocks.
    pub fn ancestry(&self, old: Commit) -> Result<Ancestry, Error> {
        let related = ancestry(self.commit.0, old.0, |id| self.inner.objects.parents(Commit(id)));
        related.map_err(|cause| self.unread("the history".to_owned(), cause))
    }

    /// The objects of the mirror.
    pub(super) fn objects(&self) -> &Objects {
        &self.inner.objects
    }

    /// The root directory.
    pub(super) fn root(&self) -> Id {
        self.inner.root
    }

    /// Returns the commit in Git's stored form. Blocks.
    pub(super) fn raw_commit(&self) -> Result<Vec<u8>, Fault> {
        self.inner.objects.raw_commit(self.commit)
    }

    /// Returns a tag object in Git's stored form. Blocks.
    pub(super) fn raw_tag(&self, id: Id) -> Result<Vec<u8>, Fault> {
        self.inner.objects.raw_tag(id)
    }

    /// Returns the tree id of a directory; `None` if it does not exist.
    pub async fn tree(&self, base_dir: &BaseDir) -> Result<Option<TreeId>, Error> {
        let base_dir = base_dir.clone();
        self.blocking(move |snapshot| snapshot.tree_at(&base_dir)).await?
    }

    fn tree_at(&self, base_dir: &BaseDir) -> Result<Option<TreeId>, Error> {
        if let Some((_, submodule, rest)) = self.submodule_at(base_dir.path()) {
            return submodule.tree_at(&BaseDir::parse(rest)?);
        }
        let found = self.inner.objects.directory(self.inner.root, base_dir);
        found.map(|id| id.map(TreeId)).map_err(|cause| self.unread(base_dir.to_string(), cause))
    }

    /// Describes what exists in place of a missing directory.
    pub async fn missing_directory(&self, base_dir: &BaseDir) -> Result<MissingDirectory, Error> {
        let base_dir = base_dir.clone();
        self.blocking(move |snapshot| snapshot.instead_of(&base_dir)).await?
    }

    fn instead_of(&self, base_dir: &BaseDir) -> Result<MissingDirectory, Error> {
        if let Some((path, submodule, rest)) = self.submodule_at(base_dir.path()) {
            let found = submodule.instead_of(&BaseDir::parse(rest)?)?;
            let parent = BaseDir::parse(&format!("{path}/{}", found.parent.path()))?;
            return Ok(MissingDirectory { base_dir: base_dir.clone(), commit: self.commit, parent, ..found });
        }
        let mut parent = base_dir.split().0;
        let directory = loop {
            // The root always exists.
            match self.tree_at(&parent)? {
                Some(TreeId(directory)) => break directory,
                None => parent = parent.split().0,
            }
        };
        let child = MissingDirectory::child(base_dir, &parent);
        let names = self.inner.objects.names(directory);
        let names = names.map_err(|cause| self.unread(parent.to_string(), cause))?;
        let instead =
            names.iter().find(|(name, _)| name == child).and_then(|(_, kind)| kind.map(EntryKind::is_no_directory));
        let fetched = |name: &str| self.submodules.contains_key(format!("{parent}/{name}").trim_start_matches('/'));
        let directories = names.into_iter().filter(|(name, kind)| kind.is_none() || fetched(name));
        let directories = directories.map(|(name, _)| name).collect();
        Ok(MissingDirectory { base_dir: base_dir.clone(), commit: self.commit, parent, instead, directories })
    }

    /// Returns the submodules that `.gitmodules` lists. Blocks.
    pub(super) fn submodules(&self) -> Result<Vec<SubmoduleLink>, Error> {
        let (objects, root) = (&self.inner.objects, self.inner.root);
        let unread = |cause| self.unread(submodules::FILE.to_owned(), cause);
        let file = objects.entry(root, &BaseDir::parse(submodules::FILE)?).map_err(unread)?;
        let Some((EntryKind::File, id)) = file else { return Ok(Vec::new()) };
        let text = objects.blob(BlobId(id), submodules::FILE_BYTES).map_err(unread)?;
        let mut addresses = BTreeMap::new();
        for (path, address) in submodules::read(&String::from_utf8_lossy(&text))? {
            addresses.insert(BaseDir::parse(&path)?.path().to_owned(), address);
        }
        // A listed path at which the commit has no submodule is ignored.
        let found = objects.submodules(root, addresses.keys().map(String::as_str)).map_err(unread)?;
        let link = |(path, commit): (&str, Commit)| {
            Some(SubmoduleLink { path: path.to_owned(), address: addresses.get(path)?.clone(), commit })
        };
        Ok(found.into_iter().filter_map(link).collect())
    }

    /// Returns a digest of the fetched submodules below a directory, recursively; `None` without submodules. Tree id
    /// and digest together determine the directory's files. (The address of a submodule does not affect its files.)
    pub fn submodules_below(&self, base_dir: &BaseDir) -> Option<String> {
        let (mut holder, mut base) = (self, base_dir.path());
        while let Some((_, submodule, rest)) = holder.submodule_at(base) {
            (holder, base) = (submodule, rest);
        }
        let mut found = Vec::new();
        holder.list_submodules(base, "", &mut found);
        let mut digest = Sha256::new();
        for (path, commit) in &found {
            digest.update((path.len() as u64).to_be_bytes());
            digest.update(path);
            digest.update(commit.to_string());
        }
        (!found.is_empty()).then(|| hex::encode(digest.finalize()))
    }

    fn list_submodules(&self, base: &str, prefix: &str, found: &mut Vec<(String, Commit)>) {
        for (path, submodule) in self.submodules.iter() {
            let is_below = path.strip_prefix(base).is_some_and(|rest| base.is_empty() || rest.starts_with('/'));
            if is_below {
                let path = format!("{prefix}{path}");
                let below = format!("{path}/");
                found.push((path, submodule.commit));
                submodule.list_submodules("", &below, found);
            }
        }
    }

    /// Returns the same snapshot with these submodules.
    pub(super) fn with_submodules(self, submodules: BTreeMap<String, Self>) -> Self {
        Self { submodules: Arc::new(submodules), ..self }
    }

    /// Returns the Git LFS pointers among these files. Blocks.
    pub(super) fn wanted_files(&self, files: Vec<Entry>) -> Result<WantedFiles, Error> {
        let mut wanted = WantedFiles::default();
        let mut below: BTreeMap<&str, Vec<Entry>> = BTreeMap::new();
        for file in files {
            if file.kind != EntryKind::File || file.size >= lfs::POINTER_BYTES {
                continue;
            }
            if let Some((path, _, rest)) = self.submodule_at(&file.path) {
                below.entry(path).or_default().push(Entry { path: rest.to_owned(), ..file });
            } else if let Some(pointer) = Pointer::read(&self.read(&file)?) {
                wanted.pointers.insert(file.id, (file.path, pointer));
            }
        }
        if !wanted.pointers.is_empty()
            && let Some(id) = self.lfs_config_file()?
        {
            let text = self.inner.objects.blob(id, submodules::FILE_BYTES);
            let text = text.map_err(|cause| self.unread(lfs::CONFIG_FILE.to_owned(), cause))?;
            wanted.config = Some(String::from_utf8_lossy(&text).into_owned());
        }
        for (path, files) in below {
            let Some(submodule) = self.submodules.get(path) else { continue };
            let files = submodule.wanted_files(files)?;
            if files.first().is_some() {
                wanted.below.insert(path.to_owned(), files);
            }
        }
        if !wanted.below.is_empty() {
            let links = self.submodules()?.into_iter();
            wanted.addresses = links.map(|link| (link.path, link.address)).collect();
        }
        Ok(wanted)
    }

    /// Returns the id of `.lfsconfig`, which configures the LFS server; `None` without the file.
    pub async fn lfs_config(&self) -> Result<Option<String>, Error> {
        Ok(self.blocking(Self::lfs_config_file).await??.map(|id| id.to_string()))
    }

    fn lfs_config_file(&self) -> Result<Option<BlobId>, Error> {
        let path = BaseDir::parse(lfs::CONFIG_FILE)?;
        let found = self.inner.objects.entry(self.inner.root, &path);
        match found.map_err(|cause| self.unread(lfs::CONFIG_FILE.to_owned(), cause))? {
            Some((EntryKind::File, id)) => Ok(Some(BlobId(id))),
            _ => Ok(None),
        }
    }

    /// Returns the mirror from which the snapshot reads; `None` for a local repository.
    pub(super) fn generation(&self) -> Option<Arc<Generation>> {
        self.inner.generation.clone()
    }

    /// Returns the same snapshot with these files.
    pub(super) fn with_large_files(self, large: LargeFiles) -> Self {
        Self { large: Some(Arc::new(large)), ..self }
    }

    /// Returns the fetched submodules of the commit, by path.
    pub(super) fn fetched_submodules(&self) -> BTreeMap<String, Self> {
        (*self.submodules).clone()
    }

    /// Finds the submodule at a path or above it. Returns the submodule's path and snapshot, and the path within it.
    fn submodule_at<'p>(&self, path: &'p str) -> Option<(&str, &Self, &'p str)> {
        self.submodules.iter().find_map(|(own, submodule)| {
            let rest = path.strip_prefix(own.as_str())?;
            let rest = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
            Some((own.as_str(), submodule, rest))
        })
    }

    /// Returns the entries with this name in the directories above `base_dir`, from the root down. Blocks.
    pub fn above(&self, base_dir: &BaseDir, name: &str) -> Result<Vec<Entry>, Error> {
        let inner = &self.inner;
        let entries = inner.objects.above(inner.root, base_dir, name).and_then(|found| {
            let sized = found.into_iter().map(|(path, kind, id)| {
                let size = match kind {
                    EntryKind::Submodule => 0,
                    _ => inner.objects.header(id)?.ok_or_else(|| damaged("a file is missing"))?.0,
                };
                let large = self.large.as_ref().and_then(|large| large.content(BlobId(id)));
                let (id, size) = large.unwrap_or((BlobId(id), size));
                Ok(Entry { path, id, size, kind, executable: false, flaw: None })
            });
            sized.collect::<Result<Vec<_>, Fault>>()
        });
        let mut entries = entries.map_err(|cause| self.unread(base_dir.to_string(), cause))?;
        if let Some((own, submodule, rest)) = self.submodule_at(base_dir.path()) {
            let below = submodule.above(&BaseDir::parse(rest)?, name)?;
            entries.extend(below.into_iter().map(|entry| Entry { path: format!("{own}/{}", entry.path), ..entry }));
        }
        Ok(entries)
    }

    /// Returns what exists at a path, without following links. Blocks.
    pub fn at(&self, path: &str) -> Result<Found, Error> {
        let place = BaseDir::parse(path)?;
        if let Some((own, submodule, rest)) = self.submodule_at(path) {
            return Ok(match submodule.at(rest)? {
                Found::File(entry) => Found::File(Entry { path: format!("{own}/{}", entry.path), ..entry }),
                other => other,
            });
        }
        if self.tree_at(&place)?.is_some() {
            return Ok(Found::Directory);
        }
        let inner = &self.inner;
        let found = inner.objects.entry(inner.root, &place).and_then(|found| {
            let Some((kind, id)) = found else { return Ok(Found::Nothing) };
            if kind != EntryKind::File {
                return Ok(Found::Other(kind));
            }
            let size = inner.objects.header(id)?.ok_or_else(|| damaged("a file is missing"))?.0;
            let large = self.large.as_ref().and_then(|large| large.content(BlobId(id)));
            let (id, size) = large.unwrap_or((BlobId(id), size));
            Ok(Found::File(Entry { path: path.to_owned(), id, size, kind, executable: false, flaw: None }))
        });
        found.map_err(|cause| self.unread(path.to_owned(), cause))
    }

    /// Returns all entries of the directory, recursively, ordered by path. Blocks.
    pub fn entries(&self, base_dir: &BaseDir) -> Result<Vec<Entry>, Error> {
        self.list(base_dir, &self.inner.limits, &mut 0, None)
    }

    /// Returns the entries without files that are not read. Omitted files cost nothing, and may be missing in the
    /// mirror. Blocks.
    pub fn listing(&self, base_dir: &BaseDir, skipped: &SkippedTrees) -> Result<Vec<Entry>, Error> {
        self.list(base_dir, &self.inner.limits, &mut 0, Some(skipped))
    }

    /// Returns the listing with exclusive access if it is long. Call it on a thread of [`Snapshot::blocking`].
    pub fn listing_alone(&self, base_dir: &BaseDir, skipped: &SkippedTrees) -> Result<(Vec<Entry>, Alone), Error> {
        let short = Limits { path_bytes: self.inner.limits.path_bytes.min(SHORT), ..self.inner.limits };
        match self.list(base_dir, &short, &mut 0, Some(skipped)) {
            Err(Error::Read { cause, .. }) if matches!(*cause, Fault::TooLarge { what: PATHS, .. }) => {}
            listed => return Ok((listed?, Alone(None))),
        }
        let alone = self.inner.permits.long.acquire_here();
        let alone = alone.map_err(|cause| self.unread(base_dir.to_string(), cause))?;
        Ok((self.listing(base_dir, skipped)?, Alone(alone)))
    }

    /// Lists a directory. The limit covers all submodules; `seen` counts the entries so far.
    fn list(
        &self,
        base_dir: &BaseDir,
        limits: &Limits,
        seen: &mut usize,
        skipped: Option<&SkippedTrees>,
    ) -> Result<Vec<Entry>, Error> {
        if let Some((path, submodule, rest)) = self.submodule_at(base_dir.path()) {
            return submodule.list_below(path, &BaseDir::parse(rest)?, limits, seen, skipped);
        }
        let inner = &self.inner;
        let walked = inner.objects.directory(inner.root, base_dir).and_then(|directory| {
            let directory = directory.ok_or(Fault::MissingDirectory)?;
            walk(&inner.objects, directory, base_dir.path(), limits, seen, skipped)
        });
        let mut walked = walked.map_err(|cause| self.unread(base_dir.to_string(), cause))?;
        if let Some(large) = &self.large {
            for entry in walked.iter_mut().filter(|entry| entry.kind == EntryKind::File) {
                (entry.id, entry.size) = large.content(entry.id).unwrap_or((entry.id, entry.size));
            }
        }
        if self.submodules.is_empty() {
            return Ok(walked);
        }
        let mut entries = Vec::with_capacity(walked.len());
        for entry in walked {
            match self.submodules.get(&entry.path) {
                Some(submodule) => {
                    entries.extend(submodule.list_below(&entry.path, &BaseDir::root(), limits, seen, skipped)?);
                }
                None => entries.push(entry),
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    /// Returns the entries of a submodule. Their paths are prefixed with the submodule's path.
    fn list_below(
        &self,
        own: &str,
        base_dir: &BaseDir,
        limits: &Limits,
        seen: &mut usize,
        skipped: Option<&SkippedTrees>,
    ) -> Result<Vec<Entry>, Error> {
        let mut entries = self.list(base_dir, limits, seen, skipped)?;
        for entry in &mut entries {
            entry.path = format!("{own}/{}", entry.path);
        }
        Ok(entries)
    }

    /// Returns a file's content, or the target of a link. Blocks.
    ///
    /// # Errors
    /// The file is larger than [`Limits::file_bytes`], or the mirror is damaged. The next fetch replaces a damaged
    /// mirror.
    pub fn read(&self, entry: &Entry) -> Result<Vec<u8>, Error> {
        let (mut holder, mut path) = (self, entry.path.as_str());
        while let Some((_, submodule, rest)) = holder.submodule_at(path) {
            (holder, path) = (submodule, rest);
        }
        if let Some(read) = holder.large.as_ref().and_then(|large| large.read(entry.id)) {
            // The mirror is marked as damaged, so the next caller fetches the commit again.
            return read.map_err(|cause| Error::Read {
                path: path.to_owned(),
                commit: self.commit,
                cause: Arc::new(cause),
            });
        }
        let read = holder.inner.objects.blob(entry.id, holder.inner.limits.file_bytes);
        read.map_err(|cause| holder.unread(path.to_owned(), cause))
    }

    /// Reads a file, with exclusive access if it is large. Call it on a thread of [`Snapshot::blocking`].
    ///
    /// # Errors
    /// Same as for [`Snapshot::read`].
    pub fn read_alone(&self, entry: &Entry) -> Result<Content, Error> {
        let alone = if entry.size > LARGE_FILE { self.alone() } else { Ok(Alone(None)) };
        let alone = alone.map_err(|cause| self.unread(entry.path.clone(), cause))?;
        Ok(Content { bytes: self.read(entry)?, _alone: alone })
    }

    /// Waits for other work that needs much memory. Call it on a thread of [`Snapshot::blocking`].
    pub(super) fn alone(&self) -> Result<Alone, Fault> {
        self.inner.permits.large.acquire_here().map(Alone)
    }

    /// Runs blocking `work` with a permit of the namespace that fetched the snapshot.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let snapshot = self.clone();
        let done = self.inner.permits.threads.run(move || work(&snapshot)).await;
        done.map_err(|cause| self.unread("files".to_owned(), cause))
    }

    fn unread(&self, path: String, cause: Fault) -> Error {
        let cause = match (cause, &self.inner.generation) {
            (Fault::Corrupt { what }, Some(generation)) => generation.attribute(what),
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
