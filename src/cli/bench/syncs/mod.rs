//! What a GitSync costs: a local repository of many ConfigMaps, followed by the agent.

mod load;
mod situations;
mod storm;
mod world;

use std::path::Path;

use super::{Error, counters, observer, stand, table};

/// Measures everything, with this many objects.
pub(super) async fn measure(kubeconfig: Option<&Path>, objects: u32, idle: u64) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(kubeconfig, objects as usize).await?;
    let rows = situations::all(&mut world, idle).await;
    let cleaned = if kubeconfig.is_some() { world.clean().await } else { Ok(()) };
    let rows = rows?;
    cleaned?;
    Ok(rows)
}
