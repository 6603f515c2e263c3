//! An image registry: the OCI distribution API for a directory with one OCI image layout per repository.
//!
//! [`name`] and [`route`] parse requests, [`store`] and [`upload`] store content, `answer` serves HTTP, and [`image`]
//! looks up the images of pods.
//!
//! Invariant: a blob or manifest is stored only under the digest of its bytes.
//! Invariant: a repository is a complete OCI image layout at any time. `skopeo inspect oci:DIRECTORY/REPOSITORY:TAG`
//! works.
//!
//! Not here: referrers (clients fall back to tags), garbage collection, and users. A client of the cluster may push.

#[expect(clippy::disallowed_methods, reason = "an injected fault can make it slow")]
pub(crate) mod answer;
mod error;
mod files;
pub mod image;
mod manifest;
pub mod name;
mod route;
#[expect(clippy::disallowed_methods, reason = "images are files")]
mod store;
#[expect(clippy::disallowed_methods, reason = "an abandoned upload is removed")]
mod upload;

pub use image::{Image, Layer, Lookup};
pub use store::Registry;

use std::path::PathBuf;

/// Settings of the registry.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Directory of the images, created if it is missing. Only this process may write to it.
    pub directory: PathBuf,
}
