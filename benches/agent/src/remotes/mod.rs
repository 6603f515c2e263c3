//! The cost of remotes: many that are polled each minute over HTTP and SSH, one with many references, one with many
//! files, and a large one.
//!
//! Not here: network latency. Both servers are on loopback; the bytes of their responses are counted.

mod repository;
mod situations;
mod world;

use super::{Error, Product, git_server, observer, progress, stand, table};

/// Measures all situations with this many remotes, and a repository of 1 GiB if `large`.
pub(super) async fn measure(
    product: &Product,
    remotes: u32,
    idle_seconds: u64,
    large: bool,
) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(product).await?;
    situations::all(&mut world, remotes as usize, idle_seconds, large).await
}
