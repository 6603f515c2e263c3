//! The kubeconfig of the embedded cluster. Only the owner of the file can read it.
//!
//! Invariant: a kubeconfig of another origin is never overwritten.

use std::{
    fs::{self, File, TryLockError},
    io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// First line of every kubeconfig of `mainstay dev`.
const MARK: &str = "# Written by `mainstay dev`; overwritten by its next run.\n";

/// Why the kubeconfig could not be written.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("{path} contains the configuration of a different cluster", path = .0.display())]
    Foreign(PathBuf),
    #[error("{path} points to the cluster of another `mainstay dev`, which is running", path = .0.display())]
    InUse(PathBuf),
    #[error("could not write {path}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// Writes `text` to `path` with mode 0600, and creates the directory. While the returned file is held, no other run
/// replaces it.
pub(super) fn write(path: &Path, text: &str) -> Result<File, Error> {
    let failed = |error| Error::Write(path.to_owned(), error);
    match fs::read_to_string(path) {
        Ok(old) if !old.starts_with(MARK) && !old.trim().is_empty() => return Err(Error::Foreign(path.to_owned())),
        Ok(_) => match File::open(path).map_err(failed)?.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        },
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        Err(_) => {}
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // The content is written to a new file, which then replaces the old one. So readers see the old or the new content,
    // always with the right mode.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:08x}", fastrand::u32(..)));
    let fresh = PathBuf::from(name);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    let written = file.write_all(format!("{MARK}{text}").as_bytes()).and_then(|()| file.lock());
    written.and_then(|()| fs::rename(&fresh, path)).map_err(|error| {
        let _ = fs::remove_file(&fresh);
        failed(error)
    })?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn is_for_its_owner_alone_and_replaces_only_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/kubeconfig");
        let held = write(&path, "first\n").unwrap();
        assert!(matches!(write(&path, "second\n"), Err(Error::InUse(_))));
        drop(held);
        write(&path, "second\n").unwrap();
        assert!(fs::read_to_string(&path).unwrap().ends_with("second\n"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "apiVersion: v1\n").unwrap();
        assert!(matches!(write(&path, "third\n"), Err(Error::Foreign(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "apiVersion: v1\n");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
