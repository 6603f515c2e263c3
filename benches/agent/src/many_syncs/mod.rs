//! The cost of many GitSyncs of one repository with a few objects each, and of a kustomization that is rendered beside the
//! agent.
//!
//! Deliberately absent: charts. What a render costs besides the tool is the same for them.

mod load;
mod rendering;
mod situations;
mod world;

use super::{
    Error, Product, counters, git_server, memory_limit, observer, process, progress, ready_syncs, stand, table,
};

/// Measures everything with this many GitSyncs.
pub(super) async fn measure(product: &Product, syncs: u32, idle_seconds: u64) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(product, syncs as usize).await?;
    let mut rows = situations::all(&mut world, idle_seconds).await?;
    rows.extend(rendering::all(&mut world).await?);
    Ok(rows)
}
