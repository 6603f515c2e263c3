//! The Secrets that GitSyncs and Functions use, and the ConfigMaps with values for GitSyncs, each watched by its name, so that
//! a corrected password takes effect at once.
//!
//! [`Secrets::follow`] follows a Secret, [`Secrets::follow_digests`] only whether its values change,
//! [`Secrets::follow_config_map`] a ConfigMap, and [`Followed`] wakes the follower when it changes; [`Known`] is its state.
//! Registry Secrets, which have the same names in every namespace, are watched in all namespaces at once; every other
//! Secret has its own watch as long as it has a follower.
//!
//! Invariant: there is one watch per Secret or ConfigMap, however many followers it has; a change wakes only its followers.
//! Invariant: a Secret that could not be read is never reported as missing.
//! Invariant: nothing is kept of a Secret without followers; the next follower reads it again.
//! Invariant: who reads a Secret says what for. A Secret that has another [`Purpose`] is withheld ([`Known::Withheld`]); nothing
//! else in the workspace reads the values of a Secret that an object names.
//!
//! Deliberately absent: the meaning of the data; Secrets that nothing refers to.

mod once;
mod purpose;
mod references;
mod register;
mod repository;
mod state;
mod values;
mod watch;

pub use purpose::{Purpose, Purposes, by_metadata, by_name, excluding};
pub use references::SecretReferences;
pub use register::Referrer;
pub use repository::{RepositoryData, RepositorySecrets};
pub use state::{Contents, Known, SecretData};
pub use values::ValueSources;
pub use watch::{Followed, Secrets};
