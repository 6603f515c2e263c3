//! Shared state of a node's tasks.

use std::sync::Arc;

use super::kubelet::Node;
use devcluster_apiserver::client::Client;
use devcluster_apiserver::server::Server;

/// The API server, a client of it, and the node itself.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) server: Server,
    pub(super) client: Arc<Client>,
    pub(super) node: Arc<Node>,
}

impl Context {
    pub(super) fn node(&self) -> &Node {
        &self.node
    }
}
