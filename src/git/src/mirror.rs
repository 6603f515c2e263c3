//! Mirrors: the local copies of remotes. Everything here blocks.
//!
//! A mirror is a directory of generations. Each generation is a bare repository that only grows. If a mirror is damaged
//! or too large, it gets a new generation; the old one is removed with the last [`Snapshot`](super::Snapshot) that
//! reads from it. The file `held` lists the complete commits and their packs. Its modification time is the last use,
//! and may be up to an hour old.
//!
//! Invariant: a commit is added to `held` only after its pack is indexed, and a removal begins with `held`. So a
//! process that is killed at any time leaves a mirror that is either intact or unused.
//! Invariant: no name and no content of a file contains an address or a credential. The name of a mirror's directory is
//! a digest of the remote's identity and a random salt, which is stored beside the mirrors.
//! Not here: references (every lookup asks the remote) and history (only the files of a commit matter).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::error::Fault;
use super::fair_queue::Tenant;
use super::id::{Commit, Id};
use super::integrity;
use super::large_files;
use super::large_trees::LargeTrees;
use super::objects::Objects;
use super::spool::PackSpool;
use super::storage::{HELD, MIRROR, Storage};
use super::transport::{History, Weight};

/// Maximum number of commits that are sent to the server as `have`, so that it sends only the difference.
const MAX_HAVES: usize = 16;
/// Prefix of a line about a pack.
const PACK_LINE: &str = "pack ";
/// Interval between updates of the last use on disk.
const USED_WITHIN: Duration = Duration::from_secs(3600);
/// Time after which objects that the remote omitted are requested again.
const LACKING_FOR: Duration = Duration::from_secs(3600);
/// Bytes per write of a pack to libgit2. libgit2 writes into mapped memory beyond the end of the file, but reserves
/// disk space for the last page only. If more than a page were written, a full disk would kill the process.
const PAGE: usize = 4096;
/// Maximum index bytes per object of a pack.
const INDEX_BYTES: u64 = 40;
/// How long packs count as intact after their checksums were verified.
const INTACT_FOR: Duration = Duration::from_secs(600);
const SALT: &str = "salt";
/// Name of the directory in a generation in which an artifact becomes a commit.
pub(super) const UNFINISHED: &str = "artifact.new";

/// Complete commits, and how much of their history is present.
type HeldCommits = Vec<(Id, History)>;

/// The generations of one remote.
#[derive(Debug)]
pub(super) struct Mirror {
    root: PathBuf,
    storage: Storage,
    number: u64,
    current: Option<Arc<Generation>>,
    /// The reason that a mirror on disk was removed when it was opened: its damage.
    damage: Option<String>,
}

impl Mirror {
    /// Opens the latest generation of the mirror for `identity` under `directory`. Removes the other generations,
    /// except those that are open in this process.
    pub(super) fn find(directory: &Path, identity: &[u8; 32], storage: &Storage) -> Result<Self, Fault> {
        make_directory(directory).map_err(Fault::disk)?;
        storage.load(directory).map_err(Fault::disk)?;
        let salt = salt(directory).map_err(Fault::disk)?;
        let root = directory.join(name(&salt, identity));
        // A directory that is marked as open is not removed.
        storage.open(&root);
        let found = Self::find_at(&root, storage);
        storage.close(&root);
        found
    }

    fn find_at(root: &Path, storage: &Storage) -> Result<Self, Fault> {
        make_directory(root).map_err(Fault::disk)?;
        let mut numbers: Vec<u64> = fs::read_dir(root)
            .map_err(Fault::disk)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        // The number of a generation that is still being removed is not used again.
        let number = numbers.last().copied().unwrap_or(0).max(storage.highest_open(root));
        let (mut current, mut damage) = (None, None);
        for number in numbers.into_iter().rev() {
            let path = root.join(number.to_string());
            if storage.is_open(&path) {
                continue;
            }
            if current.is_none() {
                match Generation::find(path.clone(), storage) {
                    Ok(Some(found)) => {
                        current = Some(Arc::new(found));
                        continue;
                    }
                    Ok(None) => {}
                    Err(found) => damage = Some(found),
                }
            }
            storage.remove(&path);
        }
        Ok(Self { root: root.to_owned(), storage: storage.clone(), number, current, damage })
    }

