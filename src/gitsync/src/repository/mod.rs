//! The status of GitRepositories: whether a repository can be read, and how.
//!
//! The status shows the lookups of GitSyncs and Functions. A repository without a consumer is looked up now and then
//! for its status alone.
//!
//! Invariant: a remote with a consumer is never looked up for the status alone.
//! Invariant: a status is written only when its meaning changes.

#[expect(clippy::disallowed_methods, reason = "lookups have a deadline, and unused repositories an interval")]
mod follow;
mod status;

pub use follow::{Context, keep};
