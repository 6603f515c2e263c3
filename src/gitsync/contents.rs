//! What decides which manifests a commit has. Where it is the same in two commits, so is what they want.

use std::fmt;

use crate::object::Digest;
use crate::source::{Entry, TreeId};

/// What decides what is read: the tree of `baseDir`, and the files with rules above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    tree: TreeId,
    rules: Option<Digest>,
}

impl Contents {
    /// Of a tree, with the files with rules in the directories above it.
    pub(super) fn new(tree: TreeId, above: &[Entry]) -> Self {
        let described = |entry: &Entry| format!("{} {:?} {}", entry.id, entry.kind, entry.path);
        let rules = above.iter().map(described).collect::<Vec<_>>().join("\n");
        Self { tree, rules: (!rules.is_empty()).then(|| Digest::of(rules.as_bytes())) }
    }
}

/// The id of the tree, and behind a `+` a digest of the rules above it, if there are any.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rules {
            Some(rules) => write!(f, "{}+{rules}", self.tree),
            None => write!(f, "{}", self.tree),
        }
    }
}
