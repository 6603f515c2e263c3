//! What Functions cost: how fast they answer, how fast they are built, and what many of them cost the agent.

mod calls;
mod servers;
mod serving;

use super::{Error, process, progress, stand, table};

/// Most memory that the agent may have, in MiB.
const MEMORY: f64 = 80.0;

/// Measures everything, with this many Functions.
pub(super) async fn measure(_functions: u32, _idle: u64) -> Result<Vec<table::Row>, Error> {
    let mut stand = stand::Stand::start(None, MEMORY).await?;
    stand.start_agent().await?;
    serving::all(&stand).await
}
