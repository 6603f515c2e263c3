//! `mainstay trace`: where an object comes from, how it is, and what the agent will do about it next.
//!
//! Everything is read from the cluster: the object, the inventories and the status of its GitSync. The agent is not asked.
//!
//! Invariant: no value of the object is printed; it may be a Secret.

mod next;
pub(super) mod origin;
mod text;

use super::{Error, Exit, object_name::ObjectArguments};

pub(super) async fn run(arguments: &ObjectArguments) -> Result<Exit, Error> {
    let trace = origin::find(arguments).await?;
    let now = jiff::Timestamp::now();
    let next = next::next(&trace, now);
    arguments.output.print(&text::facts(&trace, &next, now), || text::text(&trace, &next, now))?;
    Ok(if trace.manager.is_some() { Exit::Fine } else { Exit::Differs })
}
