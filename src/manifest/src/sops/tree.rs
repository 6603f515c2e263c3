//! A document in the form in which SOPS processes it: ordered, and with comments.

use super::scalar::Scalar;
use mainstay_object::{Flaw, Step};

/// Maximum nesting depth of a document.
pub(super) const DEPTH: usize = 100;

/// A value of a document.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Map(Vec<Member>),
    List(Vec<Member>),
    Leaf(Scalar),
}

/// A value in a map or a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Member {
    /// The key of the value; empty in a list.
    pub(super) key: String,
    /// The comments before the value, without their `#`.
    pub(super) comments: Vec<String>,
    pub(super) node: Node,
}

impl Node {
    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else { return None };
        members.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// Returns the string at a key. For a time, its original text is returned, because SOPS writes strings and times
    /// alike.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Self::Leaf(Scalar::Text(text) | Scalar::Time(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the items of the list at a key.
    pub(super) fn items(&self, key: &str) -> impl Iterator<Item = &Self> {
        let items = match self.get(key) {
            Some(Self::List(items)) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(|item| &item.node)
    }
}

/// The reason that a document was not written by SOPS.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// The document is invalid in its format. The manifest parser reports the error.
    Syntax,
    /// The document contains syntax that SOPS does not write.
    Foreign(Flaw),
}

/// Returns the error for syntax that SOPS does not write.
pub(super) fn foreign(path: Vec<Step>, what: &str) -> Unreadable {
    Unreadable::Foreign(Flaw::new(path, what, Some("let `sops` write the file")))
}
