//! Events under kills: publishers, dispatchers and servers of NATS are killed at random while events are published.
//! Each accepted event is accounted for.
//!
//! All are processes: two publishers and two dispatchers of this program, and three servers of NATS. A killed process
//! is replaced as by a kubelet. At any time, at most one server of NATS is away.
//!
//! Not here: the TLS and the login of NATS, and the tokens of publishers.

mod event;
mod fleet;
mod plan;
mod report;
mod run;
mod schedule;
mod sender;
mod servers;
mod subscribers;
mod subscriptions;
mod tally;
mod tenant;

pub(crate) use self::{plan::Plan, report::Measured};
use crate::{Error, Product};

/// Measures with these parameters.
pub(crate) async fn measure(product: &Product, plan: Plan) -> Result<Measured, Error> {
    Ok(run::measure(product, plan).await?.measured())
}
