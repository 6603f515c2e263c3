//! `mainstay trace`: where an object comes from, how it is, and what the agent will do about it next; of a Function also how long
//! each step of its newest build and rollout took.
//!
//! Everything is read from the cluster: the object, the inventories and the status of its GitSync. The agent is not asked.
//!
//! Invariant: no value of the object is printed; it may be a Secret.

mod next;
pub(super) mod origin;
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
