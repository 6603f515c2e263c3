//! The cost of many GitSyncs of one repository with a few objects each, and of rendering a kustomization.
//!
//! Not here: charts. Their rendering has the same overhead beyond the tool.

mod load;
mod rendering;
mod situations;
mod world;

use super::{
    Error, Product, counters, git_server, memory_limit, observer, process, progress, ready_syncs, stand, table,
};

/// Measures all situations with this many GitSyncs.
pub(super) async fn measure(product: &Product, syncs: u32, idle_seconds: u64) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(product, syncs as usize).await?;
    let mut rows = situations::all(&mut world, idle_seconds).await?;
    rows.extend(rendering::all(&mut world).await?);
    Ok(rows)
}
