//! Mirrors: the local copies of remotes. Everything here blocks.
//!
//! A mirror is a directory of generations, each a bare repository that only grows. A damaged or too large mirror gets a
//! new generation; the old one is removed with the last [`Snapshot`](super::Snapshot) that reads from it. The file
//! `held` lists the commits whose files are complete.
//!
//! Invariant: a commit is added to `held` only after its pack is indexed, so a process killed at any time leaves a
//! mirror that is either good or not used.
//! Invariant: nothing on the disk names an address or holds a credential: the directory's name is a digest over the
//! remote's identity and a random salt in the same directory.
//! Deliberately not here: references (the remote is asked) and history (only the files of a commit matter).

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::error::Fault;
use super::id::{Commit, Id};
use super::objects::Objects;
use super::transport::History;

/// Commits that are sent to the server as `have`, so that it sends only the difference.
const MAX_HAVES: usize = 16;
const HELD: &str = "held";
const SALT: &str = "salt";
/// Extension of a mirror's directory.
pub(super) const MIRROR: &str = "git";

/// Generations that this process has open: no other user may use or remove them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenGenerations(Arc<Mutex<HashSet<PathBuf>>>);

impl OpenGenerations {
    /// Whether a generation of the mirror at `root` is open.
    pub(super) fn has_any_of(&self, root: &Path) -> bool {
        self.0.lock().iter().any(|path| path.starts_with(root))
    }
}

/// All generations of one remote.
#[derive(Debug)]
pub(super) struct Mirror {
    root: PathBuf,
    open: OpenGenerations,
    number: u64,
    current: Option<Arc<Generation>>,
}

impl Mirror {
    /// Finds the latest generation of the mirror for `identity` under `directory`, and removes the others unless they
    /// are `open` in this process.
    pub(super) fn find(directory: &Path, identity: &[u8; 32], open: &OpenGenerations) -> Result<Self, Fault> {
        make_directory(directory).map_err(Fault::Disk)?;
        let salt = salt(directory).map_err(Fault::Disk)?;
        let root = directory.join(name(&salt, identity));
        make_directory(&root).map_err(Fault::Disk)?;
        let mut numbers: Vec<u64> = fs::read_dir(&root)
            .map_err(Fault::Disk)?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let number = numbers.last().copied().unwrap_or(0);
        let mut current = None;
        for number in numbers.into_iter().rev() {
            let path = root.join(number.to_string());
            if open.0.lock().contains(&path) {
                continue;
            }
            match read_held(&path) {
                Some(held) if current.is_none() && !held.is_empty() => {
                    current = Some(Arc::new(Generation::new(path, held, open.clone())));
                }
                _ => remove(&path),
            }
        }
        Ok(Self { root, open: open.clone(), number, current })
    }

    pub(super) fn current(&self) -> Option<Arc<Generation>> {
        self.current.clone()
    }

    /// The path of the next generation, for [`Generation::create`].
    pub(super) fn next(&mut self) -> (PathBuf, OpenGenerations) {
        self.number += 1;
        (self.root.join(self.number.to_string()), self.open.clone())
    }

    /// Makes `generation` the current one; the previous one is removed with its last reader.
    pub(super) fn adopt(&mut self, generation: Arc<Generation>) {
        generation.retired.store(false, Ordering::Relaxed);
        if let Some(old) = self.current.replace(Arc::clone(&generation))
            && !Arc::ptr_eq(&old, &generation)
        {
            old.retire();
        }
    }

    /// Removes the mirror with its last reader.
    pub(super) fn retire(self) {
        match self.current {
            Some(current) => current.retire(),
            None => remove(&self.root),
        }
    }
}

/// One bare repository.
#[derive(Debug)]
pub(super) struct Generation {
    path: PathBuf,
    held: Mutex<Vec<(Id, History)>>,
    suspect: AtomicBool,
    retired: AtomicBool,
    open: OpenGenerations,
}

impl Generation {
    fn new(path: PathBuf, held: Vec<(Id, History)>, open: OpenGenerations) -> Self {
        open.0.lock().insert(path.clone());
        let (suspect, retired) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { path, held: Mutex::new(held), suspect, retired, open }
    }

    /// Creates an empty one. Until it is adopted, it is removed with its last user.
    pub(super) fn create((path, open): (PathBuf, OpenGenerations)) -> Result<Self, Fault> {
        let generation = Self::new(path, Vec::new(), open);
        generation.retire();
        make_directory(&generation.path).map_err(Fault::Disk)?;
        let made = git2::Repository::init_bare(&generation.path);
        made.map_err(|error| Fault::Disk(io::Error::other(error.message().to_owned())))?;
        Ok(generation)
    }

    /// Marks it as damaged: the next fetch creates a new one.
    pub(super) fn mark_damaged(&self) {
        self.suspect.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.suspect.load(Ordering::Relaxed)
    }

    /// Lets it be removed with its last reader.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Whether it has all files of the commit.
    pub(super) fn holds(&self, commit: Commit) -> bool {
        self.held.lock().iter().any(|(id, _)| *id == commit.0)
    }

    /// The latest commits whose files it has.
    pub(super) fn haves(&self) -> Vec<(Id, History)> {
        let held = self.held.lock();
        held.iter().rev().take(MAX_HAVES).copied().collect()
    }

