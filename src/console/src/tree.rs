//! The tree of a GitSync: its objects and their children, each with its health.

use std::sync::Arc;

use futures::future::BoxFuture;
use mainstay_api::GitSync;
use mainstay_cluster::Cluster;
use mainstay_object::Key;

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

/// An object of a tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// The object.
    pub key: Key,
    /// The object's health.
    pub mark: Mark,
    /// The object's state in words.
    pub state: String,
    /// The objects that this object owns.
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
    /// Notes about objects that are missing in the tree.
    pub notes: Vec<String>,
}

/// Reads the tree of a GitSync with the permissions of this connection, or returns why that failed.
pub type TreeReader = Arc<dyn Fn(Cluster, GitSync) -> BoxFuture<'static, Result<Tree, String>> + Send + Sync>;
