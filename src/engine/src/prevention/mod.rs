//! Prevents manual changes. A GitSync with `spec.prevent` gets a ValidatingAdmissionPolicy and a binding, with which
//! the API server rejects changes and deletions of its objects.
//!
//! GitSyncs state their demands ([`Prevention`]). One task ([`keep`]) watches the policies and bindings by label,
//! compares them with the desired ones ([`policy`], [`decide`]) and writes them. It reverts manual changes of policies,
//! and deletes those of GitSyncs that were deleted while no agent ran.
//!
//! Policies and bindings are not managed objects of the GitSync, for three reasons. The agent writes them with its own
//! permissions, even if the GitSync acts as a ServiceAccount or is limited to namespaces. They are deleted with the
//! GitSync, unlike its other objects. A commit must not count, plan or prune them.
//!
//! Invariant: an object of these kinds that another client created is never changed or deleted.
//! Invariant: no object of a GitSync is deleted before the demand of the GitSync is known.
//! Invariant: an up-to-date object costs no request, and a commit changes neither policy nor binding.
//!
//! Not here: reverts of changes that are still possible ([`drift`](crate::drift)).

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
