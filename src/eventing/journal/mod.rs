//! The journal: every accepted event on disk, until each of its subscribers has it.
//!
//! Segments are appended to and never changed; what was delivered is a record, too. `store` has the files, `writer` the task that
//! writes for everybody and syncs once for all that came together, `index` what is still to be delivered, `recent` what was
//! published just now.
//!
//! Invariant: an event is accepted when it is on disk, and no earlier.
//! Invariant: what is not whole at the end of a segment, after the process or the machine has died, was never accepted.
//! Invariant: the size on disk and the number of events have a limit; where it is reached, events are refused.
//! Invariant: one process writes.

mod index;
mod recent;
mod record;
#[expect(clippy::disallowed_methods, reason = "it has the files")]
mod store;
#[expect(clippy::disallowed_methods, reason = "it is a task, and reads the clock")]
mod writer;

pub use store::OpenError;
pub(super) use writer::{Journal, Kept, Queued, Refused};
