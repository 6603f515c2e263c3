//! OCIRepositories: artifacts of image registries become commits, which GitSyncs read like those of Git.
//!
//! [`follow()`] watches the kind. `task` looks one OCIRepository up at its interval, `wanted` reads its spec, `download`
//! speaks to the registry, and `status` is its status.
//!
//! Invariant: a registry that cannot be reached delays no other one, and no reconcile. The last artifact stays.
//! Invariant: a login is sent to the host of `spec.url` only.

mod context;
mod download;
mod follow;
mod status;
mod task;
mod wanted;

pub(super) use context::Context;
pub(super) use follow::follow;
