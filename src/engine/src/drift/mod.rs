//! Watches managed objects and decides about their drift.
//!
//! A watch event becomes a [`verdict`](crate::managed::verdict): the live object's
//! [`projection`](crate::managed::projection) onto our own fields is compared with the digest of what the server answered
//! to our last apply. What must go back is handed to the [`Writer`](crate::apply::Writer), which applies it again at once,
//! or later when another client keeps changing it ([`revert_backoff`](crate::managed::revert_backoff)).
//!
//! - `watch`: the watch of each kind, and the loop that [runs](Drift::run) the [follow-ups](crate::apply::FollowUp);
//!   `fair`: how owners share the reverts in flight; `limit`: how many these are; `timers`: what is waited for
//! - `audit`: what no watch has shown, found by asking for each object now and then
//! - `by_name`: the watch of single objects under break glass; `autoscalers`: which workloads an autoscaler scales;
//!   `inventories`: which GitSyncs have an inventory
//!
//! Invariant: an event whose projection is unchanged costs a hash and no request.
//!
//! Deliberately absent: every write (`apply`), where desired objects come from (their owner hands them to the writer),
//! and the store of what is managed (`managed`).

#[expect(clippy::disallowed_methods, reason = "each audit has its time")]
mod audit;
mod autoscalers;
mod by_name;
mod fair;
mod inventories;
mod limit;
mod timers;
#[expect(clippy::disallowed_methods, reason = "watches are tasks, with a clock; backoffs are waited for")]
mod watch;

pub use watch::{Drift, Error};