    /// Returns the directory of the mirror.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the damage that was found on disk, but only once.
    pub(super) fn take_damage(&mut self) -> Option<String> {
        self.damage.take()
    }

    pub(super) fn current(&self) -> Option<Arc<Generation>> {
        self.current.clone()
    }

    /// Returns the path of the next generation, for [`Generation::create`].
    pub(super) fn next(&mut self) -> (PathBuf, Storage) {
        self.number += 1;
        (self.root.join(self.number.to_string()), self.storage.clone())
    }

    /// Returns the directory of the current generation, if it has no reader.
    pub(super) fn unread(&self) -> Option<PathBuf> {
        // Readers get the generation from this field, and the caller has locked the mirror.
        let current = self.current.as_ref().filter(|current| Arc::strong_count(current) == 1);
        current.map(|current| current.path.clone())
    }

    /// Takes the current generation out for removal, if it has no reader. Otherwise it stays until a new one is
    /// adopted.
    pub(super) fn take_unread(&mut self) -> Option<Arc<Generation>> {
        self.unread()?;
        let current = self.current.take()?;
        current.retire();
        Some(current)
    }

    /// Makes `generation` the current one. The previous one is removed with its last reader.
    pub(super) fn adopt(&mut self, generation: Arc<Generation>) {
        generation.retired.store(false, Ordering::Relaxed);
        if let Some(old) = self.current.replace(Arc::clone(&generation))
            && !Arc::ptr_eq(&old, &generation)
        {
            old.retire();
        }
    }

    /// Removes the mirror when its last reader is gone.
    pub(super) fn retire(self) {
        match self.current {
            Some(current) => current.retire(),
            None => self.storage.remove_empty(&self.root, None),
        }
    }
}

/// One bare repository.
#[derive(Debug)]
pub(super) struct Generation {
    path: PathBuf,
    held: Mutex<HeldCommits>,
    /// The packs that must exist.
    packs: Mutex<BTreeSet<String>>,
    suspect: AtomicBool,
    retired: AtomicBool,
    /// When this process opened the generation.
    opened: Instant,
    /// When the packs were last verified as intact.
    intact: Mutex<Option<Instant>>,
    /// The last use that is recorded on disk.
    used: Mutex<Option<SystemTime>>,
    large: Arc<LargeTrees>,
    storage: Storage,
}

impl Generation {
    fn new(path: PathBuf, held: HeldCommits, packs: BTreeSet<String>, storage: Storage) -> Self {
        storage.open(&path);
        Self {
            path,
            held: Mutex::new(held),
            packs: Mutex::new(packs),
            suspect: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            opened: Instant::now(),
            intact: Mutex::new(None),
            used: Mutex::new(None),
            large: Arc::default(),
            storage,
        }
    }

