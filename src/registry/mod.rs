//! Image registries: names of images, the choice of the registry, its credentials, and a client of its API.
//!
//! - [`ImageRef`], [`Digest`]: which image
//! - [`choose`]: which registry a namespace pushes to and pulls from
//! - [`Access`]: how to talk to a registry, from the Secret that a build has
//! - [`Client`]: the OCI distribution API
//!
//! Invariant: credentials go to the host they were given for and to no other, and over plain HTTP only to a registry
//! that is said to be internal or is on this machine.
//! Invariant: what is read by digest has that digest.
//!
//! Deliberately absent: the crate `oci-client`, which sends credentials to a token server that a registry names over
//! plain HTTP, and reads answers without a bound.

mod access;
mod address;
mod choice;
#[expect(clippy::disallowed_methods, reason = "it speaks to registries, with deadlines")]
mod client;
mod docker_config;
mod image_ref;

pub use access::{Access, Scheme};
pub use address::Address;
pub use choice::{Problem, Registry, SecretData, choose};
pub use client::{Client, Content, Deadlines, Error, Fault, Manifest, Mounted, Rights};
pub use docker_config::{Login, docker_config, login};
pub use image_ref::{Digest, ImageRef, ParseImageRefError};
