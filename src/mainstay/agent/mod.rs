//! The long-running process: its settings, wiring, health and metrics.
//!
//! Invariant: all long tasks are in one set. The end of any task ends the process with the reason of that task.
//! Invariant: a panic in the leader's work ends that task, or at most restarts all of the leader's work. The process
//! continues and keeps the Lease. Invariant: only the holder of the Lease writes. All state is rebuilt for every term. With
//! shards, each holder of a shard's Lease writes what belongs to its GitSyncs.

mod api_rules;
mod artifacts;
mod bootstrap;
mod cloud;
mod copies;
mod dropping;
mod error;
mod functions;
pub mod health;
mod host_keys;
mod images;
mod initial;
mod inputs;
mod installation;
mod kept;
mod leader;
mod leader_label;
mod leading;
mod listening;
pub(crate) mod memory;
pub mod metrics;
mod nats_login;
mod notifications;
mod notify;
mod operator_settings;
mod own_kinds;
mod own_tasks;
mod pins;
mod receivers;
mod registry_login;
mod repositories;
mod rereads;
mod retention;
mod retention_metrics;
mod run;
mod serverless;
mod serverless_metrics;
mod settings;
mod shard;
mod shard_metrics;
mod share;
mod shown;
mod source_changes;
mod ssh_keys;
mod status_write;
mod tasks;
mod term;

pub(crate) use artifacts::{chart_problems, oci_repository_problems};
pub use error::Error;
pub(crate) use images::{image_policy_problems, image_repository_problems, image_update_problems};
pub use listening::{Admit, Receive};
pub use run::run;
pub use settings::{AUDIT, Nudge, Profile, Settings};
