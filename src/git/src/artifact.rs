//! Artifacts: commits that the agent creates from archives, in a mirror like those of Git remotes.
//!
//! Invariant: the commit is a function of the archive, its digest and the ignored patterns. So the same artifact is the
//! same commit again after a restart.
//! Invariant: an artifact has its own mirror. No other object reads this mirror, even with the same address and login.
//! Not here: the registry from which the archive is downloaded.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use git2::{FileMode, Index, IndexEntry, IndexTime, Repository, RepositoryInitOptions, Signature, Time};

use super::archive::{ArchiveFile, ArchiveLimits, Root, unpack};
use super::consumers::Consumer;
use super::error::Fault;
use super::followed_artifact::Artifact;
use super::id::{Commit, Id};
use super::mirror::{Generation, UNFINISHED};
use super::permits::Permit;
use super::pushes::Followed;
use super::ref_list::{At, RefNames, Refs};
use super::reference::TAGS;
use super::remote::Remote;
use super::remotes::Source;
use super::spool::PackSpool;
use super::transport::{History, Weight};

/// Maximum number of bytes of the archive of an artifact.
pub const ARTIFACT_BYTES: u64 = 64 << 20;
/// Maximum number of unpacked bytes, and of files.
const UNPACKED_BYTES: u64 = 128 << 20;
const FILES: usize = 10_000;
/// Maximum size of an object that is stored as a delta, and of all objects among which a delta is searched, in bytes.
const DELTA_BYTES: i64 = 64 << 10;
const WINDOW_BYTES: i64 = 4 << 20;
/// Author of the commits.
const AUTHOR: &str = "mainstay";
/// The file with ignored patterns.
const IGNORE_FILE: &str = ".mainstayignore";

/// An archive from which an artifact is created.
#[derive(Debug)]
pub struct Packed {
    /// A tar file, with or without gzip.
    pub archive: File,
    /// The message of the commit.
    pub message: String,
    /// Patterns of files to exclude, in the format of `.gitignore`; empty for none.
    pub ignore: String,
    /// The files that become the root of the commit.
    pub root: Root,
}

/// The permission to download.
#[derive(Debug)]
pub struct Downloading(#[expect(dead_code, reason = "it is held")] Permit);

impl Source {
    /// Returns an unnamed file in the directory of the mirrors.
    pub async fn scratch_file(&self) -> Result<File, Fault> {
        let directory = self.inner.settings.directory.clone();
        let made = move || -> io::Result<File> {
            std::fs::create_dir_all(&directory)?;
            tempfile::tempfile_in(&directory)
        };
        self.own().run(made).await?.map_err(Fault::disk)
    }

    /// Runs work that takes much time or memory in a thread. Only one such work runs in this process at a time.
    ///
    /// # Errors
    /// The agent stops.
    pub async fn run_alone<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let large = self.large();
        let alone = move || -> Result<T, Fault> {
            let _alone = large.acquire_here()?;
            Ok(work())
        };
        self.own().run(alone).await?
    }

    /// Waits for the permission to download. Namespaces take turns.
    pub async fn downloading(&self) -> Result<Downloading, Fault> {
        Ok(Downloading(self.receiving().acquire().await?))
    }

    /// Sets the artifact that lookups of the remote find, or why there is none.
    pub fn set_artifact(&self, remote: &Remote, artifact: Result<Artifact, String>) {
        let state = self.state(remote);
        state.artifact.send_replace(Some(artifact));
        state.poll.lock().expire(Instant::now());
    }

    /// Records a lookup of the artifact that began at `began` and has ended.
    pub fn artifact_looked_up(&self, remote: &Remote, began: Instant) {
        self.state(remote).artifact_lookup.send_replace(Some(began));
    }

    /// Wakes the OCIRepository or HelmChart of the remote for a lookup, and waits until that has ended. Returns at once
    /// if the object is gone, and at the latest after the deadline of lookups.
    pub async fn look_up_artifact(&self, remote: &Remote) {
        let mut ended = self.state(remote).artifact_lookup.subscribe();
        let asked = Instant::now();
        let is_meant =
            |consumer: &Consumer, followed: &Followed| consumer.kind.has_artifact() && followed.url == remote.url;
        if self.pushes().wake(is_meant, asked).is_empty() {
            return;
        }
        let ended = ended.wait_for(|began| began.is_some_and(|began| began >= asked));
        // Without a result in time, the last artifact counts, as after a failed lookup.
        let _ = tokio::time::timeout(self.inner.settings.deadlines.lookup, ended).await;
    }

    /// Returns whether the mirror of the remote has a commit.
    ///
    /// # Errors
    /// The mirror cannot be opened.
    pub async fn has_artifact(&self, remote: &Remote, commit: Commit) -> Result<bool, Fault> {
        let state = self.state(remote);
        let held = self.mirror(&state, remote).await?;
        let generation = held.as_ref().and_then(super::mirror::Mirror::current);
        Ok(generation.is_some_and(|generation| generation.holds(commit) && !generation.is_damaged()))
    }

    /// Unpacks an archive into the mirror of the remote, and returns its commit.
    ///
    /// # Errors
    /// The archive is refused, or the disk has no space.
    pub async fn add_artifact(&self, remote: &Remote, packed: Packed) -> Result<Commit, Fault> {
        let until = Instant::now() + self.inner.settings.deadlines.fetch;
        let state = self.state(remote);
        let mut held = self.mirror(&state, remote).await?;
        let mirror = held.as_mut().ok_or(Fault::Stopped)?;
        let usable = self.usable(remote, mirror.current()).await?;
        let is_new = usable.is_none();
        let generation = if let Some(generation) = usable {
            generation
        } else {
            if let Some(old) = mirror.take_unread() {
                self.shared(remote).run(move || drop(old)).await?;
            }
            self.fresh(remote, mirror).await?
        };
        let spool =
            PackSpool::new(generation.path(), self.inner.settings.limits.object_bytes, self.room(generation.path()));
        let (keeper, large) = (Arc::clone(&generation), self.large());
        let file_bytes = self.inner.settings.limits.file_bytes;
        let made = move || {
            let _alone = large.acquire_here()?;
            make(&keeper, packed, spool, file_bytes, until)
        };
        let commit = self.shared(remote).run(made).await??;
        if is_new {
            mirror.adopt(generation);
        }
        Ok(commit)
    }

    /// Returns the references of an artifact: HEAD, which is its tag. Waits until the artifact was read for the first
    /// time, so that a new agent or a new OCIRepository does not cause a failure.
    pub(super) async fn artifact_refs(&self, remote: &Remote, wanted: &RefNames) -> Result<Refs, Fault> {
        let mut read = self.state(remote).artifact.subscribe();
        let first =
            tokio::time::timeout(self.inner.settings.deadlines.lookup / 2, read.wait_for(Option::is_some)).await;
        let known = first.ok().and_then(|known| known.ok()?.clone());
        let artifact = known.unwrap_or_else(|| Err("it has not been read yet".to_owned()));
        let Artifact { commit, tag } = artifact.map_err(|why| Fault::NoArtifact { why })?;
        let mut refs = Refs::default();
        let symbolic = (!tag.is_empty()).then(|| format!("{TAGS}{tag}"));
        refs.add("HEAD".to_owned(), At { id: commit.0, peeled: None, symbolic }, wanted);
        Ok(refs)
    }
}

