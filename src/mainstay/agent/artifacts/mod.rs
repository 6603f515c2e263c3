//! OCIRepositories and HelmCharts: artifacts of image registries, and packed charts, become commits, which GitSyncs read
//! like those of Git.
//!
//! [`follow()`] watches a kind. `task` looks one object up at its interval, `named` has the kinds, `wanted` reads their
//! specs, `reader` chooses the protocol, `download` speaks to a registry, `charts` to a chart repository, and `status` is the status.
//!
//! Invariant: a server that cannot be reached delays no other one, and no reconcile. The last artifact stays.
//! Invariant: a login is sent to the host of the object's address only.

mod charts;
mod context;
mod download;
mod follow;
mod named;
mod reader;
mod status;
mod task;
mod wanted;

pub(super) use context::Context;
pub(super) use follow::follow;
