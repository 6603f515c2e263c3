//! Copies of Secrets and ServiceAccounts of the agent's namespace in all other namespaces: registry and package logins that hold
//! for the whole cluster.
//!
//! What a base (a labelled object of the agent's namespace) says is copied to every namespace that has not opted out, and
//! stays there as it is copied; a base that is gone, or has lost its label, takes its copies with it, also if the agent was away
//! meanwhile. No finalizer is set, so nothing ever waits for the agent.
//!
//! Invariant: an object that somebody else created is never written to and never deleted, whatever its labels say: of a copy
//! our own entry in its `managedFields` proves that it is one.
//! Invariant: a namespace that refuses its copy, or is slow to take it, holds up no other one.
//! Invariant: what is as it should be costs no request, nor does what only says that it is a copy; a change costs one request
//! for each copy that it changes, and once for each one more, to apply what was created.
//! Invariant: what a base says is held once, and beside it in as many requests as are under way.
//!
//! Deliberately absent: which registry a namespace uses (`registry::choice`), which follows from what is there.

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
