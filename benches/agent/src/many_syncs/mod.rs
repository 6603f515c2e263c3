//! The cost of many GitSyncs of one repository with a few objects each, beside a bare client, and of rendering a
//! kustomization or a packed chart. The GitSyncs read plain manifests, or each renders a Helm chart.

mod bare;
mod growth;
mod load;
mod packed_chart;
mod place;
mod rendering;
mod situations;
mod world;

pub(super) use self::{load::Form, place::Place};
use super::{
    Error, Product, console, counters, git_server, memory_limit, observer, process, progress, ready_syncs, stand, table,
};

/// Measures all situations with this many GitSyncs. With several numbers, measures how the cost grows between them.
pub(super) async fn measure(
    product: &Product,
    place: &Place,
    counts: &[u32],
    idle_seconds: u64,
) -> Result<Vec<table::Row>, Error> {
    let &[count] = counts else { return growth::all(product, place, counts).await };
    let mut world = world::World::start(product, place, count as usize).await?;
    let mut rows = situations::all(&mut world, idle_seconds).await?;
    if place.form == Form::Manifests {
        rows.extend(rendering::all(&mut world).await?);
        rows.extend(packed_chart::all(&mut world).await?);
    }
    Ok(rows)
}
