//! What the status of a GitRepository says: whether it can be read, and how.
//!
//! It says what lookups of GitSyncs and Functions come to. One that nobody follows is looked up for this alone, now and then.
//!
//! Invariant: a remote that somebody follows is never asked for the status alone.
//! Invariant: a status is written only when it changes in meaning.

#[expect(clippy::disallowed_methods, reason = "lookups have a deadline, and unused repositories an interval")]
mod follow;
mod status;

pub use follow::{Context, keep};
