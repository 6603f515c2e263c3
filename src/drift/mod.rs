//! The backward loop, and the one writer of managed objects.
//!
//! A watch event becomes a [`verdict`](crate::managed::verdict): the live object's
//! [`projection`](crate::managed::projection) onto our own fields is compared with the digest of what the server answered
//! to our last apply. What must go back is applied again at once, or later when somebody keeps changing it
//! ([`revert_backoff`](crate::managed::revert_backoff)). The forward loop applies through the same [`Drift`], so each
//! object has one writer.
//!
//! Invariant: an event whose projection is unchanged costs a hash and no request.
//!
//! Deliberately absent: where desired objects come from (the owner hands them in), and the store of what is managed; that
//! is `managed`'s.

mod apply;
mod fair;
mod in_place;
#[expect(clippy::disallowed_methods, reason = "the loop's clock is here")]
mod keep;
mod limit;
#[expect(clippy::disallowed_methods, reason = "it waits for permits, and is the task that runs them")]
mod queue;
mod replicas;
#[expect(clippy::disallowed_methods, reason = "reverts are tasks, and wait for their permit")]
mod revert;
#[expect(clippy::disallowed_methods, reason = "watches are tasks, with a clock")]
mod watch;
mod watching;

pub use apply::{Change, Intent, Put};
pub use keep::{Announcement, Drift, Error, ObjectLock};
