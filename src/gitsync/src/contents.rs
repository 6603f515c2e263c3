//! The identity of a commit's inputs. Two commits with equal contents have the same desired state.

use std::fmt;

use mainstay_git::{Entry, TreeId};
use mainstay_object::Digest;

/// All inputs of the desired state: the tree of `baseDir`, and inputs outside of it. The latter are ignore files above
/// `baseDir`, other files that kustomizations and charts read, the capabilities that a chart reads, and the values of
/// variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    tree: TreeId,
    rules: Option<Digest>,
}

impl Contents {
    /// Combines a tree with the other inputs: files outside of it, the capabilities if a chart reads them, and the
    /// values of variables if any are substituted.
    pub(super) fn new(tree: TreeId, above: &[Entry], capabilities: Option<Digest>, values: Option<Digest>) -> Self {
        let described = |entry: &Entry| format!("{} {:?} {}", entry.id, entry.kind, entry.path);
        let cluster = capabilities.map(|digest| format!("cluster {digest}"));
        let values = values.map(|digest| format!("values {digest}"));
        let rules = above.iter().map(described).chain(cluster).chain(values).collect::<Vec<_>>().join("\n");
        Self { tree, rules: (!rules.is_empty()).then(|| Digest::of(rules.as_bytes())) }
    }
}

/// The id of the tree. A `+` and a digest follow if there are inputs outside of it.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rules {
            Some(rules) => write!(f, "{}+{rules}", self.tree),
            None => write!(f, "{}", self.tree),
        }
    }
}
