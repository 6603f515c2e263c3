//! The long-running process: what it is configured with, how its parts are wired, its health and its metrics.

pub mod health;
pub mod metrics;

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::{cluster::Cluster, notification::Teller, source};

/// How the agent works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The agent's own namespace: its Lease and inventories, and the GitSyncs that may touch everything.
    pub namespace: String,
    /// Further namespaces whose GitSyncs may touch everything.
    pub allow_namespaces: Vec<String>,
    /// Name in the Lease.
    pub identity: String,
    /// Where health and metrics are served.
    pub listen: Option<SocketAddr>,
    /// Git.
    pub source: source::Settings,
    /// Whether to hold the Lease before acting.
    pub elect: bool,
}

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {}

/// Runs until `stop`.
pub async fn run(_: Settings, _: Cluster, _: Teller, stop: CancellationToken) -> Result<(), Error> {
    stop.cancelled().await;
    Ok(())
}