    pub(super) fn objects(&self) -> Result<Objects, Fault> {
        Objects::open(&self.path.join("objects"))
    }

    /// An unnamed file in this generation's directory for an incoming pack.
    pub(super) fn spool(&self) -> Result<File, Fault> {
        tempfile::tempfile_in(&self.path).map_err(Fault::Disk)
    }

    /// Adds the objects of a pack, and completes a thin pack with ours. Ends by `until`.
    pub(super) fn index(&self, mut pack: File, until: Instant) -> Result<(), Fault> {
        let damaged = |text: &str| Fault::Pack { what: text.to_owned() };
        let objects = self.objects()?;
        let directory = self.path.join("objects/pack");
        let mut indexer = git2::Indexer::new(Some(objects.odb()), &directory, 0, false)
            .map_err(|error| Fault::Disk(io::Error::other(error.message().to_owned())))?;
        let late = Arc::new(AtomicBool::new(false));
        let noticed = Arc::clone(&late);
        indexer.progress(move |_| {
            let in_time = Instant::now() < until;
            noticed.store(!in_time, Ordering::Relaxed);
            in_time
        });
        pack.rewind().map_err(Fault::Disk)?;
        let mut piece = vec![0; 64 << 10];
        let written = loop {
            let length = pack.read(&mut piece).map_err(Fault::Disk)?;
            if length == 0 {
                break Ok(());
            }
            if let Err(error) = indexer.write_all(&piece[..length]) {
                break Err(damaged(&error.to_string()));
            }
        };
        let done = written.and_then(|()| indexer.commit().map_err(|error| damaged(error.message())));
        if late.load(Ordering::Relaxed) {
            return Err(Fault::Pack { what: "unpacking it timed out".to_owned() });
        }
        done.map(drop)
    }

    /// Records that it has all files of the commit.
    pub(super) fn add_commit(&self, commit: Commit, history: History) -> Result<(), Fault> {
        let mut held = self.held.lock();
        held.retain(|(id, _)| *id != commit.0);
        held.push((commit.0, history));
        let lines: Vec<_> = held.iter().map(|(id, history)| format!("{id} {}\n", word(*history))).collect();
        let fresh = self.path.join("held.new");
        fs::write(&fresh, lines.concat()).and_then(|()| fs::rename(&fresh, self.path.join(HELD))).map_err(Fault::Disk)
    }

    /// Bytes and packs on the disk.
    pub(super) fn size(&self) -> Result<(u64, usize), Fault> {
        let (mut bytes, mut packs) = (0, 0);
        for entry in fs::read_dir(self.path.join("objects/pack")).map_err(Fault::Disk)? {
            let entry = entry.map_err(Fault::Disk)?;
            // A file that disappears meanwhile does not count.
            bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            packs += usize::from(entry.path().extension().is_some_and(|extension| extension == "pack"));
        }
        Ok((bytes, packs))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.retired.load(Ordering::Relaxed) {
            remove(&self.path);
            // Succeeds only for the last user.
            let _ = self.path.parent().map(fs::remove_dir);
        }
        self.open.0.lock().remove(&self.path);
    }
}

fn word(history: History) -> &'static str {
    match history {
        History::Whole => "whole",
        History::Left => "left",
    }
}

/// The commits of a generation; `None` if the list is missing or unreadable.
fn read_held(path: &Path) -> Option<Vec<(Id, History)>> {
    let text = fs::read_to_string(path.join(HELD)).ok()?;
    let line = |line: &str| {
        let (id, word) = line.split_once(' ')?;
        let history = if word == "whole" { History::Whole } else { History::Left };
        Some((Id::parse(id.as_bytes())?, history))
    };
    text.lines().map(line).collect()
}

/// If the removal fails, the next process tries again.
fn remove(path: &Path) {
    let _ = fs::remove_dir_all(path);
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The name of a mirror's directory, which does not allow guessing credentials.
pub(super) fn name(salt: &[u8], identity: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(identity).finalize();
    format!("{}.{MIRROR}", hex::encode(&digest[..16]))
}

/// The random salt of a directory of mirrors.
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
    let temporary = path.with_extension(format!("{}.new", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&fresh)?;
    // Of two processes, the second reads the salt of the first.
    let linked = fs::hard_link(&temporary, path);
    fs::remove_file(&temporary)?;
    match linked {
        Ok(()) => Ok(fresh),
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

    fn find(directory: &Path, identity: u8, open: &OpenGenerations) -> Mirror {
        Mirror::find(directory, &[identity; 32], open).unwrap()
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
        let mut mirror = find(directory.path(), 1, &OpenGenerations::default());
        drop(grow(&mut mirror));
        let incomplete = mirror.next().0;
        fs::create_dir(&incomplete).unwrap();
        drop(mirror);
        let mirror = find(directory.path(), 1, &OpenGenerations::default());
        assert!(mirror.current().unwrap().holds(commit('a')));
        assert!(!incomplete.exists());
        assert!(find(directory.path(), 2, &OpenGenerations::default()).current().is_none());
    }

    #[test]
    fn an_old_generation_stays_until_its_last_reader_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let open = OpenGenerations::default();
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
