//! Agents with shards that are killed while objects change: the objects stay, each change has one agent, and edits are
//! reverted within the duration of a Lease.
//!
//! Each agent has a ServiceAccount, so that the audit log of the API server shows its writes. The embedded cluster has no
//! audit log.

mod access;
mod audit;
mod bounds;
mod changes;
mod deaths;
mod fleet;
mod history;
mod late;
mod leases;
mod load;
mod plan;
mod report;
mod run;
mod situations;
mod watch;
mod world;

pub(super) use self::{deaths::Deaths, load::OBJECTS, plan::Plan, report::Measured};
use super::{Error, Product, progress};

/// Measures with these parameters.
pub(super) async fn measure(product: &Product, plan: &Plan) -> Result<Measured, Error> {
    let from = plan.audit.as_deref().map(audit::length).transpose()?;
    progress("start of the agents");
    let mut world = world::World::start(product, plan).await?;
    let measured = situations::all(&mut world, plan, from).await;
    let cleaned = world.clean().await;
    let measured = measured?;
    cleaned?;
    Ok(measured)
}
