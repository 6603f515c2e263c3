//! Image registries: image names, the choice of the registry, its credentials, and a client of its API.
//!
//! - [`ImageRef`], [`Digest`]: image references
//! - [`choose`]: the registry that a namespace pushes to and pulls from
//! - [`InternalRegistry`]: the login of the in-cluster registry of `mainstay install`
//! - [`guard`]: the proxy in front of that registry, and the logins of namespaces
//! - [`retention`], [`storage`]: removal of unused images from the in-cluster registry, and its files
//! - [`Access`]: scheme and login of a registry, from the Secret of a build
//! - [`Client`]: the OCI distribution API
//!
//! Invariant: credentials are sent only to the host for which they are intended. Plain HTTP is used only for an
//! internal registry or a registry on this machine. Invariant: content that is read by digest matches the digest.
//!
//! Not here: the crate `oci-client`. This crate sends credentials to a token server over plain HTTP if the registry
//! asks for it, and reads responses without a limit.

mod access;
mod address;
mod choice;
#[expect(clippy::disallowed_methods, reason = "it speaks to registries, with deadlines")]
mod client;
mod docker_config;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod guard;
mod image_ref;
mod internal;
pub(crate) mod pull_hint;
pub mod retention;
#[expect(clippy::disallowed_methods, reason = "it reads and removes files")]
pub mod storage;

pub use access::{Access, Scheme, Transport};
pub use address::Address;
use address::owner;
pub(crate) use address::{SHARED_LAYERS, image_name};
pub(crate) use choice::is_of_namespace;
pub use choice::{Problem, Registry, SecretData, choose};
pub use client::{Client, Content, Deadlines, Error, Fault, Manifest, Mounted, Network, Referrers, Rights, SentFile};
pub use docker_config::{Login, docker_config, login};
pub use image_ref::{Digest, ImageRef, ParseImageRefError};
pub use internal::{InternalRegistry, SEED_BYTES};
