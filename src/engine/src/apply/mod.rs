//! The one writer of managed objects, for commits, Functions and drift.
//!
//! - [`Writer`]: the store, the object locks and the cluster client; `owners`: what owners read from and write to the
//!   store
//! - `put`: applies for commits and Functions; `adopt`: adoption; `prune`: deletions and releases; `delete`: the only
//!   code that deletes objects
//! - `rerun`: recreates Jobs and Pods that ended; `replace`: recreates objects after a change of an immutable field
//! - `revert`: reverts; `report`: drift that is only reported; `waiting`: drift that waits; `edit`: a description of
//!   an edit; `decided`: decisions that messages report
//! - `dry_run`: the result of an apply without the apply; `audit`: finds unnoticed changes by dry runs; `audited`:
//!   counts of audits; `load`: server load seen by requests
//! - `server_side`: server-side apply and its collisions; `replicas`: handover of a replica count; `transfer`:
//!   handover of an object; `ignored`: ignored fields
//! - [`FollowUp`]: a request of the writer to the drift loop
//!
//! Invariant: only this module writes managed objects, one write at a time per object.
//!
//! Not here: watches (`drift`), the desired state of a commit (`gitsync`), and the store (`managed`).

mod adopt;
#[expect(clippy::disallowed_methods, reason = "a watch gets time to show what was found")]
mod audit;
mod audited;
mod decided;
mod delete;
mod dry_run;
mod edit;
mod follow_up;
mod ignored;
mod load;
mod object_locks;
mod owners;
mod prune;
#[expect(clippy::disallowed_methods, reason = "it waits until a definition is established")]
mod put;
mod replace;
mod replicas;
mod report;
mod rerun;
#[expect(clippy::disallowed_methods, reason = "the latency of reverts is measured")]
mod revert;
mod server_side;
mod transfer;
mod waiting;
#[expect(clippy::disallowed_methods, reason = "the clock of all writes is here")]
mod writer;

pub use audited::AuditCounts;
pub(crate) use audited::Audited;
pub use delete::Deleted;
pub use delete::Version;
pub use dry_run::DryRun;
pub use follow_up::{FollowUp, FollowUps};
pub use load::ServerLoad;
pub use prune::Pruned;
pub use put::{Applied, Change, Expect, Put, Step};
pub use rerun::Rerun;
pub(crate) use writer::AFTER_PAUSE;
pub use writer::{Announcement, Writer};
