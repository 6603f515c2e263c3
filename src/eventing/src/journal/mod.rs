//! The journal: keeps every accepted event on disk until all of its subscribers have received it.
//!
//! Segments are append-only; deliveries are records too. `store` contains the access to files, `handle` the interface,
//! and `writer` the task that writes and syncs batches; `room` removes old segments, `index` lists waiting events, and
//! `recent` detects duplicates.
//!
//! Invariant: an event is accepted only after it is on disk. Invariant: an incomplete record at the end of a segment,
//! after a crash, was never accepted. Invariant: size on disk and number of events are limited. At the limit, events
//! are refused. Invariant: one subscriber occupies at most a quarter of the journal. Beyond that, an event that is also
//! for other subscribers becomes a dead letter for this subscriber. Invariant: only one process writes.

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

pub(super) use command::Refused;
pub(super) use handle::{Journal, Kept};
pub(super) use index::Which;
pub use store::OpenError;
