//! The artifact that lookups of an OCIRepository find.

use super::id::Commit;

/// An artifact that GitSyncs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Its commit.
    pub commit: Commit,
    /// Its tag; empty if it was found by its digest.
    pub tag: String,
}
