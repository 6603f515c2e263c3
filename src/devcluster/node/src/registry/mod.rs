//! An image registry: the OCI distribution API over a directory of OCI image layouts, one for each repository.
//!
//! [`name`] and [`route`] read what is asked, [`store`] and [`upload`] keep it, `answer` is the HTTP side, [`image`]
//! finds an image by the reference that a pod names.
//!
//! Invariant: a blob or manifest is only kept under the digest that its bytes have.
//! Invariant: a repository is a complete OCI image layout at any time: `skopeo inspect oci:DIRECTORY/REPOSITORY:TAG`.
//!
//! Deliberately absent: referrers (clients fall back to tags), garbage collection, and users: whoever may talk to the
//! cluster may push.

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

/// How the registry behaves.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// Where images are kept; made when it is missing. Only this process may write there.
    pub directory: PathBuf,
}
