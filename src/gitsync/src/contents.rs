//! What decides which manifests a commit has. Where it is the same in two commits, so is what they want.

use std::fmt;

use mainstay_git::{Entry, TreeId};
use mainstay_object::Digest;

/// What decides what is read: the tree of `baseDir`, and what counts outside of it: files with rules above it, what
/// kustomizations and charts read elsewhere, what the cluster is where a chart asks for that, and the values of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    tree: TreeId,
    rules: Option<Digest>,
}

impl Contents {
    /// Of a tree, with the files outside of it that count, what the cluster is, if a chart asks for that, and values, if
    /// variables are substituted.
    pub(super) fn new(tree: TreeId, above: &[Entry], capabilities: Option<Digest>, values: Option<Digest>) -> Self {
        let described = |entry: &Entry| format!("{} {:?} {}", entry.id, entry.kind, entry.path);
        let cluster = capabilities.map(|digest| format!("cluster {digest}"));
        let values = values.map(|digest| format!("values {digest}"));
        let rules = above.iter().map(described).chain(cluster).chain(values).collect::<Vec<_>>().join("\n");
        Self { tree, rules: (!rules.is_empty()).then(|| Digest::of(rules.as_bytes())) }
    }
}

/// The id of the tree, and behind a `+` a digest of what counts outside of it, if there is anything.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rules {
            Some(rules) => write!(f, "{}+{rules}", self.tree),
            None => write!(f, "{}", self.tree),
        }
    }
}
