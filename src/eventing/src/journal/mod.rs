//! The journal: keeps every accepted event on disk until all of its subscribers have received it.
//!
//! The events are in a database of redb, a single file. `tables` contains its tables, `handle` the interface, and
//! `writer` the task that writes batches, one transaction each; `index` lists waiting events, and `recent` detects
//! duplicates. Both are in memory, and are read from the tables at the start. `fresh` keeps recent events in memory.
//!
//! Invariant: an event is accepted only after it is on disk. Invariant: a transaction is on disk completely or not at
//! all. Invariant: size on disk and number of events are limited. At the limit, events are refused. Invariant: one
//! subscriber occupies at most a quarter of the journal. Beyond that, an event that is also for other subscribers
//! becomes a dead letter for this subscriber. Invariant: only one process writes.

mod command;
mod fresh;
#[expect(clippy::disallowed_methods, reason = "it is a task, and reads the clock")]
mod handle;
mod index;
mod recent;
#[expect(clippy::disallowed_methods, reason = "it has the file")]
mod tables;
#[expect(clippy::disallowed_methods, reason = "it is a task, and reads the clock")]
mod writer;

pub(super) use command::Refused;
pub(super) use handle::Journal;
pub(super) use index::Which;
pub(super) use tables::Kept;
pub use tables::OpenError;
