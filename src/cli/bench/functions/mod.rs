//! What Functions cost: how fast they answer, how fast they are built, and what many of them cost the agent.

mod calls;
mod fleet;
mod git_server;
mod load;
mod servers;
mod serving;
mod versions;

use super::{Error, counters, observer, process, progress, stand, table};

/// Most memory that the agent may have, in MiB.
const MEMORY: f64 = 80.0;

/// Measures everything, with this many Functions.
pub(super) async fn measure(functions: u32, idle: u64) -> Result<Vec<table::Row>, Error> {
    let mut stand = stand::Stand::start(None, MEMORY).await?;
    stand.start_agent().await?;
    let mut rows = if std::env::var_os("SKIP").is_some() { Vec::new() } else { serving::all(&stand).await? };
    drop(stand);
    rows.extend(fleet::all(functions as usize, idle).await?);
    Ok(rows)
}
