//! The base image: empty, an OCI layout on disk, or an image in a registry.
//!
//! Invariant: every document of a base is verified by its digest, and its layers match its configuration. A tag is
//! resolved once.

use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value;

use super::{LAYER, LayerOf, Manifest, Platform};
use crate::registry::{self, Client, Digest, ImageRef};

/// Maximum bytes of a manifest or configuration.
const MAX_DOCUMENT: u64 = 4 << 20;
/// Maximum number of layers of a base image. Together with the layers of a build, the number stays below the limit of
/// container runtimes.
const MAX_LAYERS: usize = 120;

/// A base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Empty: the node provides Node.js and Python.
    Scratch,
    /// An OCI image layout, and optionally the image in it.
    Layout(PathBuf, Option<Digest>),
    /// An image in a registry, by digest or tag.
    Registry(Box<ImageRef>),
}

/// Why a base image name is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseBaseError {
    /// The name is not an image reference.
    #[error("the base image is neither `scratch`, nor `oci:DIRECTORY`, nor a reference of an image")]
    Reference(#[source] registry::ParseImageRefError),
    /// The name has neither a digest nor a tag.
    #[error("the base image is named by neither a digest nor a tag: write NAME@sha256:… or NAME:TAG")]
    Unnamed,
}

impl FromStr for Base {
    type Err = ParseBaseError;

    fn from_str(text: &str) -> Result<Self, ParseBaseError> {
        if text == "scratch" {
            return Ok(Self::Scratch);
        }
        if let Some(path) = text.strip_prefix("oci:") {
            return Ok(match path.rsplit_once('@').map(|(path, digest)| (path, digest.parse())) {
                Some((path, Ok(digest))) => Self::Layout(path.into(), Some(digest)),
                _ => Self::Layout(path.into(), None),
            });
        }
        let image: ImageRef = text.parse().map_err(ParseBaseError::Reference)?;
        if image.digest.is_none() && image.tag.is_none() {
            return Err(ParseBaseError::Unnamed);
        }
        Ok(Self::Registry(Box::new(image)))
    }
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch => f.write_str("scratch"),
            Self::Layout(path, None) => write!(f, "oci:{}", path.display()),
            Self::Layout(path, Some(digest)) => write!(f, "oci:{}@{digest}", path.display()),
            Self::Registry(image) => image.fmt(f),
        }
    }
}

/// Why a base image cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::build) enum Error {
    #[error("could not read {path}", path = .path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error(transparent)]
    Registry(registry::Error),
    #[error("the base image {base} cannot be used: {why}")]
    Unusable { base: String, why: String },
}

/// A loaded base; `configuration` is `Null` for an empty base.
#[derive(Clone, Debug)]
pub(in crate::build) struct Read {
    pub(in crate::build) configuration: Value,
    pub(in crate::build) layers: Vec<LayerOf>,
    /// The base's name with the resolved digest.
    pub(in crate::build) resolved: Option<ImageRef>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<InIndex>,
}

#[derive(Deserialize)]
struct InIndex {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: Digest,
    platform: Option<OfPlatform>,
}

#[derive(Deserialize)]
struct OfPlatform {
    os: String,
    architecture: String,
}

impl Base {
    /// Loads the base for a platform. `client` accesses the base's repository.
    pub(in crate::build) async fn read(&self, client: Option<&Client>, platform: &Platform) -> Result<Read, Error> {
        let unusable = |why: &str| Error::Unusable { base: self.to_string(), why: why.to_owned() };
        let documents = match (self, client) {
            (Self::Layout(path, _), _) => Documents::Layout(path),
            (Self::Registry(..), Some(client)) => Documents::Registry(client),
            _ => return Ok(Read { configuration: Value::Null, layers: Vec::new(), resolved: None }),
        };
        let mut resolved = None;
        let mut digest = match self {
            Self::Layout(path, None) => {
                let bytes = small_file(&path.join("index.json"))?;
                let index: Index =
                    serde_json::from_slice(&bytes).map_err(|_| unusable("index.json is not an index"))?;
                self.chosen(&index, platform)?
            }
            Self::Layout(_, Some(digest)) => digest.clone(),
            Self::Registry(image) => match (&image.digest, client) {
                (Some(digest), _) => digest.clone(),
                (None, Some(client)) => {
                    let found = client.again(|| client.points_to(image.reference())).await.map_err(Error::Registry)?;
                    let digest = found.ok_or_else(|| unusable("its registry knows no digest of that tag"))?;
                    resolved = Some(image.at(digest.clone()));
                    digest
                }
                (None, None) => return Err(unusable("it has no registry")),
            },
            Self::Scratch => return Err(unusable("it has no manifest")),
        };
        // An index contains manifests or other indexes. Deeper nesting does not occur.
        for _ in 0..3 {
            let bytes = documents
                .manifest(&digest)
                .await?
                .ok_or_else(|| unusable("the digest of a manifest does not match"))?;
            let value: Value = serde_json::from_slice(&bytes).map_err(|_| unusable("its manifest is not JSON"))?;
            if value.get("manifests").is_none() {
                return self.image(&documents, value, platform, resolved).await;
            }
            let index: Index = serde_json::from_value(value).map_err(|_| unusable("its index is malformed"))?;
            digest = self.chosen(&index, platform)?;
        }
        Err(unusable("its indexes are nested too deep"))
    }

