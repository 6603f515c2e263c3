//! The controllers of the cluster.

use crate::server::Server;

impl Server {
    /// Starts the controllers.
    pub fn spawn_actors(&self) {}
}
