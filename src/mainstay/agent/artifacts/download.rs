//! Finds an artifact in its registry, and downloads the layer with its files.
//!
//! Invariant: a layer is passed on only if its bytes match the digest in the manifest, and the manifest matches its own
//! digest. Invariant: a layer has at most 64 MiB, and is not in memory as a whole.

use std::fs::File;
use std::io::{Seek as _, Write as _};

use futures::StreamExt as _;
use serde::Deserialize;

use super::wanted::{Version, Wanted};
use mainstay_function::registry::{Client, Digest, Manifest};
use mainstay_git::{ARTIFACT_BYTES, Source, highest_version};
use mainstay_object::failure::chain;

/// Maximum number of layers that a manifest may list.
const LAYERS: usize = 1000;

/// An artifact in its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The tag; empty if the spec specifies a digest.
    pub(super) tag: String,
    /// Digest of the manifest.
    pub(super) digest: Digest,
}

impl Found {
    /// Returns the revision as Flux writes it.
    pub(super) fn revision(&self) -> String {
        let Self { tag, digest } = self;
        if tag.is_empty() { digest.to_string() } else { format!("{tag}@{digest}") }
    }
}

/// A layer of an artifact.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    #[serde(default)]
    media_type: String,
    pub(super) digest: Digest,
    size: u64,
}

#[derive(Deserialize)]
struct Document {
    layers: Option<Vec<Layer>>,
}

/// Returns the artifact that the spec follows.
pub(super) async fn find(client: &Client, wanted: &Wanted) -> Result<Found, String> {
    let tag = match &wanted.version {
        Version::Digest(digest) => return Ok(Found { tag: String::new(), digest: digest.clone() }),
        Version::Tag(tag) => tag.clone(),
        Version::Range(range, filter) => {
            let tags = client.again(|| client.tags()).await.map_err(|error| chain(&error))?;
            let tags = tags.ok_or("the registry has no such repository")?;
            let fits = |tag: &&str| filter.as_ref().is_none_or(|filter| filter.is_match(tag));
            let chosen = highest_version(range, tags.iter().map(String::as_str).filter(fits))?;
            let missing = || format!("none of the {} tags is a version in the range {range}", tags.len());
            chosen.ok_or_else(missing)?.to_owned()
        }
    };
    let digest = client.again(|| client.points_to(&tag)).await.map_err(|error| chain(&error))?;
    let digest = digest.ok_or_else(|| format!("the registry has no tag {tag} in this repository"))?;
    Ok(Found { tag, digest })
}

/// Returns the layer that the spec selects.
pub(super) async fn layer(client: &Client, found: &Found, wanted: &Wanted) -> Result<Layer, String> {
    let manifest = client.again(|| client.manifest(&found.digest)).await.map_err(|error| chain(&error))?;
    select(&manifest, wanted.media_type.as_deref())
}

fn select(manifest: &Manifest, media_type: Option<&str>) -> Result<Layer, String> {
    let document: Document = serde_json::from_slice(&manifest.bytes)
        .map_err(|_| "the manifest is invalid: each layer needs a media type, a sha256 digest and a size".to_owned())?;
    let Some(layers) = document.layers else {
        return Err("it is an index of several images; name the digest of one of them in spec.ref.digest".to_owned());
    };
    if layers.len() > LAYERS {
        return Err(format!("it has more than {LAYERS} layers"));
    }
    let layer = layers.into_iter().find(|layer| media_type.is_none_or(|wanted| layer.media_type == wanted));
    let layer = layer.ok_or_else(|| match media_type {
        Some(wanted) => format!("it has no layer with the media type {wanted}; correct spec.layerSelector.mediaType"),
        None => "it has no layer".to_owned(),
    })?;
    if layer.size > ARTIFACT_BYTES {
        return Err(format!("its layer has {} bytes; at most {ARTIFACT_BYTES} are read", layer.size));
    }
    Ok(layer)
}

/// Downloads a layer into a temporary file, and returns the file.
pub(super) async fn download(client: &Client, layer: &Layer, source: &Source) -> Result<File, String> {
    let mut file = source.scratch_file().await.map_err(|fault| fault.to_string())?;
    let mut pieces = client.blob(&layer.digest, layer.size).await.map_err(|error| chain(&error))?;
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|fault| format!("the layer was not read: {fault}"))?;
        let written = tokio::task::spawn_blocking(move || file.write_all(&piece).map(|()| file)).await;
        let written = written.map_err(|_| "the download stopped".to_owned())?;
        file = written.map_err(|error| format!("the layer was not written to the disk: {error}"))?;
    }
    file.rewind().map_err(|error| format!("the layer was not written to the disk: {error}"))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selected(document: &Value, media_type: Option<&str>) -> Result<String, String> {
        let bytes = document.to_string().into_bytes();
        let manifest = Manifest { media_type: String::new(), digest: Digest::of(&bytes), bytes: bytes.into() };
        select(&manifest, media_type).map(|layer| layer.media_type)
    }

    #[test]
    fn selects_the_first_layer_or_the_first_of_a_media_type() {
        let layer = |media: &str, size: u64| json!({"mediaType": media, "digest": Digest::of(b"x"), "size": size});
        let document = json!({"layers": [layer("a", 1), layer("b", 2), layer("c", 1 << 40)]});
        assert_eq!(selected(&document, None), Ok("a".to_owned()));
        assert_eq!(selected(&document, Some("b")), Ok("b".to_owned()));
        assert!(selected(&document, Some("c")).unwrap_err().contains("at most 67108864 are read"));
        assert!(selected(&document, Some("d")).unwrap_err().contains("no layer with the media type d"));
        assert!(selected(&json!({"layers": []}), None).unwrap_err().contains("has no layer"));
        assert!(selected(&json!({"manifests": []}), None).unwrap_err().contains("an index of several images"));
        let odd = json!({"layers": [{"mediaType": "a", "digest": "sha512:00", "size": 1}]});
        assert!(selected(&odd, None).unwrap_err().contains("is invalid"));
    }

    #[test]
    fn a_revision_names_tag_and_digest() {
        let digest = Digest::of(b"x");
        let found = |tag: &str| Found { tag: tag.to_owned(), digest: digest.clone() }.revision();
        assert_eq!(found("v1"), format!("v1@{digest}"));
        assert_eq!(found(""), digest.to_string());
    }
}