    /// Returns the image of an index for a platform. A single entry without a platform fits too.
    fn chosen(&self, index: &Index, platform: &Platform) -> Result<Digest, Error> {
        let fits = |entry: &&InIndex| match &entry.platform {
            Some(of) => of.os == platform.os && of.architecture == platform.architecture,
            None => index.manifests.len() == 1 || entry.media_type.contains("index"),
        };
        let found = index.manifests.iter().find(fits).map(|entry| entry.digest.clone());
        found.ok_or_else(|| Error::Unusable {
            base: self.to_string(),
            why: format!(
                "its index has no image for {}/{}, or has several images without a platform",
                platform.os, platform.architecture
            ),
        })
    }

    async fn image(
        &self,
        documents: &Documents<'_>,
        manifest: Value,
        platform: &Platform,
        resolved: Option<ImageRef>,
    ) -> Result<Read, Error> {
        let unusable = |why: &str| Error::Unusable { base: self.to_string(), why: why.to_owned() };
        let manifest: Manifest = serde_json::from_value(manifest).map_err(|_| unusable("its manifest is malformed"))?;
        if manifest.config.size > MAX_DOCUMENT || manifest.layers.len() > MAX_LAYERS {
            return Err(unusable("it has too many layers, or its configuration is too large"));
        }
        let bytes = documents.blob(&manifest.config.digest, manifest.config.size).await?;
        let bytes = bytes.ok_or_else(|| unusable("the digest of its configuration does not match"))?;
        let configuration: Value =
            serde_json::from_slice(&bytes).map_err(|_| unusable("its configuration is not JSON"))?;
        if configuration["os"] != platform.os || configuration["architecture"] != platform.architecture {
            return Err(unusable(&format!("it is not for {}/{}", platform.os, platform.architecture)));
        }
        let diff_ids: Vec<Digest> = serde_json::from_value(configuration["rootfs"]["diff_ids"].clone())
            .map_err(|_| unusable("its configuration lists no layers"))?;
        if diff_ids.len() != manifest.layers.len() {
            return Err(unusable("manifest and configuration list different layers"));
        }
        let mut layers = Vec::new();
        for (mut descriptor, diff_id) in manifest.layers.into_iter().zip(diff_ids) {
            if !descriptor.urls.is_empty() {
                return Err(unusable("one of its layers is stored elsewhere (`urls`) and cannot be copied"));
            }
            descriptor.media_type = match descriptor.media_type.as_str() {
                "application/vnd.docker.image.rootfs.diff.tar.gzip" => LAYER.to_owned(),
                oci if oci.starts_with("application/vnd.oci.image.layer.v1.tar") => oci.to_owned(),
                _ => return Err(unusable("a layer of it is of an unknown type")),
            };
            descriptor.annotations.clear();
            layers.push(LayerOf { descriptor, diff_id });
        }
        Ok(Read { configuration, layers, resolved })
    }
}

/// Returns the path of a blob in a layout.
pub(in crate::build) fn blob_of_layout(layout: &Path, digest: &Digest) -> PathBuf {
    layout.join("blobs/sha256").join(digest.hex())
}

enum Documents<'a> {
    Layout(&'a Path),
    Registry(&'a Client),
}

impl Documents<'_> {
    /// Returns a manifest; `None` if its bytes do not match the digest.
    async fn manifest(&self, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Layout(path) => verified(small_file(&blob_of_layout(path, digest))?, digest),
            Self::Registry(client) => match client.again(|| client.manifest(digest)).await {
                Ok(manifest) => Ok(Some(manifest.bytes.into())),
                Err(error) => Err(Error::Registry(error)),
            },
        }
    }

    /// Returns a small blob; `None` if its bytes do not match the digest.
    async fn blob(&self, digest: &Digest, size: u64) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Layout(path) => verified(small_file(&blob_of_layout(path, digest))?, digest),
            Self::Registry(client) => {
                let blob = client.again(|| client.small_blob(digest, size, MAX_DOCUMENT)).await;
                blob.map(Some).map_err(Error::Registry)
            }
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "it ends both branches of a match")]
fn verified(bytes: Vec<u8>, digest: &Digest) -> Result<Option<Vec<u8>>, Error> {
    Ok((Digest::of(&bytes) == *digest).then_some(bytes))
}

fn small_file(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_DOCUMENT { Err(std::io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
    };
    read().map_err(|cause| Error::Read { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_kinds_and_wants_a_digest_or_a_tag() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = [format!("oci:/images/node@{digest}"), format!("h.io/node:22@{digest}")];
        for text in ["scratch", "oci:/images/node", "h.io/node:22", &pinned[0], &pinned[1]] {
            assert_eq!(text.parse::<Base>().map(|base| base.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("h.io/node".parse::<Base>(), Err(ParseBaseError::Unnamed));
        assert!(matches!("h.io/A".parse::<Base>(), Err(ParseBaseError::Reference(_))));
    }
}