    /// Opens the generation in this directory; `None` if it never became complete.
    ///
    /// # Errors
    /// The damage.
    fn find(path: PathBuf, storage: &Storage) -> Result<Option<Self>, String> {
        let text = match fs::read_to_string(path.join(HELD)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("its list of commits: {error}")),
        };
        let (commits, packs) = read_held(&text).ok_or_else(|| "its list of commits is invalid".to_owned())?;
        let directory = path.join("objects/pack");
        let there = integrity::packs(&directory).map_err(|error| format!("its packs: {error}"))?;
        if packs.difference(&there).next().is_some() {
            return Err("a pack is missing".to_owned());
        }
        // Lists from earlier versions do not contain the packs.
        let packs = if packs.is_empty() { there } else { packs };
        // Removes the remains of a killed process. A failure to do so is ignored.
        let _ = integrity::remove_unfinished(&directory);
        large_files::remove_unfinished(&path);
        let _ = fs::remove_dir_all(path.join(UNFINISHED));
        storage.measure_generation(&path);
        Ok(Some(Self::new(path, commits, packs, storage.clone())))
    }

    /// Creates an empty generation. Unless it is adopted, it is removed with its last user.
    pub(super) fn create((path, storage): (PathBuf, Storage)) -> Result<Self, Fault> {
        let generation = Self::new(path, Vec::new(), BTreeSet::new(), storage);
        generation.retire();
        make_directory(&generation.pack_directory()).map_err(Fault::disk)?;
        generation.storage.measure_generation(&generation.path);
        Ok(generation)
    }

    fn pack_directory(&self) -> PathBuf {
        self.path.join("objects/pack")
    }

    /// Marks the generation as damaged. The next fetch creates a new one.
    pub(super) fn mark_damaged(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    /// Marks the generation for removal with its last reader.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Returns whether the generation has all files of the commit.
    pub(super) fn holds(&self, commit: Commit) -> bool {
        self.held.lock().iter().any(|(id, _)| *id == commit.0)
    }

    /// Returns the latest complete commits.
    pub(super) fn haves(&self) -> HeldCommits {
        let held = self.held.lock();
        held.iter().rev().take(MAX_HAVES).copied().collect()
    }

    pub(super) fn objects(&self) -> Result<Objects, Fault> {
        Objects::open_with(&self.path.join("objects"), Arc::clone(&self.large))
    }

    /// Returns the directory of the generation.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Records a use by this namespace.
    pub(super) fn set_used(&self, now: SystemTime, by: &Tenant) {
        if let Some(mirror) = self.path.parent() {
            self.storage.set_owner(mirror, by);
            self.storage.set_used(mirror, now);
        }
        let mut used = self.used.lock();
        let is_recent = |at: SystemTime| now.duration_since(at).is_ok_and(|since| since < USED_WITHIN);
        if used.is_none_or(|at| !is_recent(at)) {
            // If this fails, the recorded use is older than the actual one, which is harmless.
            let file = File::options().write(true).open(self.path.join(HELD));
            let _ = file.and_then(|file| file.set_modified(now));
            *used = Some(now);
        }
    }

    /// Determines why an object cannot be read: the disk is damaged, in which case the next fetch creates a new
    /// generation, or the remote did not send the object.
    pub(super) fn attribute(&self, what: String) -> Fault {
        if !self.is_intact() {
            self.mark_damaged();
            return Fault::Corrupt { what };
        }
        if self.opened.elapsed() > LACKING_FOR {
            self.mark_damaged();
        }
        Fault::Lacking { what }
    }

    /// Returns whether the packs are intact.
    pub(super) fn is_intact(&self) -> bool {
        let mut intact = self.intact.lock();
        if intact.is_some_and(|at| at.elapsed() < INTACT_FOR) {
            return true;
        }
        let packs = self.packs.lock().clone();
        match integrity::damage(&self.pack_directory(), &packs) {
            Ok(damage) => {
                *intact = damage.is_none().then(Instant::now);
                damage.is_none()
            }
            // If memory or file descriptors are exhausted, the state is unknown, and nothing is discarded.
            Err(_) => true,
        }
    }

    /// Returns the maximum additional memory for indexing a pack, in bytes: one delta with its base and its result. The
    /// bound holds whatever sizes the pack claims.
    pub(super) fn working_bytes(&self, weight: &Weight) -> Result<u64, Fault> {
        if weight.delta == 0 {
            return Ok(0);
        }
        let mut base = weight.largest;
        match &weight.named {
            None => base = u64::MAX,
            Some(named) if named.is_empty() => {}
            Some(named) => {
                let objects = self.objects()?;
                for id in named {
                    base = base.max(objects.header(*id)?.map_or(0, |(size, _)| size));
                }
            }
        }
        Ok(base.saturating_add(weight.delta).saturating_add(weight.largest))
    }

    /// Adds the objects of a pack. If the pack is thin, existing objects complete it. Stops at `until`.
    pub(super) fn index(&self, mut pack: PackSpool, until: Instant) -> Result<(), Fault> {
        let indexed = self.add_pack(&mut pack, until);
        // The size is measured before the reserved space is released.
        self.storage.measure_generation(&self.path);
        indexed
    }

    fn add_pack(&self, pack: &mut PackSpool, until: Instant) -> Result<(), Fault> {
        let (objects, bases) = (pack.weight().objects, pack.weight().bases);
        let has_packs = self.size()?.1 > 0;
        let bases = if has_packs { bases } else { 0 };
        pack.secure(objects.saturating_mul(INDEX_BYTES).saturating_add(bases), &self.path)?;
        let database = self.objects()?;
        let mut indexer =
            git2::Indexer::new(Some(database.odb()), &self.pack_directory(), 0, false).map_err(Fault::storage)?;
        let late = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&late);
        indexer.progress(move |_| {
            let in_time = Instant::now() < until;
            noticed.store(!in_time, Ordering::Relaxed);
            in_time
        });
        let mut piece = [0; PAGE];
        let written = loop {
            match pack.read(&mut piece) {
                Ok(0) => break Ok(()),
                Ok(length) => {
                    if let Err(error) = indexer.write_all(&piece[..length]) {
                        break Err(refused(error));
                    }
                }
                Err(error) => break Err(Fault::disk(error)),
            }
        };
        let done = written.and_then(|()| indexer.commit().map_err(unindexed));
        if late.load(Ordering::Relaxed) {
            return Err(Fault::Pack { what: "unpacking it timed out".to_owned() });
        }
        done.map(drop)
    }

    /// Records that the generation has all files of the commit.
    pub(super) fn add_commit(&self, commit: Commit, history: History) -> Result<(), Fault> {
        let mut packs = self.packs.lock();
        packs.extend(integrity::packs(&self.pack_directory()).map_err(Fault::disk)?);
        let mut held = self.held.lock();
        held.retain(|(id, _)| *id != commit.0);
        held.push((commit.0, history));
        let commits = held.iter().map(|(id, history)| format!("{id} {}\n", word(*history)));
        let lines: String = commits.chain(packs.iter().map(|pack| format!("{PACK_LINE}{pack}\n"))).collect();
        let fresh = self.path.join("held.new");
        fs::write(&fresh, lines).and_then(|()| fs::rename(&fresh, self.path.join(HELD))).map_err(Fault::disk)
    }

    /// Returns the bytes on disk without Git LFS files.
    pub(super) fn pack_bytes(&self) -> Result<u64, Fault> {
        let (bytes, _) = self.size()?;
        Ok(bytes.saturating_sub(large_files::bytes(&self.path)))
    }

    /// Returns the bytes on disk, including Git LFS files, and the number of packs.
    pub(super) fn size(&self) -> Result<(u64, usize), Fault> {
        let (mut bytes, mut packs) = (large_files::bytes(&self.path), 0);
        for entry in fs::read_dir(self.pack_directory()).map_err(Fault::disk)? {
            let entry = entry.map_err(Fault::disk)?;
            // A file that disappears in the meantime is not counted.
            bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            packs += usize::from(entry.path().extension().is_some_and(|extension| extension == "pack"));
        }
        Ok((bytes, packs))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Relaxed) {
            self.storage.remove(&self.path);
            if let Some(mirror) = self.path.parent() {
                self.storage.remove_empty(mirror, Some(&self.path));
            }
        }
        self.storage.close(&self.path);
    }
}

