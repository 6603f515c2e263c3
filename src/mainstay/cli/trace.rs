//! `mainstay trace`: the source of an object, its state, the agent's last decisions about it, and the agent's next action.
//! For a Function, also the duration of each step of its newest build and rollout.
//!
//! The command reads only the cluster: the object, the inventories and the status of its GitSync. It does not contact
//! the agent.
//!
//! Invariant: no value of the object is printed, because the object may be a Secret.

mod decisions;
mod moment_fields;
mod next;
pub(super) mod origin;
pub(super) mod page;
mod text;
mod timeline;

use super::{Error, Exit, object_name::ObjectArguments};

pub(super) async fn run(arguments: &ObjectArguments) -> Result<Exit, Error> {
    let (cluster, mut trace) = origin::find(arguments).await?;
    let moments = timeline::of(&cluster, &mut trace).await?;
    let now = jiff::Timestamp::now();
    let next = next::next(&trace, now);
    arguments.output.print(&text::facts(&trace, &next, &moments, now), || text::text(&trace, &next, &moments, now))?;
    Ok(if trace.manager.is_some() { Exit::Fine } else { Exit::Differs })
}
