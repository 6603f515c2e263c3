//! The directory of one run of `dev`: mirrors, pods, images, and by default the kubeconfig.
//!
//! Invariant: only the owner of the directory can read it, and no link in it points outside. Invariant: concurrent runs
//! have different directories, even in one working directory.

use std::{fs::File, path::Path};

use crate::cli::local_directory::{Error, LocalDirectory};

/// Files that other code writes by their paths.
const FILES: [&str; 4] = ["kubeconfig", "gateway-ca.pem", "issuer.key", "agent.log"];
/// Directories that are emptied at the start.
const EPHEMERAL: [&str; 3] = ["cluster", "eventing", "work-tree.git"];

/// A directory that no other run uses while this value exists. The lock is released even if the process is killed.
#[derive(Debug)]
pub(super) struct Room {
    directory: LocalDirectory,
    /// The file that holds the lock.
    _lock: File,
}

impl Room {
    /// Takes `directory`. If another run uses it, takes the first free directory of `directory/2`, `directory/3` and so
    /// on. Git ignores all of these directories.
    pub(super) fn take(directory: LocalDirectory) -> Result<Self, Error> {
        if let Some(lock) = directory.lock()? {
            return Self::prepare(directory, lock);
        }
        let mut number = 2;
        loop {
            let other = directory.directory(&number.to_string())?;
            if let Some(lock) = other.lock()? {
                return Self::prepare(other, lock);
            }
            number += 1;
        }
    }

    /// Checks the existing files.
    fn prepare(directory: LocalDirectory, lock: File) -> Result<Self, Error> {
        for name in FILES {
            directory.file(name)?;
        }
        for name in EPHEMERAL {
            directory.empty_directory(name)?;
        }
        directory.plain_directory("mirrors")?;
        Ok(Self { directory, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_directory_of_its_own_and_leaves_it_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let take = || Room::take(LocalDirectory::open_in(folder.path()).unwrap()).unwrap();
        let first = take();
        let second = take();
        assert_eq!(second.path(), first.path().join("2"));
        let path = first.path().to_owned();
        drop(first);
        assert_eq!(take().path(), path);
    }
}
