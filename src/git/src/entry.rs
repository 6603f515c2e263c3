//! Entries of a directory of a commit.

use super::id::BlobId;
use super::path_flaw::PathFlaw;

/// A file, symlink or submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root of the repository. Other characters than plain text are escaped.
    pub path: String,
    /// Id of its content.
    pub id: BlobId,
    /// Size of its content in bytes; 0 for submodules.
    pub size: u64,
    /// Its kind.
    pub kind: EntryKind,
    /// Whether it is an executable file.
    pub executable: bool,
    /// The flaw of its path. A path with a flaw need not be unique.
    pub flaw: Option<PathFlaw>,
}

/// The kind of object at a path of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A directory, possibly a fetched submodule.
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
    /// A symbolic link. Its content is its target; it is never followed.
    Symlink,
    /// A submodule that was not fetched.
    Submodule,
}

impl EntryKind {
    /// Returns the end of a sentence that says why it is not a directory.
    pub(super) fn is_no_directory(self) -> &'static str {
        match self {
            Self::File => "is a file",
            Self::Symlink => "is a symbolic link, which is not followed; name its target",
            Self::Submodule => "is a submodule, which is not fetched",
        }
    }
}
