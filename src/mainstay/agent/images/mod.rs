//! ImageRepositories, ImagePolicies and ImageUpdateAutomations: the tags of image repositories, the choice of one of them,
//! and commits with the choices.
//!
//! `own_tasks` watches a kind and runs a task for each object. `repository` lists the tags of one ImageRepository at its
//! interval, for all of its ImagePolicies. `scans` hands the tags to `policy`, which chooses with `choice`. `choices`
//! holds the chosen images. `wanted` reads the spec, and `report` writes the status. `update` and `update_branch` push
//! the choices to a branch, with `update_spec`, `update_refspec`, `update_remotes`, `update_files`, `message` and
//! `change_id`.
//!
//! Invariant: tags are listed only at the interval of the ImageRepository, after a change of it, or after a delivery to a
//! Receiver. Invariant: the memory of all tags is bounded. Invariant: a login is sent to the host of `spec.image` only.

mod change_id;
mod choice;
mod choices;
mod context;
mod message;
mod policy;
mod report;
mod repository;
mod scans;
mod update;
mod update_branch;
mod update_files;
mod update_refspec;
mod update_remotes;
mod update_spec;
mod wanted;

pub(super) use context::Context;
pub(crate) use policy::image_policy_problems;
pub(crate) use update_spec::image_update_problems;
pub(crate) use wanted::image_repository_problems;
