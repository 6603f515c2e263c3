//! The artifact that lookups of an OCIRepository find.

use super::id::Commit;

/// An artifact that GitSyncs read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Commit of the artifact.
    pub commit: Commit,
    /// Tag of the artifact; empty if it was found by its digest.
    pub tag: String,
}
