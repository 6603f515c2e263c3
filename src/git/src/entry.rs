//! Entries of a directory of a commit.

use super::id::BlobId;
use super::path_flaw::PathFlaw;

/// A file, symlink or submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path from the root of the repository. Characters other than plain text are escaped.
    pub path: String,
    /// Id of the content.
    pub id: BlobId,
    /// Size of the content in bytes; 0 for submodules.
    pub size: u64,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Whether the entry is an executable file.
    pub executable: bool,
    /// The reason why the path is invalid, if it is. An invalid path need not be unique.
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
    /// No entry.
    Nothing,
}

/// The kind of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link. Its content is the target, which is never followed.
    Symlink,
    /// A submodule that was not fetched.
    Submodule,
}

impl EntryKind {
    /// Returns the end of a sentence that says why the entry is not a directory.
    pub(super) fn is_no_directory(self) -> &'static str {
        match self {
            Self::File => "is a file",
            Self::Symlink => "is a symbolic link, which is not followed; name its target",
            Self::Submodule => "is a submodule, which is not fetched",
        }
    }
}
