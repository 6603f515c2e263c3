//! The journal: every accepted event on disk, until each of its subscribers has it.
//!
//! Segments are appended to and never changed; what was delivered is a record, too. `store` has the files, `handle` is
//! what others have of it, `writer` the task that writes for everybody and syncs once for all that came together, `room` makes place
//! for more, `index` what is still to be delivered, `recent` what was
//! published just now.
//!
//! Invariant: an event is accepted when it is on disk, and no earlier.
//! Invariant: what is not whole at the end of a segment, after the process or the machine has died, was never accepted.
//! Invariant: the size on disk and the number of events have a limit; where it is reached, events are refused.
//! Invariant: one subscriber occupies half of it at most. What is for others as well is a dead letter for it then.
//! Invariant: one process writes.

mod command;
#[expect(clippy::disallowed_methods, reason = "it reads the clock and files")]
mod handle;
mod index;
mod recent;
mod record;
mod room;
#[expect(clippy::disallowed_methods, reason = "it has the files")]
mod store;
#[expect(clippy::disallowed_methods, reason = "it is a task, and reads the clock")]
mod writer;

pub(super) use command::{OVER, Queued, Refused};
pub(super) use handle::{Journal, Kept};
pub use store::OpenError;
