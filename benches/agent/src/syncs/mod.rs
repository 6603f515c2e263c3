//! The cost of a GitSync: a local repository of many ConfigMaps.

mod announced;
mod edits;
mod load;
mod part;
mod situations;
mod storm;
mod world;

use std::path::Path;

pub(super) use self::part::Part;
use super::{Error, Product, counters, observer, ready_syncs, stand, table};

/// Measures all situations or a part with this many objects.
pub(super) async fn measure(
    product: &Product,
    kubeconfig: Option<&Path>,
    objects: u32,
    only: Option<Part>,
    idle: u64,
) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(product, kubeconfig, objects as usize).await?;
    let rows = situations::all(&mut world, only, idle).await;
    let cleaned = if kubeconfig.is_some() { world.clean().await } else { Ok(()) };
    let rows = rows?;
    cleaned?;
    Ok(rows)
}