/// Creates the commit in a temporary repository, and transfers it to the mirror as a pack.
fn make(
    generation: &Generation,
    packed: Packed,
    mut spool: PackSpool,
    file_bytes: u64,
    until: Instant,
) -> Result<Commit, Fault> {
    let directory = generation.path().join(UNFINISHED);
    let _ = std::fs::remove_dir_all(&directory);
    let made = commit(&directory, packed, file_bytes, &mut spool);
    let _ = std::fs::remove_dir_all(&directory);
    let commit = made?;
    generation.index(spool, until)?;
    generation.add_commit(commit, History::Whole)?;
    Ok(commit)
}

fn commit(directory: &Path, packed: Packed, file_bytes: u64, spool: &mut PackSpool) -> Result<Commit, Fault> {
    let mut options = RepositoryInitOptions::new();
    options.bare(true).external_template(false);
    let repository = Repository::init_opts(directory, &options).map_err(Fault::storage)?;
    bound_pack_memory(&repository).map_err(Fault::storage)?;
    let mut files = Files { repository: &repository, index: Index::new().map_err(Fault::git)?, largest: 0 };
    let limits = ArchiveLimits { bytes: UNPACKED_BYTES, file_bytes, files: FILES };
    let mut own = Vec::new();
    unpack(packed.archive, limits, packed.root, |file| {
        if file.path == IGNORE_FILE && !packed.ignore.is_empty() {
            own = file.content;
            return Ok(());
        }
        files.add(&file)
    })?;
    if !packed.ignore.is_empty() {
        own.extend_from_slice(b"\n");
        own.extend_from_slice(packed.ignore.as_bytes());
        own.push(b'\n');
        files.add(&ArchiveFile { path: IGNORE_FILE.to_owned(), executable: false, content: own })?;
    }
    let largest = files.largest;
    let tree = files.index.write_tree_to(&repository).map_err(Fault::storage)?;
    let tree = repository.find_tree(tree).map_err(Fault::storage)?;
    let author = Signature::new(AUTHOR, AUTHOR, &Time::new(0, 0)).map_err(Fault::git)?;
    let made = repository.commit(None, &author, &author, &packed.message, &tree, &[]).map_err(Fault::storage)?;
    let mut pack = repository.packbuilder().map_err(Fault::git)?;
    pack.set_threads(1);
    pack.insert_commit(made).map_err(Fault::storage)?;
    let objects = pack.object_count() as u64;
    let mut written = Ok(());
    let all = pack.foreach(|piece| {
        written = spool.write(piece);
        written.is_ok()
    });
    written?;
    all.map_err(Fault::storage)?;
    spool.finish(Weight { objects, largest, named: Some(BTreeSet::new()), ..Weight::default() })?;
    Ok(Commit(Id::from(made)))
}

/// Limits the memory in which libgit2 searches for deltas. By default, it holds ten objects of any size. Larger objects
/// than the size of the cache are stored whole.
fn bound_pack_memory(repository: &Repository) -> Result<(), git2::Error> {
    let mut settings = repository.config()?;
    settings.set_i64("pack.deltaCacheSize", DELTA_BYTES)?;
    settings.set_i64("pack.windowMemory", WINDOW_BYTES)
}

/// The files of a commit.
struct Files<'r> {
    repository: &'r Repository,
    index: Index,
    /// Size of the largest file, in bytes.
    largest: u64,
}

impl Files<'_> {
    fn add(&mut self, file: &ArchiveFile) -> Result<(), Fault> {
        let id = self.repository.blob(&file.content).map_err(Fault::storage)?;
        self.largest = self.largest.max(file.content.len() as u64);
        let mode = if file.executable { FileMode::BlobExecutable } else { FileMode::Blob };
        let (path, zero) = (file.path.as_bytes().to_vec(), IndexTime::new(0, 0));
        let entry = IndexEntry {
            ctime: zero,
            mtime: zero,
            dev: 0,
            ino: 0,
            mode: u32::from(mode),
            uid: 0,
            gid: 0,
            file_size: 0,
            id,
            flags: 0,
            flags_extended: 0,
            path,
        };
        self.index.add(&entry).map_err(Fault::git)
    }
}
