//! Temporary directories that no other user of the machine can read.
//!
//! Invariant: other users have no access, whatever the umask is. Sockets and copies of files in such a directory have
//! the permissions that the umask allows. Invariant: no other module of the command line creates a temporary directory.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt as _};

use tempfile::{Builder, TempDir};

/// Creates an empty directory. The directory is removed when the value is dropped.
pub(super) fn create() -> io::Result<TempDir> {
    Builder::new().permissions(Permissions::from_mode(0o700)).tempdir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_for_its_user_only() {
        let directory = create().unwrap();
        let mode = directory.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
