//! `.mainstay`, the directory for local work in the current directory, and its content.
//!
//! A checkout or an archive may contain such a directory. Links in it could redirect writes and removals, and files in
//! it would be trusted. So each directory is opened relative to its parent, without following links.
//!
//! Invariant: a link, a directory of another user and files tracked by Git are refused before anything is written.
//! Invariant: no other file contains the directory's name, so every command opens the directory with this module.
//!
//! Not here: access relative to a descriptor in libraries. libgit2 and the embedded cluster use paths. Since the
//! directories belong to this user, other users cannot replace them.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, mkdirat, openat, statat};
use rustix::io::Errno;

/// Name of the directory.
const NAME: &str = ".mainstay";
/// Kubeconfig of the embedded cluster.
pub(super) const KUBECONFIG: &str = ".mainstay/kubeconfig";
/// Demonstration repository of `mainstay dev`.
pub(super) const DEMONSTRATION: &str = ".mainstay/demo";
/// Directories with the data of `mainstay agent` and of `mainstay eventing` outside of a cluster.
pub(super) const AGENT: &str = ".mainstay/agent";
pub(super) const EVENTING: &str = ".mainstay/eventing";

/// Why the directory is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{path} is a symbolic link, which is not followed", path = .0.display())]
    Link(PathBuf),
    #[error("{path} is neither a file nor a directory", path = .0.display())]
    Special(PathBuf),
    #[error("{path} belongs to another user ({user})", path = .0.display(), user = .1)]
    Foreign(PathBuf, u32),
    #[error("{path} is tracked by the Git repository {repository}: it came with a checkout", path = .0.display(), repository = .1.display())]
    Tracked(PathBuf, PathBuf),
    #[error("could not use {path}", path = .0.display())]
    Use(PathBuf, #[source] io::Error),
}

impl Error {
    /// Returns the hint.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Link(path) | Self::Special(path) => {
                Some(format!("remove {}: Mainstay makes a directory or a file of its own there", path.display()))
            }
            Self::Foreign(path, _) => Some(format!("remove {}, or work in another directory", path.display())),
            Self::Tracked(path, _) => Some(format!(
                "git rm -r --cached {0}, and remove {0} after you have looked at it; or work in another directory",
                path.display()
            )),
            Self::Use(..) => None,
        }
    }
}

/// A directory opened without following a link: `.mainstay`, or a directory below it.
#[derive(Debug)]
pub(super) struct LocalDirectory {
    path: PathBuf,
    open: OwnedFd,
}

impl LocalDirectory {
    /// Opens or creates `.mainstay` in the current directory.
    pub(super) fn open() -> Result<Self, Error> {
        Self::open_in(Path::new(""))
    }

    /// Opens or creates `.mainstay` in another directory.
    pub(super) fn open_in(parent: &Path) -> Result<Self, Error> {
        let path = parent.join(NAME);
        refuse_tracked(parent, &path)?;
        let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = openat(CWD, folder, flags, Mode::empty()).map_err(|error| used(&path, error))?;
        let opened = enter(&open, NAME, path)?;
        // The directory contains files of pods with Secrets and tokens, which Git must not track.
        opened.write(".gitignore", "*\n")?;
        Ok(opened)
    }

    /// Returns the path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens or creates a subdirectory.
    pub(super) fn directory(&self, name: &str) -> Result<Self, Error> {
        enter(&self.open, name, self.path.join(name))
    }

    /// Opens a subdirectory, and empties it.
    pub(super) fn empty_directory(&self, name: &str) -> Result<Self, Error> {
        let old = self.directory(name)?;
        // This does not follow links in the directory.
        fs::remove_dir_all(old.path()).map_err(|cause| Error::Use(old.path, cause))?;
        self.directory(name)
    }

    /// Opens or creates a subdirectory like [`Self::directory`]. Refuses links anywhere below it.
    pub(super) fn plain_directory(&self, name: &str) -> Result<Self, Error> {
        let found = self.directory(name)?;
        let own = found.open.try_clone().map_err(|cause| Error::Use(found.path.clone(), cause))?;
        refuse_links(own, &found.path)?;
        Ok(found)
    }

    /// Returns the path of a file in the directory. An existing entry must be a regular file.
    pub(super) fn file(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        match self.kind(name, &path)? {
            None | Some(FileType::RegularFile) => Ok(path),
            Some(FileType::Symlink) => Err(Error::Link(path)),
            Some(_) => Err(Error::Special(path)),
        }
    }

