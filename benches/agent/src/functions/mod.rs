//! The cost of Functions: how fast they are built, how fast they answer, and how much many of them cost the agent.
//!
//! Building and answering are measured where pods are processes and images are in a registry; what many cost, where
//! pods are simulated, so that the machine's time is the agent's.

mod builds;
mod calls;
mod fleet;
mod load;
mod nudge;
mod pipeline;
mod readiness;
mod servers;
mod serving;
mod versions;
mod writes;

use super::{Error, Product, counters, embedded, git_server, observer, process, progress, stand, table};

/// Measures everything, with this many Functions.
pub(super) async fn measure(product: &Product, functions: u32, idle: u64) -> Result<Vec<table::Row>, Error> {
    let mut pipeline = pipeline::Pipeline::start(product).await?;
    let mut rows = builds::all(&mut pipeline).await?;
    rows.extend(serving::all(&mut pipeline, product).await?);
    drop(pipeline);
    rows.extend(fleet::all(product, functions as usize, idle).await?);
    Ok(rows)
}
