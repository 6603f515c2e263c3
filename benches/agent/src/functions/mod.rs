//! The cost of Functions: build time, response time, and the agent's cost of many.
//!
//! Build and response times are measured with pods as processes and an image registry. The cost of many is measured
//! with simulated pods, so that the machine's time is spent by the agent.

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

/// Measures all situations with this many Functions.
pub(super) async fn measure(product: &Product, functions: u32, idle: u64) -> Result<Vec<table::Row>, Error> {
    let mut pipeline = pipeline::Pipeline::start(product).await?;
    let mut rows = builds::all(&mut pipeline).await?;
    rows.extend(serving::all(&mut pipeline, product).await?);
    drop(pipeline);
    rows.extend(fleet::all(product, functions as usize, idle).await?);
    Ok(rows)
}
