//! The forward loop: what a Git branch holds becomes what is in the cluster.
//!
//! One task per GitSync ([`reconcile`]): look up the ref, read and decode what changed, [`resolve`] it against what the
//! cluster serves, [`plan`], write the [`inventory`], apply, prune, and report a [`status`], on success and on failure
//! alike.
//!
//! Invariant: nothing changed means no request.
//! Invariant: any problem in the documents means that nothing of the commit is applied or pruned.
//!
//! Deliberately absent: keeping objects as they are between commits; that is [`drift`](crate::drift)'s.

mod apply;
mod attempt;
mod context;
mod finalize;
pub mod inventory;
mod memory;
mod observe;
mod perform;
pub mod plan;
mod read;
mod reconcile;
pub mod registry;
mod report;
pub mod resolve;
mod secret;
pub mod status;

pub use attempt::label;
pub use context::{Context, Input, SyncFacts};
pub use reconcile::run;
