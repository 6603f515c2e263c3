//! OCIRepositories: artifacts of image registries become commits, which GitSyncs read like commits of Git.
//!
//! `own_tasks` watches the kinds. `task` looks up the artifact of one OCIRepository at its interval, `wanted` reads the
//! spec, `download` sends requests to the registry, and `status` computes the status.
//!
//! Invariant: a registry that cannot be reached delays neither other registries nor reconciles. The last artifact
//! stays. Invariant: a login is sent to the host of `spec.url` only. Invariant: with `spec.verify`, an artifact becomes a
//! commit only after its signature was verified.

mod bounds;
mod charts;
mod context;
mod cosign;
mod download;
mod failure;
mod foreign_text;
mod identities;
mod keyless;
mod logins;
mod named;
mod narrow;
mod notation;
mod notation_signatures;
mod provenance;
mod reader;
mod referrers;
mod ring_provider;
mod search;
mod signatures;
mod signed;
mod signers;
mod status;
mod task;
mod wanted;

pub(super) use context::Context;
pub(crate) use wanted::{chart_problems, oci_repository_problems};
