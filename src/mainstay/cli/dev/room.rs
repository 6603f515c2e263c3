//! The directory of one run of `dev`: mirrors, pods, images, and by default the kubeconfig.
//!
//! Invariant: nobody but its owner reads it.
//! Invariant: two runs that last at the same time have different ones, also in one working directory.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// A directory that no other run uses while this value lives, however the process ends.
#[derive(Debug)]
pub(super) struct Room {
    path: PathBuf,
    /// Held, not used.
    _lock: File,
}

impl Room {
    /// Takes `directory`, or, if another run has it, the first free one of `directory/2`, `directory/3` and so on. Git
    /// ignores all of them.
    pub(super) fn take(directory: &Path) -> Result<Self, (PathBuf, io::Error)> {
        let ignore = directory.join(".gitignore");
        // Pods have Secrets and tokens in files there.
        let closed =
            fs::create_dir_all(directory).and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o700)));
        closed.and_then(|()| fs::write(&ignore, "*\n")).map_err(|cause| (ignore, cause))?;
        let mut number = 1;
        loop {
            let path = if number == 1 { directory.to_owned() } else { directory.join(number.to_string()) };
            if let Some(lock) = lock(&path).map_err(|cause| (path.clone(), cause))? {
                return Ok(Self { path, _lock: lock });
            }
            number += 1;
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The lock of a directory, unless another process has it.
fn lock(directory: &Path) -> io::Result<Option<File>> {
    fs::create_dir_all(directory)?;
    let file = File::options().create(true).truncate(false).write(true).open(directory.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_directory_of_its_own_and_leaves_it_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join(".mainstay");
        let first = Room::take(&directory).unwrap();
        let second = Room::take(&directory).unwrap();
        assert_eq!((first.path(), second.path()), (&*directory, &*directory.join("2")));
        drop(first);
        assert_eq!(Room::take(&directory).unwrap().path(), directory);
        assert_eq!(fs::read_to_string(directory.join(".gitignore")).unwrap(), "*\n");
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
