//! What a directory of a commit holds.

use super::id::BlobId;
use super::path_flaw::PathFlaw;

/// A file, symlink or submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root of the repository. What is no plain text in it is escaped.
    pub path: String,
    /// Id of its content.
    pub id: BlobId,
    /// Bytes of its content; 0 for submodules.
    pub size: u64,
    /// Its kind.
    pub kind: EntryKind,
    /// Whether it is an executable file.
    pub executable: bool,
    /// What is wrong with its path, which then need not be its own.
    pub flaw: Option<PathFlaw>,
}

/// What a path of a commit leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A directory, which may be a submodule that was fetched.
    Directory,
    /// A regular file.
    File(Entry),
    /// A link, or a submodule that was not fetched.
    Other(EntryKind),
    /// Nothing.
    Nothing,
}

/// The kind of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is its target, and it is never followed.
    Symlink,
    /// A submodule that was not fetched.
    Submodule,
}

impl EntryKind {
    /// What is said of it where a directory is wanted.
    pub(super) fn is_no_directory(self) -> &'static str {
        match self {
            Self::File => "is a file",
            Self::Symlink => "is a symbolic link, which is not followed; name its target",
            Self::Submodule => "is a submodule, which is not fetched",
        }
    }
}
