//! A document as SOPS walks it: in its order, and with its comments.

use super::scalar::Scalar;
use mainstay_object::{Flaw, Step};

/// How deeply a document may be nested.
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
    /// Its key; empty in a list.
    pub(super) key: String,
    /// The comments before it, without their `#`.
    pub(super) comments: Vec<String>,
    pub(super) node: Node,
}

impl Node {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(members) = self else { return None };
        members.iter().find(|member| member.key == key).map(|member| &member.node)
    }

    /// The text of a key; a time is the text that it was, because SOPS writes them alike.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Self::Leaf(Scalar::Text(text) | Scalar::Time(text)) => Some(text),
            _ => None,
        }
    }

    /// The items of a list under a key.
    pub(super) fn items(&self, key: &str) -> impl Iterator<Item = &Self> {
        let items = match self.get(key) {
            Some(Self::List(items)) => items.as_slice(),
            _ => &[],
        };
        items.iter().map(|item| &item.node)
    }
}

/// Why a document is not one that SOPS has written.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// It is not in its language, as whoever reads it afterwards will say.
    Syntax,
    /// It has something that SOPS does not write.
    Foreign(Flaw),
}

/// Something that SOPS does not write.
pub(super) fn foreign(path: Vec<Step>, what: &str) -> Unreadable {
    Unreadable::Foreign(Flaw::new(path, what, Some("let `sops` write the file")))
}
