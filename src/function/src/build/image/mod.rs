//! Assembles an image from the base's layers, the runtime server, the dependencies, and the source.
//!
//! - [`layer`]: files become a layer
//! - [`base`]: the base: empty, from a directory, or from a registry
//! - [`document`]: configuration and manifest
//!
//! Invariant: images are reproducible: names, times, owners and order of files on disk have no effect.

pub(super) mod base;
pub(super) mod document;
pub(super) mod layer;
pub(super) mod tree;

pub use base::{Base, ParseBaseError};
pub use layer::Bounds;

use serde::{Deserialize, Serialize};

use crate::registry::Digest;

/// Media type of layers built here.
pub(super) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Media type of the configuration.
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of the manifest.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A descriptor of a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
    /// External URLs. A layer with such URLs is not in the registry.
    #[serde(default, skip_serializing)]
    pub(super) urls: Vec<String>,
}

/// The manifest of an image for one platform.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayerOf {
    pub(super) descriptor: Descriptor,
    /// Digest of the uncompressed archive.
    pub(super) diff_id: Digest,
}

/// Operating system and architecture, as in image indexes: `linux/amd64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`.
    pub architecture: String,
}

impl std::str::FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        match text.split_once('/') {
            Some((os, architecture)) if fits(os) && fits(architecture) => {
                Ok(Self { os: os.to_owned(), architecture: architecture.to_owned() })
            }
            _ => Err("a platform must be OS/ARCHITECTURE, such as linux/amd64".to_owned()),
        }
    }
}