    /// Writes a file in the directory.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let (mut file, path) = self.create(name, OFlags::TRUNC)?;
        file.write_all(text.as_bytes()).map_err(|cause| Error::Use(path, cause))
    }

    /// Locks the directory; `None` if another process holds the lock.
    pub(super) fn lock(&self) -> Result<Option<File>, Error> {
        let (file, path) = self.create("lock", OFlags::empty())?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(Error::Use(path, cause)),
        }
    }

    fn create(&self, name: &str, more: OFlags) -> Result<(File, PathBuf), Error> {
        let path = self.file(name)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        let file = openat(&self.open, name, flags, Mode::from_raw_mode(0o600)).map_err(|error| used(&path, error))?;
        Ok((file.into(), path))
    }

    fn kind(&self, name: &str, path: &Path) -> Result<Option<FileType>, Error> {
        kind(&self.open, name).map_err(|error| used(path, error))
    }
}

/// Checks a path argument. If the path contains `.mainstay`, links and files that Git tracks are refused. Nothing is
/// created.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let all: Vec<Component<'_>> = path.components().collect();
    let Some(at) = all.iter().position(|part| part.as_os_str() == NAME) else { return Ok(()) };
    let mut reached: PathBuf = all[..at].iter().collect();
    let mut first = true;
    for part in &all[at..] {
        let parent = reached.clone();
        reached.push(part);
        if std::mem::take(&mut first) {
            refuse_tracked(&parent, &reached)?;
        }
        match fs::symlink_metadata(&reached) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(Error::Use(reached, cause)),
            Ok(found) if found.is_symlink() => return Err(Error::Link(reached)),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn used(path: &Path, error: Errno) -> Error {
    Error::Use(path.to_owned(), error.into())
}

/// Returns the type of an entry, without following a link; `None` if the entry does not exist.
fn kind(folder: &OwnedFd, name: &str) -> Result<Option<FileType>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens or creates a directory that belongs to this user and that other users cannot access.
fn enter(folder: &OwnedFd, name: &str, path: PathBuf) -> Result<LocalDirectory, Error> {
    let failed = |error| used(&path, error);
    match kind(folder, name).map_err(failed)? {
        Some(FileType::Directory) => {}
        Some(FileType::Symlink) => return Err(Error::Link(path)),
        Some(_) => return Err(Error::Special(path)),
        None => match mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        },
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let open = openat(folder, name, flags, Mode::empty()).map_err(failed)?;
    let owner = fstat(&open).map_err(failed)?.st_uid;
    if owner != rustix::process::geteuid().as_raw() {
        return Err(Error::Foreign(path, owner));
    }
    fchmod(&open, Mode::from_raw_mode(0o700)).map_err(failed)?;
    Ok(LocalDirectory { path, open })
}

/// Refuses a directory with a link anywhere below it.
fn refuse_links(folder: OwnedFd, path: &Path) -> Result<(), Error> {
    let mut left = vec![(folder, path.to_owned())];
    while let Some((folder, path)) = left.pop() {
        let failed = |error| used(&path, error);
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let below = path.join(name.to_string_lossy().as_ref());
            // Some file systems do not report the type in the entry.
            let found = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| used(&below, error))?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Symlink => return Err(Error::Link(below)),
                FileType::Directory => {
                    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
                    let open = openat(&folder, name, flags, Mode::empty()).map_err(|error| used(&below, error))?;
                    left.push((open, below));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Refuses a directory in the index of the surrounding repository. A repository that libgit2 cannot open, such as a
/// repository of another user, is ignored; links are still refused.
fn refuse_tracked(parent: &Path, path: &Path) -> Result<(), Error> {
    let folder = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let Ok(repository) = git2::Repository::discover(folder) else { return Ok(()) };
    let Some(root) = repository.workdir().and_then(|root| fs::canonicalize(root).ok()) else { return Ok(()) };
    let Ok(folder) = fs::canonicalize(folder) else { return Ok(()) };
    let Ok(inside) = folder.strip_prefix(&root) else { return Ok(()) };
    let Ok(index) = repository.index() else { return Ok(()) };
    // The comparison ignores case, because some file systems do.
    let wanted = inside.join(NAME).as_os_str().as_encoded_bytes().to_ascii_lowercase();
    let is_it = |entry: git2::IndexEntry| {
        let name = entry.path.to_ascii_lowercase();
        name.strip_prefix(wanted.as_slice()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    if index.iter().any(is_it) { Err(Error::Tracked(path.to_owned(), root)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn directories_are_made_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let room = LocalDirectory::open_in(folder.path()).unwrap();
        let beneath = room.directory("cluster").unwrap().directory("node").unwrap();
        for path in [room.path(), beneath.path()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(room.path().join(".gitignore")).unwrap(), "*\n");
        fs::write(beneath.path().join("old"), "").unwrap();
        assert_eq!(fs::read_dir(room.empty_directory("cluster").unwrap().path()).unwrap().count(), 0);
    }

    /// Tests each way in which a checkout could point outside of the directory.
    #[test]
    fn links_are_refused_and_what_they_lead_to_stays() {
        type Way = fn(&LocalDirectory) -> Result<(), Error>;
        let ways: [(&str, Way); 7] = [
            ("cluster", |room| room.directory("cluster").map(drop)),
            ("eventing", |room| room.empty_directory("eventing").map(drop)),
            ("mirrors", |room| room.plain_directory("mirrors").map(drop)),
            ("mirrors/a.git", |room| room.plain_directory("mirrors").map(drop)),
            ("kubeconfig", |room| room.file("kubeconfig").map(drop)),
            (".gitignore", |room| room.write(".gitignore", "*\n")),
            ("lock", |room| room.lock().map(drop)),
        ];
        for (name, way) in ways {
            for kept in ["file", "directory/file", "missing"] {
                let folder = tempfile::tempdir().unwrap();
                let room = LocalDirectory::open_in(&folder.path().join("")).unwrap();
                fs::create_dir(folder.path().join("directory")).unwrap();
                for file in ["file", "directory/file"] {
                    fs::write(folder.path().join(file), "mine").unwrap();
                }
                let link = room.path().join(name);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                let _ = fs::remove_file(&link);
                symlink(folder.path().join(kept.split('/').next().unwrap()), &link).unwrap();
                let refused = way(&room).unwrap_err();
                assert!(matches!(&refused, Error::Link(path) if *path == link), "{name}: {refused}");
                assert!(refused.hint().unwrap().contains(name), "{refused:?}");
                for file in ["file", "directory/file"] {
                    assert_eq!(fs::read_to_string(folder.path().join(file)).unwrap(), "mine", "{name}");
                }
                assert!(!folder.path().join("missing").exists(), "{name}");
                assert!(matches!(check(&link.join("beneath")), Err(Error::Link(_))), "{name}");
            }
        }
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_refused() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), folder.path().join(NAME)).unwrap();
        assert!(matches!(LocalDirectory::open_in(folder.path()), Err(Error::Link(_))));
        assert!(matches!(check(&folder.path().join(KUBECONFIG)), Err(Error::Link(_))));
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }

    #[test]
    fn tracked_files_are_refused_in_subdirectories_and_in_capitals() {
        for (tracked, at) in
            [(".mainstay/lock", ""), (".mainstay", ""), ("apps/.mainstay/2/x", "apps"), (".MAINSTAY/lock", "")]
        {
            let folder = tempfile::tempdir().unwrap();
            let repository = git2::Repository::init(folder.path()).unwrap();
            fs::create_dir_all(folder.path().join(at)).unwrap();
            check(&folder.path().join(at).join(KUBECONFIG)).unwrap();
            let blob = repository.blob(b"").unwrap();
            let entry = git2::IndexEntry {
                ctime: git2::IndexTime::new(0, 0),
                mtime: git2::IndexTime::new(0, 0),
                dev: 0,
                ino: 0,
                mode: 0o100_644,
                uid: 0,
                gid: 0,
                file_size: 0,
                id: blob,
                flags: 0,
                flags_extended: 0,
                path: tracked.into(),
            };
            let mut index = repository.index().unwrap();
            index.add(&entry).unwrap();
            index.write().unwrap();
            let refused = LocalDirectory::open_in(&folder.path().join(at)).unwrap_err();
            assert!(matches!(refused, Error::Tracked(..)), "{tracked}: {refused}");
            assert!(matches!(check(&folder.path().join(at).join(KUBECONFIG)), Err(Error::Tracked(..))), "{tracked}");
            assert!(!folder.path().join(at).join(NAME).exists());
        }
    }
}
