//! The tree of a GitSync: its objects and their children, each with its health.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;
use mainstay_object::Key;

use crate::facts::Facts;
use crate::filter::Query;

/// The health of an object, as a page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// The object failed.
    Failed,
    /// The object is waiting, or its health is unknown.
    Waiting,
    /// The object is healthy.
    Healthy,
}

/// Whether an object that should exist does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The object exists, or ended as it should.
    AsExpected,
    /// The object should exist and does not.
    Missing,
    /// The object was not read, for this reason.
    NotChecked(String),
}

/// An object of a tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The object.
    pub key: Key,
    /// The object's health.
    pub mark: Mark,
    /// The object's state in words.
    pub state: String,
    /// The time at which the object was created; `None` if the object does not exist or was not read.
    pub created: Option<Timestamp>,
    /// Whether the object exists.
    pub presence: Presence,
    /// Further facts of the live object.
    pub facts: Facts,
    /// The objects that this object owns.
    pub children: Vec<Node>,
}

impl Mark {
    /// All healths, the worst first.
    pub(crate) const ALL: [Self; 3] = [Self::Failed, Self::Waiting, Self::Healthy];

    /// Returns the word for the health on the page and in the filter.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Waiting => "waiting",
            Self::Healthy => "healthy",
        }
    }
}

impl Node {
    fn without_children(&self) -> Self {
        let Self { key, mark, state, created, presence, facts, children: _ } = self;
        let (key, state, presence, facts) = (key.clone(), state.clone(), presence.clone(), facts.clone());
        Self { key, mark: *mark, state, created: *created, presence, facts, children: Vec::new() }
    }

    /// Returns the worst health of the object and its children.
    pub(crate) fn worst(&self) -> Mark {
        self.children.iter().map(Self::worst).fold(self.mark, Mark::min)
    }
}

/// The tree of a GitSync.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The managed objects.
    pub objects: Vec<Node>,
    /// Notes about objects that are missing in the tree.
    pub notes: Vec<String>,
}

/// The word of the filter for objects that deviate from the repository.
pub(crate) const DEVIATING: &str = "deviating";

/// The filter of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeFilter {
    /// A part of the name or of the state, in any case.
    pub(crate) text: String,
    pub(crate) kind: String,
    pub(crate) mark: Option<Mark>,
    /// Whether only objects that deviate from the repository are shown.
    pub(crate) is_deviating: bool,
}

impl TreeFilter {
    /// Reads the filter. An unknown health is ignored.
    pub(crate) fn of(query: &Query) -> Self {
        Self {
            text: query.get("q").to_owned(),
            kind: query.get("kind").to_owned(),
            mark: Mark::ALL.into_iter().find(|mark| mark.word() == query.get("health")),
            is_deviating: query.get("health") == DEVIATING,
        }
    }

    /// Returns whether all objects are shown.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn matches(&self, node: &Node, text: &str, deviates: &dyn Fn(&Node) -> bool) -> bool {
        let has_text = || {
            let name = format!("{} {}", node.key, node.state).to_lowercase();
            text.is_empty() || name.contains(text)
        };
        (self.kind.is_empty() || *node.key.kind == *self.kind)
            && self.mark.is_none_or(|mark| node.mark == mark)
            && (!self.is_deviating || deviates(node))
            && has_text()
    }

    /// Returns the objects that match, and those whose children match, and the number of matches. A match without
    /// matching children keeps all its children. `deviates` says whether the status lists an object as drifted, paused or
    /// held.
    pub(crate) fn apply(&self, objects: &[Node], deviates: &dyn Fn(&Node) -> bool) -> (Vec<Node>, usize) {
        let text = self.text.to_lowercase();
        self.within(objects, &text, deviates)
    }

    fn within(&self, objects: &[Node], text: &str, deviates: &dyn Fn(&Node) -> bool) -> (Vec<Node>, usize) {
        let (mut kept, mut count) = (Vec::new(), 0);
        for node in objects {
            let (children, of_children) = self.within(&node.children, text, deviates);
            let is_match = self.matches(node, text, deviates);
            count += of_children + usize::from(is_match);
            if is_match && of_children == 0 {
                kept.push(node.clone());
            } else if is_match || of_children > 0 {
                kept.push(Node { children, ..node.without_children() });
            }
        }
        (kept, count)
    }
}

/// Returns the kinds in a tree.
pub(crate) fn kinds(objects: &[Node]) -> BTreeSet<&str> {
    let mut all: BTreeSet<&str> = objects.iter().map(|node| &*node.key.kind).collect();
    for node in objects.iter().filter(|node| !node.children.is_empty()) {
        all.append(&mut kinds(&node.children));
    }
    all
}

/// Returns the number of objects in a tree.
pub(crate) fn count(objects: &[Node]) -> usize {
    objects.iter().map(|node| 1 + count(&node.children)).sum()
}

/// Whether a tree has the children of managed objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Children {
    /// The children are read.
    Read,
    /// Only the managed objects are read.
    Omitted,
}

/// Reads the tree of a GitSync with the permissions of this connection, or returns why that failed. The memory of the tree
/// is limited.
pub type TreeReader = Arc<dyn Fn(Cluster, GitSync, Children) -> BoxFuture<'static, Result<Tree, String>> + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, mark: Mark, children: Vec<Node>) -> Node {
        let key = Key::new("", kind, Some("shop"), name);
        let state = format!("{name} is {}", mark.word());
        Node { key, mark, state, created: None, presence: Presence::AsExpected, facts: Facts::default(), children }
    }

    /// Returns the objects that remain, children in brackets.
    fn shown(nodes: &[Node]) -> String {
        let one = |node: &Node| {
            let children = shown(&node.children);
            if children.is_empty() { node.key.name.to_string() } else { format!("{}[{children}]", node.key.name) }
        };
        nodes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_filter_keeps_matches_with_their_parents() {
        let pods =
            vec![node("Pod", "web-1", Mark::Failed, Vec::new()), node("Pod", "web-2", Mark::Healthy, Vec::new())];
        let tree = [node("Deployment", "web", Mark::Waiting, pods), node("Secret", "key", Mark::Healthy, Vec::new())];
        let check = |query: &str, expected: &str, found: usize| {
            let (kept, count) =
                TreeFilter::of(&Query::parse(query.as_bytes())).apply(&tree, &|node: &Node| &*node.key.name == "web-2");
            assert_eq!((&*shown(&kept), count), (expected, found), "{query}");
        };
        check("", "web[web-1 web-2] key", 4);
        check("q=WEB-2", "web[web-2]", 1);
        check("q=shop/web", "web[web-1 web-2]", 3);
        check("q=is+failed", "web[web-1]", 1);
        check("kind=Secret", "key", 1);
        check("kind=Deployment", "web[web-1 web-2]", 1);
        check("health=healthy", "web[web-2] key", 2);
        check("health=failed&kind=Secret", "", 0);
        check("health=deviating", "web[web-2]", 1);
        check("health=deviating&kind=Secret", "", 0);
        check("health=strange", "web[web-1 web-2] key", 4);
        assert_eq!(kinds(&tree).into_iter().collect::<Vec<_>>(), ["Deployment", "Pod", "Secret"]);
        assert_eq!(count(&tree), 4);
    }
}
