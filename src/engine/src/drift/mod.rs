//! Watches managed objects and reverts their drift.
//!
//! A watch event causes a [`verdict`](crate::managed::verdict): the [`projection`](crate::managed::projection) of the
//! live object onto Mainstay's fields is compared with the digest of the last apply. The
//! [`Writer`](crate::apply::Writer) reverts drift immediately, or later if another client keeps changing the object
//! ([`revert_backoff`](crate::managed::revert_backoff)).
//!
//! - `watch`: the watch of each kind; `unseen`: lists of objects that it has not shown
//! - `run`: the loop that [runs](Drift::run) the [follow-ups](crate::apply::FollowUp); `fair`: the fair queue of
//!   reverts; `limit`: the limit of concurrent reverts; `timers`: timers per object
//! - `audit`: finds changes that no watch has shown
//! - `by_name`: watches of single objects; `autoscalers`: the watch of autoscalers; `inventories`: the watch of
//!   inventories
//!
//! Invariant: an event that does not change the projection costs a hash and no request.
//!
//! Not here: writes (`apply`), the desired state (owners pass it to the writer), and the store (`managed`).

#[expect(clippy::disallowed_methods, reason = "each audit has its time")]
mod audit;
mod autoscalers;
#[expect(clippy::disallowed_methods, reason = "the end of a pause is waited for")]
mod by_name;
mod fair;
mod inventories;
mod limit;
#[expect(clippy::disallowed_methods, reason = "reverts are tasks, with a clock; backoffs are waited for")]
mod run;
mod timers;
#[expect(clippy::disallowed_methods, reason = "a list waits for the time of its requests")]
mod unseen;
#[expect(clippy::disallowed_methods, reason = "watches are tasks, with a clock; restarts are delayed")]
mod watch;

pub use run::Error;
pub use watch::Drift;
