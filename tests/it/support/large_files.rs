//! Pointers to files in Git LFS, as git-lfs makes them.

use std::process::Command;

/// A file in Git LFS.
pub(crate) struct LargeFile {
    /// What stands in the commit.
    pub(crate) pointer: String,
    /// SHA-256 of its content, by which a server has it.
    pub(crate) oid: String,
}

impl LargeFile {
    pub(crate) fn of(content: impl AsRef<[u8]>) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let output = Command::new("git").args(["lfs", "pointer", "--file"]).arg(file.path()).output().unwrap();
        assert!(output.status.success(), "git-lfs is needed: apt-get install git-lfs");
        let pointer = String::from_utf8(output.stdout).unwrap();
        let oid = pointer.split("oid sha256:").nth(1).unwrap()[..64].to_owned();
        Self { pointer, oid }
    }
}
