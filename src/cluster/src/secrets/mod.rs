//! Watches, by name, the Secrets that GitSyncs and Functions use, and the ConfigMaps with values for GitSyncs. A
//! corrected password therefore takes effect immediately.
//!
//! [`Secrets::follow`] follows a Secret, [`Secrets::follow_digests`] only changes of its values, and
//! [`Secrets::follow_config_map`] a ConfigMap. [`Followed`] wakes the follower after a change; [`Known`] is the state.
//! Registry Secrets have the same names in every namespace, so each name has one watch of all namespaces. Any other
//! Secret is watched while it has a follower.
//!
//! Invariant: the followers of a Secret or ConfigMap share a watch, except that digests have a separate watch. A change
//! wakes only its followers.
//! Invariant: a Secret that could not be read is never reported as missing.
//! Invariant: the values of a Secret are dropped with its last follower, except those of registry Secrets.
//! Invariant: a reader of a Secret states the purpose of the read. If the Secret has an incompatible [`Purpose`], its
//! values are withheld ([`Known::Withheld`]). No other crate reads values of a Secret that an object references.
//!
//! Not here: the meaning of the data, and Secrets that no object references.

mod once;
mod purpose;
mod referenced;
mod references;
mod register;
mod repository;
mod state;
mod values;
mod watch;

pub use purpose::{Purpose, Purposes, by_metadata, by_name, excluding};
pub use referenced::ReferencedSecrets;
pub use references::SecretReferences;
pub use register::Referrer;
pub use repository::{RepositoryData, RepositorySecrets};
pub use state::{Contents, Known, SecretData};
pub use values::ValueSources;
pub use watch::{Followed, Secrets};
