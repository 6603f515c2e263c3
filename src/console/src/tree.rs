//! The tree of a GitSync: its objects and their children, each with its health.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;
use mainstay_object::Key;

/// The health of an object, as a page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It failed.
    Failed,
    /// It waits, or is unknown.
    Waiting,
    /// It is as it should be.
    Healthy,
}

/// An object of a tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The object.
    pub key: Key,
    /// Its health.
    pub mark: Mark,
    /// Its state in words.
    pub state: String,
    /// The objects that it owns.
    pub children: Vec<Node>,
}

impl Node {
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
    /// Notes about what is missing in the tree.
    pub notes: Vec<String>,
}

/// Reads the tree of a GitSync with the rights of this connection, or says why that failed.
pub type TreeReader = Arc<dyn Fn(Cluster, GitSync) -> BoxFuture<'static, Result<Tree, String>> + Send + Sync>;