/// Converts libgit2's error for a piece of a pack.
fn refused(error: io::Error) -> Fault {
    let inner = error.into_inner().and_then(|inner| inner.downcast::<git2::Error>().ok());
    match inner {
        Some(error) => unindexed(*error),
        None => Fault::Pack { what: "it cannot be unpacked".to_owned() },
    }
}

/// Converts libgit2's error for indexing a pack.
fn unindexed(error: git2::Error) -> Fault {
    match error.class() {
        git2::ErrorClass::Os => Fault::storage(error),
        _ => Fault::Pack { what: error.message().to_owned() },
    }
}

fn word(history: History) -> &'static str {
    match history {
        History::Whole => "whole",
        History::Left => "left",
    }
}

/// Reads the commits and packs of a generation; `None` if the list is unreadable.
fn read_held(text: &str) -> Option<(HeldCommits, BTreeSet<String>)> {
    let (mut commits, mut packs) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(pack) = line.strip_prefix(PACK_LINE) {
            packs.insert(pack.to_owned());
            continue;
        }
        let (id, word) = line.split_once(' ')?;
        let history = match word {
            "whole" => History::Whole,
            "left" => History::Left,
            _ => return None,
        };
        commits.push((Id::parse(id.as_bytes())?, history));
    }
    (!commits.is_empty()).then_some((commits, packs))
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Returns the name of a mirror's directory. Because of the salt, credentials cannot be guessed from the name.
pub(super) fn name(salt: &[u8], identity: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(identity).finalize();
    format!("{}.{MIRROR}", hex::encode(&digest[..16]))
}

