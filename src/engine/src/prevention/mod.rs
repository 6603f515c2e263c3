//! Refuses hand edits before they happen: of each GitSync with `spec.prevent`, a ValidatingAdmissionPolicy and its binding
//! have the API server itself refuse changes and deletions of what it manages.
//!
//! A GitSync says what it wants ([`Prevention`]); one task for all of them ([`keep`]) has the two objects of each
//! ([`policy`]) as they must be. What is there is known by a watch of our label, and what to do about it is decided by
//! comparing the two ([`decide`]). So what was changed or deleted by hand is reverted, and what a GitSync has left behind
//! that went while no agent ran is deleted by the next one.
//!
//! They stand beside the objects of the repository, and not among them: the agent writes them by its own rights also for
//! a GitSync that acts as a ServiceAccount or may touch its own namespace only; they are deleted with the GitSync, whose
//! other objects stay; and in a commit they would be counted, planned and pruned.
//!
//! Invariant: an object of these kinds that somebody else has made is neither changed nor deleted.
//! Invariant: nothing is deleted of a GitSync of which it is not known what it wants.
//! Invariant: what is as it must be costs no request, and a commit changes neither policy nor binding.
//!
//! Deliberately absent: reverting what was changed all the same; that is [`drift`](crate::drift).

mod decide;
mod failures;
#[expect(clippy::disallowed_methods, reason = "it waits before it tries again")]
mod keep;
mod policy;
mod reverts;
mod seen;
mod state;

pub use keep::keep;
pub use policy::{Limit, Protection};
pub use state::{Prevention, State, Wanted};
