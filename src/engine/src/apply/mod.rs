//! The one writer of managed objects, for commits, for Functions and for drift.
//!
//! - [`Writer`]: the store behind its lock, the locks of the objects, and the cluster; `owners`: what GitSyncs and
//!   Functions read from the store and hand to it
//! - `put`: an apply for a commit or a Function, and many of them; `adopt`: what makes an object all ours; `prune`: deletions and releases;
//!   `delete`: the one place where objects are deleted
//! - `rerun`: what has come to its end is created anew; `replace`: what cannot be changed is
//! - `revert`: an object is reverted; `report`: or its drift is only reported; `waiting`: or waits; `edit`: what was
//!   changed, by whom
//! - `dry_run`: what an apply would do; `audit`: whether an object is as it is known, by that, and
//!   `audited`: what became of it; `load`: what a request says about the server
//! - `server_side`: an apply, over what collides with it; `replicas`: the handover of a replica count; `transfer`: that of a
//!   whole object; `ignored`: what is left to others
//! - [`FollowUp`]: what the drift loop has to do because of a write
//!
//! Invariant: every write to a managed object is made here, one at a time per object.
//!
//! Deliberately absent: watches (`drift`), what a commit wants (`gitsync`), and the store itself (`managed`).

mod adopt;
#[expect(clippy::disallowed_methods, reason = "a watch gets time to show what was found")]
mod audit;
mod audited;
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
pub use writer::{Announcement, Writer};
