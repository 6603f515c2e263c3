//! The Git LFS files of a mirror. Everything here blocks.
//!
//! Invariant: a file is used only if its content, when it is read, has the SHA-256 in its pointer.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::error::Fault;
use super::fair_queue::Tenant;
use super::id::{BlobId, Id};
use super::lfs::{self, Pointer};
use super::spool::Space;

/// Directory of the files, inside the directory of a generation.
pub(super) const DIRECTORY: &str = "lfs";

/// The pointers in a listing, by id, each with a path for messages.
pub(super) type Pointers = BTreeMap<BlobId, (String, Pointer)>;

/// The Git LFS files to read.
#[derive(Debug, Default)]
pub(super) struct WantedFiles {
    pub(super) pointers: Pointers,
    /// Content of `.lfsconfig`.
    pub(super) config: Option<String>,
    /// Files in submodules, by the paths of the submodules.
    pub(super) below: BTreeMap<String, WantedFiles>,
    /// Addresses of submodules, by their paths.
    pub(super) addresses: BTreeMap<String, String>,
}

impl WantedFiles {
    /// Returns the path of one of the files; `None` without files.
    pub(super) fn first(&self) -> Option<String> {
        let own = self.pointers.values().next().map(|(path, _)| path.clone());
        own.or_else(|| self.below.iter().find_map(|(submodule, files)| Some(format!("{submodule}/{}", files.first()?))))
    }
}

/// The Git LFS files of a snapshot.
#[derive(Clone, Debug)]
pub(super) struct LargeFiles {
    directory: PathBuf,
    /// Pointers by their ids.
    pointers: HashMap<BlobId, Pointer>,
    /// File names by the ids of their contents.
    names: HashMap<BlobId, String>,
}

impl LargeFiles {
    /// Returns the files of these pointers in a directory.
    pub(super) fn new(directory: PathBuf, pointers: HashMap<BlobId, Pointer>) -> Self {
        let names = pointers.values().map(|pointer| (content_id(pointer), pointer.oid.clone())).collect();
        Self { directory, pointers, names }
    }

    /// Returns id and size of a pointer's content; `None` if `pointer` is not the id of a known pointer. The id of the
    /// content differs from that of the pointer, so caches by id do not confuse the two.
    pub(super) fn content(&self, pointer: BlobId) -> Option<(BlobId, u64)> {
        self.pointers.get(&pointer).map(|pointer| (content_id(pointer), pointer.size))
    }

    /// Reads the content with this id; `None` if it is not in Git LFS. Blocks.
    pub(super) fn read(&self, id: BlobId) -> Option<Result<Vec<u8>, Fault>> {
        let name = self.names.get(&id)?;
        let path = self.directory.join(name);
        let content = fs::read(&path).map_err(Fault::disk);
        Some(content.and_then(|content| {
            if hex::encode(Sha256::digest(&content)) == *name {
                return Ok(content);
            }
            let _ = fs::remove_file(&path);
            Err(Fault::Corrupt { what: "a file in Git LFS".to_owned() })
        }))
    }
}

/// Returns an id for the content. No Git object has this id.
fn content_id(pointer: &Pointer) -> BlobId {
    let digest = Sha256::new().chain_update("git-lfs ").chain_update(&pointer.oid).finalize();
    let mut id = [0; 20];
    for (to, from) in id.iter_mut().zip(digest) {
        *to = from;
    }
    BlobId(Id(id))
}

/// Returns the files that are missing in the directory, each with one path. Several paths may have the same content.
pub(super) fn missing(directory: &Path, pointers: &Pointers) -> BTreeMap<Pointer, String> {
    let is_there = |pointer: &Pointer| {
        fs::metadata(directory.join(&pointer.oid)).is_ok_and(|file| file.is_file() && file.len() == pointer.size)
    };
    let missing = pointers.values().filter(|(_, pointer)| !is_there(pointer));
    missing.map(|(path, pointer)| (pointer.clone(), path.clone())).collect()
}

/// A file being received. It appears in the directory completely or not at all.
#[derive(Debug)]
pub(super) struct IncomingFile<R> {
    file: tempfile::NamedTempFile,
    path: PathBuf,
    pointer: Pointer,
    digest: Sha256,
    length: u64,
    /// Space that is reserved until the file counts as stored.
    room: R,
}

impl<R: Space> IncomingFile<R> {
    /// Creates an empty file, and reserves the space for its content.
    pub(super) fn new(directory: &Path, pointer: Pointer, mut room: R) -> Result<Self, Fault> {
        room.take(pointer.size)?;
        fs::create_dir_all(directory).map_err(Fault::disk)?;
        let file = tempfile::NamedTempFile::new_in(directory).map_err(Fault::disk)?;
        let path = directory.join(&pointer.oid);
        Ok(Self { file, path, pointer, digest: Sha256::new(), length: 0, room })
    }

    /// Writes the next bytes.
    pub(super) fn write(mut self, mut bytes: &[u8]) -> Result<Self, Fault> {
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        let mut is_relieved = false;
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(Fault::DiskFull),
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => match Fault::disk(error) {
                    Fault::DiskFull if !is_relieved && self.room.relieve(bytes.len() as u64) => is_relieved = true,
                    fault => return Err(fault),
                },
            }
        }
        Ok(self)
    }

    /// Stores the file if its content matches the pointer, and counts its bytes.
    pub(super) fn keep(self, count: impl FnOnce(u64)) -> Result<(), Fault> {
        let Self { file, path, pointer, digest, length, room } = self;
        if length != pointer.size || hex::encode(digest.finalize()) != pointer.oid {
            return Err(lfs::OTHER);
        }
        file.persist(path).map_err(|error| Fault::disk(error.error))?;
        count(length);
        drop(room);
        Ok(())
    }
}

/// Locks for fetching files, one per namespace and LFS server, so that other namespaces and servers are not delayed.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<(Tenant, String), Lock>>);

type Lock = Arc<tokio::sync::Mutex<()>>;

impl Locks {
    /// Returns the lock of a namespace for a server.
    pub(super) fn get(&self, tenant: &Tenant, server: &str) -> Lock {
        let mut locks = self.0.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry((Arc::clone(tenant), server.to_owned())).or_default())
    }
}

/// Removes the remains of a killed process from the directory of a generation. Failures are ignored.
pub(super) fn remove_unfinished(generation: &Path) {
    for entry in fs::read_dir(generation.join(DIRECTORY)).into_iter().flatten().flatten() {
        if !entry.file_name().to_str().is_some_and(lfs::is_oid) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns the total bytes of the files in the directory of a generation.
pub(super) fn bytes(generation: &Path) -> u64 {
    let files = fs::read_dir(generation.join(DIRECTORY)).into_iter().flatten().flatten();
    files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}
