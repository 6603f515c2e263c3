//! Service bindings: what ServiceBindingUsages hand to Functions, and what is said of it in their statuses.
//!
//! [`Bindings`] knows the usages and bindings of the cluster. [`watch`] follows them, [`run`] writes owner references and statuses,
//! and the task of a Function asks [`Bindings::of`] for what its pods get and answers with [`Bindings::taken`]. `usage` reads the
//! objects, `known` remembers them and says who is to look again (`listed` which lists have come), `decide` says what is to become of a usage, and `task` what is to be
//! done about it.
//!
//! Invariant: nothing but one definition is watched where no ServiceBindingUsage is defined, and nothing is asked while nothing
//! changes.
//! Invariant: a usage that another controller serves is left to it, and so are all of its namespace.
//! Invariant: what was bound stays bound until it is known that it no longer is: an agent that starts changes no pod.
//!
//! Deliberately absent: making bindings and their Secrets, which is the service catalog's, and reading Secrets.

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
