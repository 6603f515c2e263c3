//! Finds an artifact in its registry, and downloads the layer with its files.
//!
//! Invariant: a layer is passed on only if its bytes match the digest in the manifest, and the manifest matches its own
//! digest. Invariant: a layer has at most 64 MiB, and is not in memory as a whole.

use std::fs::File;
use std::io::{Seek as _, Write as _};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::wanted::{CHART, Image, Version};
use mainstay_function::registry::{Client, Digest, Fault};
use mainstay_git::{ARTIFACT_BYTES, Source, highest_version};
use mainstay_object::failure::chain;

/// The media type of a provenance file.
const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// Maximum number of layers that a manifest may list.
const LAYERS: usize = 1000;

/// Minimum number of bytes that are written to the disk at once, except at the end.
const PIECE: usize = 64 << 10;

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
    pub(super) size: u64,
}

/// A manifest: an image with layers, or an index with manifests.
#[derive(Deserialize)]
struct Document {
    layers: Option<Vec<Layer>>,
    manifests: Option<Vec<Member>>,
}

/// An image of an index.
#[derive(Deserialize)]
struct Member {
    digest: Digest,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Returns the artifact that the spec follows.
pub(super) async fn find(client: &Client, wanted: &Image) -> Result<Found, String> {
    let (tag, name) = match &wanted.version {
        Version::Digest(digest) => return Ok(Found { tag: String::new(), digest: digest.clone() }),
        Version::Tag(tag) => (tag.clone(), tag.clone()),
        Version::Range(range, filter) => {
            let fits = |tag: &String| filter.as_ref().is_none_or(|filter| filter.is_match(tag));
            let tag = highest(range, tags(client).await?, fits)?;
            (tag.clone(), tag)
        }
        Version::OfChart(range) => {
            let versions = tags(client).await?.into_iter().map(|tag| tag.replace('_', "+")).collect();
            let version = highest(range, versions, |_| true)?;
            (version.replace('+', "_"), version)
        }
    };
    let digest = client.again(|| client.points_to(&tag)).await.map_err(|error| chain(&error))?;
    let digest = digest.ok_or_else(|| format!("the registry has no tag {tag} in this repository"))?;
    Ok(Found { tag: name, digest })
}

async fn tags(client: &Client) -> Result<Vec<String>, String> {
    let tags = client.again(|| client.tags()).await.map_err(|error| chain(&error))?;
    tags.ok_or_else(|| "the registry has no such repository".to_owned())
}

fn highest(range: &str, versions: Vec<String>, fits: impl Fn(&String) -> bool) -> Result<String, String> {
    let count = versions.len();
    let chosen = highest_version(range, versions.iter().filter(|version| fits(version)).map(String::as_str))?;
    let missing = || format!("none of the {count} tags is a version in the range {range}");
    chosen.map(str::to_owned).ok_or_else(missing)
}

/// Returns the layer that the spec selects. An index of several images has it in the image that [`member`] chooses.
pub(super) async fn layer(client: &Client, found: &Found, wanted: &Image) -> Result<Layer, String> {
    let mut document = read(client, &found.digest).await?;
    if let Some(members) = document.manifests.take().filter(|_| document.layers.is_none()) {
        document = read(client, &member(members)?).await?;
    }
    select(document, wanted.media_type.as_deref())
}

/// Returns the layer with the provenance file of a chart, if it has one.
pub(super) async fn provenance(client: &Client, found: &Found) -> Result<Option<Layer>, String> {
    let layers = read(client, &found.digest).await?.layers.unwrap_or_default();
    Ok(layers.into_iter().find(|layer| layer.media_type == PROVENANCE))
}

async fn read(client: &Client, digest: &Digest) -> Result<Document, String> {
    let manifest = client.again(|| client.manifest(digest)).await.map_err(|error| chain(&error))?;
    serde_json::from_slice(&manifest.bytes)
        .map_err(|_| "the manifest is invalid: each layer needs a media type, a sha256 digest and a size".to_owned())
}

/// Returns the image of an index: the one for Linux on x86-64, like Flux, or else the only one.
fn member(members: Vec<Member>) -> Result<Digest, String> {
    let is = |member: &Member, os: &str, architecture: &str| {
        member.platform.as_ref().is_some_and(|platform| platform.os == os && platform.architecture == architecture)
    };
    // Attestations of builds have an unknown platform.
    let (mut others, mut usual): (Vec<_>, Vec<_>) = members
        .into_iter()
        .filter(|member| !is(member, "unknown", "unknown"))
        .partition(|member| !is(member, "linux", "amd64"));
    let only = if others.len() == 1 { others.pop() } else { None };
    let chosen = if usual.is_empty() { only } else { Some(usual.swap_remove(0)) };
    chosen.map(|member| member.digest).ok_or_else(|| {
        "the index contains several images, and none is for linux/amd64; name the digest of one of them in spec.ref.digest"
            .to_owned()
    })
}

fn select(document: Document, media_type: Option<&str>) -> Result<Layer, String> {
    let Some(layers) = document.layers else {
        return Err("the manifest is neither an image nor an index of images".to_owned());
    };
    if layers.len() > LAYERS {
        return Err(format!("it has more than {LAYERS} layers"));
    }
    let layer = layers.into_iter().find(|layer| media_type.is_none_or(|wanted| layer.media_type == wanted));
    let layer = layer.ok_or_else(|| match media_type {
        Some(CHART) => "the artifact is not a Helm chart: it has no layer with the media type of charts".to_owned(),
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
    let bytes = client.blob(&layer.digest, layer.size).await.map_err(|error| chain(&error))?;
    write(bytes, source).await.map(|written| written.file).map_err(|why| format!("the layer {why}"))
}

/// A file with downloaded bytes.
pub(super) struct Written {
    /// The file, at its beginning.
    pub(super) file: File,
    /// Digest of the bytes.
    pub(super) digest: Digest,
}

/// Writes bytes to an unnamed file. An error is the end of a sentence about the bytes.
pub(super) async fn write(
    mut bytes: BoxStream<'static, Result<Bytes, Fault>>,
    source: &Source,
) -> Result<Written, String> {
    let failed = |error: std::io::Error| format!("cannot be written to the disk: {error}");
    let file = source.scratch_file().await.map_err(|fault| format!("cannot be written to the disk: {fault}"))?;
    let mut state = (file, Sha256::new());
    let mut is_end = false;
    while !is_end {
        // A server may send single bytes.
        let mut piece = Vec::new();
        while piece.len() < PIECE && !is_end {
            match bytes.next().await {
                Some(more) => piece.extend_from_slice(&more.map_err(|fault| format!("was not read: {fault}"))?),
                None => is_end = true,
            }
        }
        let written = tokio::task::spawn_blocking(move || {
            state.1.update(&piece);
            state.0.write_all(&piece).map(|()| state)
        });
        state = written.await.map_err(|_| "was not read: the download stopped".to_owned())?.map_err(failed)?;
    }
    let (mut file, hasher) = state;
    file.rewind().map_err(failed)?;
    Ok(Written { file, digest: Digest::finished(hasher) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selected(document: &Value, media_type: Option<&str>) -> Result<String, String> {
        let document = Document::deserialize(document).map_err(|_| "is invalid".to_owned())?;
        select(document, media_type).map(|layer| layer.media_type)
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
        assert!(selected(&json!({"manifests": []}), None).unwrap_err().contains("neither an image nor an index"));
        let odd = json!({"layers": [{"mediaType": "a", "digest": "sha512:00", "size": 1}]});
        assert!(selected(&odd, None).unwrap_err().contains("is invalid"));
    }

    #[test]
    fn chooses_an_image_of_an_index() {
        let chosen = |platforms: &[&str]| {
            let members = platforms.iter().map(|platform| {
                let parts =
                    platform.split_once('/').map(|(os, architecture)| json!({"os": os, "architecture": architecture}));
                json!({"digest": Digest::of(platform.as_bytes()), "platform": parts})
            });
            let document = Document::deserialize(json!({"manifests": members.collect::<Vec<_>>()})).unwrap();
            member(document.manifests.unwrap())
        };
        let is =
            |platforms: &[&str], expected: &str| assert_eq!(chosen(platforms), Ok(Digest::of(expected.as_bytes())));
        is(&["linux/arm64", "linux/amd64", "unknown/unknown"], "linux/amd64");
        is(&["linux/arm64", "unknown/unknown"], "linux/arm64");
        is(&["none"], "none");
        for platforms in [&["linux/arm64", "windows/amd64"][..], &[], &["unknown/unknown"]] {
            assert!(chosen(platforms).unwrap_err().contains("none is for linux/amd64"));
        }
    }

    #[test]
    fn a_revision_names_tag_and_digest() {
        let digest = Digest::of(b"x");
        let found = |tag: &str| Found { tag: tag.to_owned(), digest: digest.clone() }.revision();
        assert_eq!(found("v1"), format!("v1@{digest}"));
        assert_eq!(found(""), digest.to_string());
    }
}
