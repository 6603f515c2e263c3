//! What a Git branch holds becomes what is in the cluster.
//!
//! One task per GitSync ([`reconcile`]) makes attempts ([`attempt`]), and every attempt has four steps: **observe** (look up
//! the reference, read the commit and what is there), **decide** ([`windows`], [`plan`], [`prune`]), **perform** (write
//! the [`inventory`](crate::managed::inventory), apply, delete), **report** (a [`status`], on success and on failure alike).
//!
//! Invariant: nothing changed means no request.
//! Invariant: any problem in the documents means that nothing of the commit is applied or pruned.
//!
//! Deliberately absent: keeping objects as they are between commits; [`drift`](crate::drift) detects their
//! changes, and [`apply`](crate::apply) reverts them.

#[expect(clippy::disallowed_methods, reason = "an attempt has a time")]
mod attempt;
mod conditions;
#[expect(clippy::disallowed_methods, reason = "lags are measured by a clock that only goes forward")]
mod context;
pub mod cron;
#[expect(clippy::disallowed_methods, reason = "what failed is tried again at a time")]
mod failures;
#[expect(clippy::disallowed_methods, reason = "it waits before it tries again to let go")]
mod finalize;
mod inventory;
#[expect(clippy::disallowed_methods, reason = "what is read has a time")]
mod observe;
mod outcome;
#[expect(clippy::disallowed_methods, reason = "it waits between what it does")]
mod perform;
pub mod placement;
pub mod plan;
pub mod prune;
#[expect(clippy::disallowed_methods, reason = "it waits for whatever comes first")]
mod reconcile;
pub mod registry;
#[expect(clippy::disallowed_methods, reason = "a report has a time")]
mod report;
mod resolve;
#[expect(clippy::disallowed_methods, reason = "the next attempt has a time")]
mod schedule;
pub mod status;
mod sync_state;
pub mod windows;

pub use context::{Context, Input, SyncFacts};
pub use placement::label;
pub use reconcile::run;