/// Returns the random salt of a directory of mirrors.
pub(super) fn salt(directory: &Path) -> io::Result<Vec<u8>> {
    let path = &directory.join(SALT);
    match fs::read(path) {
        Ok(salt) if salt.len() == 32 => return Ok(salt),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut fresh = vec![0; 32];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut fresh).map_err(|_| io::Error::other("no random bytes"))?;
    // A temporary file has its own name: several tasks may create the salt simultaneously, as may several processes.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&fresh)?;
    // The first salt stays.
    match file.persist_noclobber(path).map_err(|refused| refused.error) {
        Ok(_) => Ok(fresh),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let salt = fs::read(path)?;
            if salt.len() == 32 { Ok(salt) } else { fs::write(path, &fresh).map(|()| fresh) }
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(digit: char) -> Commit {
        digit.to_string().repeat(40).parse().unwrap()
    }

    fn find(directory: &Path, identity: u8, storage: &Storage) -> Mirror {
        Mirror::find(directory, &[identity; 32], storage).unwrap()
    }

    fn grow(mirror: &mut Mirror) -> Arc<Generation> {
        let generation = Arc::new(Generation::create(mirror.next()).unwrap());
        generation.add_commit(commit('a'), History::Left).unwrap();
        mirror.adopt(Arc::clone(&generation));
        generation
    }

    #[test]
    fn keeps_complete_commits_across_restarts_and_drops_incomplete_ones() {
        let directory = tempfile::tempdir().unwrap();
        let mut mirror = find(directory.path(), 1, &Storage::new(u64::MAX));
        drop(grow(&mut mirror));
        let incomplete = mirror.next().0;
        fs::create_dir(&incomplete).unwrap();
        drop(mirror);
        let mirror = find(directory.path(), 1, &Storage::new(u64::MAX));
        assert!(mirror.current().unwrap().holds(commit('a')));
        assert!(!incomplete.exists());
        assert!(find(directory.path(), 2, &Storage::new(u64::MAX)).current().is_none());
    }

    #[test]
    fn tasks_that_open_the_first_mirrors_simultaneously_share_a_salt() {
        for _ in 0..50 {
            let directory = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(8);
            let create = || {
                start.wait();
                salt(directory.path()).unwrap()
            };
            let salts: BTreeSet<_> = std::thread::scope(|scope| {
                let tasks: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
                tasks.into_iter().map(|task| task.join().unwrap()).collect()
            });
            assert_eq!(salts.len(), 1);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no other file is left");
        }
    }

    #[test]
    fn a_mirror_that_is_being_opened_keeps_its_directory_when_another_user_leaves_it() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::new(u64::MAX);
        let mut leaving = find(directory.path(), 1, &storage);
        let root = leaving.root().to_owned();
        let unused = Generation::create(leaving.next()).unwrap();
        storage.open(&root);
        drop(unused);
        leaving.retire();
        assert!(root.exists(), "the other user lists it next");
        storage.close(&root);
        find(directory.path(), 1, &storage).retire();
        assert!(!root.exists());
    }

    #[test]
    fn an_old_generation_stays_until_its_last_reader_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let open = Storage::new(u64::MAX);
        let mut mirror = find(directory.path(), 1, &open);
        let old = grow(&mut mirror);
        let current = grow(&mut mirror);
        mirror.retire();
        assert!(find(directory.path(), 1, &open).current().is_none(), "both are being removed");
        for generation in [old, current] {
            let path = generation.path.clone();
            assert!(path.exists());
            drop(generation);
            assert!(!path.exists());
        }
    }

    #[test]
    fn directory_names_reveal_nothing_without_the_salt() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name_in = |directory: &Path| name(&salt(directory).unwrap(), &[1; 32]);
        assert_eq!(name_in(one.path()), name_in(one.path()));
        assert_ne!(name_in(one.path()), name_in(two.path()));
    }
}
