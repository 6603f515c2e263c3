//! What a GitSync costs: a local repository of many ConfigMaps, followed by the agent.

mod load;
mod situations;
mod storm;
mod world;

use std::path::Path;

use super::{Error, counters, observer, stand, table};

/// Some of the situations; the first sync comes before each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    // Syncs, an idle agent, and single changes by hand. No texts for `--help`, which would take a page for them.
    Singles,
    Storms,
    Restarts,
}

/// Measures everything, or a part, with this many objects.
pub(super) async fn measure(
    kubeconfig: Option<&Path>,
    objects: u32,
    only: Option<Part>,
    idle: u64,
) -> Result<Vec<table::Row>, Error> {
    let mut world = world::World::start(kubeconfig, objects as usize).await?;
    let rows = situations::all(&mut world, only, idle).await;
    let cleaned = if kubeconfig.is_some() { world.clean().await } else { Ok(()) };
    let rows = rows?;
    cleaned?;
    Ok(rows)
}
