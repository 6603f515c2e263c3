//! Copies labelled Secrets and ServiceAccounts of the agent's namespace (bases) to all other namespaces. They contain
//! registry and package logins for the whole cluster.
//!
//! Each namespace gets a copy unless it opts out, and edits of a copy are reverted. When a base is deleted or loses
//! its label, its copies are deleted, even if the agent was down at that time. Bases get no finalizer, so their
//! deletion never waits for the agent.
//!
//! Invariant: an object of another client is never written or deleted. Mainstay's entry in its `managedFields` is the
//! proof that an object is a copy; labels are not.
//! Invariant: a namespace that refuses a copy or is slow does not delay the others.
//! Invariant: a copy that is up to date costs no request. A change of a base costs one request per changed copy, and
//! one more for the first apply after its creation.
//! Invariant: the content of a base is in memory once, and once more for each request in flight.
//!
//! Not here: the registry that a namespace uses (`registry::choice`).

mod copy;
mod queue;
#[expect(clippy::disallowed_methods, reason = "it waits for what is due")]
mod reconcile;
mod state;
mod tally;
#[expect(clippy::disallowed_methods, reason = "whether a copy is left alone depends on the time")]
mod write;

pub use copy::Propagated;
pub use reconcile::run;
