//! Service bindings: ServiceBindingUsages bind Secrets to Functions, and their status reports the result.
//!
//! [`Bindings`] holds the usages and bindings of the cluster. [`watch`] feeds this state, and [`run`] writes owner
//! references and statuses. The task of a Function reads [`Bindings::of`] and reports with [`Bindings::taken`]. `usage`
//! parses the objects, `known` and `listed` keep them, `decide` decides about a usage, and `task` holds the resulting
//! work.
//!
//! Invariant: without the CRD of ServiceBindingUsage, only that CRD is watched. Without changes, no requests are sent.
//! Invariant: if another controller serves a usage, all usages of its namespace are left to that controller. Invariant:
//! a binding stays in use until it is known to be deleted, so the start of an agent changes no pod.
//!
//! Not here: creating bindings and their Secrets, which the service catalog does, and reading Secrets.

mod bound;
mod context;
mod decide;
mod known;
mod listed;
#[expect(clippy::disallowed_methods, reason = "it writes, and waits until that can be tried again")]
mod reconcile;
mod status;
mod task;
mod usage;
mod watch;

pub use bound::{Bound, Taken};
pub use context::Bindings;
pub use reconcile::run;
pub use watch::watch;
