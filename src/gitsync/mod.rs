//! The forward loop: what a Git branch holds becomes what is in the cluster.
//!
//! One task per GitSync ([`reconcile`]): look up the ref, read and decode what changed, [`resolve`] it against what the
//! cluster serves, [`plan`], write the [`inventory`](crate::managed::inventory), apply, prune, and report a [`status`], on success and on failure
//! alike.
//!
//! Invariant: nothing changed means no request.
//! Invariant: any problem in the documents means that nothing of the commit is applied or pruned.
//!
//! Deliberately absent: keeping objects as they are between commits; that is [`drift`](crate::drift)'s.

#[expect(clippy::disallowed_methods, reason = "an attempt has a time")]
mod attempt;
#[expect(clippy::disallowed_methods, reason = "lags are measured by a clock that only goes forward")]
mod context;
pub mod cron;
#[expect(clippy::disallowed_methods, reason = "what failed is tried again at a time")]
mod failures;
#[expect(clippy::disallowed_methods, reason = "it waits before it tries again to let go")]
mod finalize;
mod inventory;
mod inventory_maps;
#[expect(clippy::disallowed_methods, reason = "what is read has a time")]
mod observe;
#[expect(clippy::disallowed_methods, reason = "it waits between what it does")]
mod perform;
pub mod plan;
pub mod prune;
mod read;
#[expect(clippy::disallowed_methods, reason = "it waits for whatever comes first")]
mod reconcile;
pub mod registry;
#[expect(clippy::disallowed_methods, reason = "a report has a time")]
mod report;
pub mod resolve;
mod secret;
pub mod status;
mod sync_state;
pub mod windows;

pub use attempt::label;
pub use context::{Context, Input, SyncFacts};
pub use reconcile::run;
