//! Looks up the image of a container for the node.

use super::{
    error::Refusal,
    manifest,
    name::{self, Digest, Reference, Repository, shown},
    store::{Registry, bounded},
};
use serde_json::Value;
use std::path::PathBuf;

/// Maximum size of an image configuration in bytes.
const MAX_CONFIG: u64 = 4 << 20;

/// The result of looking up an image.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// The reference names another registry.
    Elsewhere,
    /// The registry does not have the image. The text says which part is missing.
    Missing(String),
    /// The image is complete.
    Found(Image),
}

/// A complete image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// `HOST/REPOSITORY@DIGEST`, as in a container's status.
    pub id: String,
    /// Digest of the image's manifest, `sha256:…`.
    pub digest: String,
    /// The manifest.
    pub manifest: Value,
    /// The configuration: `config.Env`, `config.Entrypoint`, `config.WorkingDir`, `config.User` and so on.
    pub config: Value,
    /// The layers from bottom to top.
    pub layers: Vec<Layer>,
}

/// A layer. Its file is created and deleted, but never modified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Digest of the file, `sha256:…`.
    pub digest: String,
    /// Media type: a tar archive, with the suffix `gzip` or `zstd` if it is compressed.
    pub media_type: String,
    /// Size of the file, in bytes.
    pub size: u64,
    /// Path of the file.
    pub path: PathBuf,
}

impl Registry {
    /// Looks up the image of a container.
    ///
    /// For a multi-platform image, returns the one for Linux on this machine's architecture.
    pub async fn image(&self, reference: &str) -> Lookup {
        let host = reference.split('/').next().unwrap_or_default();
        if !self.is_at(host) {
            return Lookup::Elsewhere;
        }
        let Some((host, repository, wanted)) = name::split(reference) else {
            return Lookup::Missing(format!("{reference:?} is no image reference"));
        };
        match self.complete(host, &repository, &wanted).await {
            Ok(image) => Lookup::Found(image),
            Err(refusal) => {
                Lookup::Missing(format!("{host}/{}{}: {}", repository.as_str(), shown(&wanted), refusal.message))
            }
        }
    }

    async fn complete(&self, host: &str, repository: &Repository, wanted: &Reference) -> Result<Image, Refusal> {
        let (mut entry, mut bytes) = self.manifest(repository, wanted).await?;
        if manifest::is_index(&entry.media_type) {
            let chosen =
                manifest::chosen(&manifest::read(&bytes)?, architecture()).ok_or_else(Refusal::manifest_unknown)?;
            (entry, bytes) = self.manifest(repository, &Reference::Digest(chosen)).await?;
        }
        let manifest = manifest::read(&bytes)?;
        let missing = |digest: &str| Refusal::new(404, "BLOB_UNKNOWN", format!("its part {digest} is missing"));
        let part = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().and_then(Digest::parse);
            digest.ok_or_else(|| Refusal::manifest_invalid("its manifest is malformed"))
        };
        let config_digest = part(&manifest["config"])?;
        let config = bounded(&self.blob_path(repository, &config_digest), MAX_CONFIG).await?;
        let config = config.filter(|bytes| Digest::of(bytes) == config_digest);
        let config = manifest::read(&config.ok_or_else(|| missing(config_digest.as_str()))?)?;
        let mut layers = Vec::new();
        for descriptor in manifest["layers"].as_array().into_iter().flatten() {
            let digest = part(descriptor)?;
            let size = self.blob_size(repository, &digest).await?.ok_or_else(|| missing(digest.as_str()))?;
            let media_type = descriptor["mediaType"].as_str().unwrap_or_default().to_owned();
            let path = self.blob_path(repository, &digest);
            layers.push(Layer { digest: digest.as_str().to_owned(), media_type, size, path });
        }
        let id = format!("{host}/{}@{}", repository.as_str(), entry.digest);
        Ok(Image { id, digest: entry.digest, manifest, config, layers })
    }
}

/// This machine's architecture as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
