//! Parses manifests and the index of a layout.

use super::{
    error::Refusal,
    name::{Digest, Reference},
};
use bounded_json::{Bounds, Unreadable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum size of a manifest in bytes, as the distribution specification recommends.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;
/// Parser limits of an image's documents.
const BOUNDS: Bounds = Bounds::new(4 << 20, 100_000);
/// Annotation with the tag of an entry.
const TAG: &str = "org.opencontainers.image.ref.name";

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const IMAGES: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// `index.json` of a layout.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    schema_version: u8,
    manifests: Vec<Entry>,
}

/// A manifest in an [`Index`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Entry {
    fn tag(&self) -> Option<&str> {
        self.annotations.get(TAG).map(String::as_str)
    }
}

impl Default for Index {
    fn default() -> Self {
        Self { schema_version: 2, manifests: Vec::new() }
    }
}

impl Index {
    /// Returns the entry of a tag or digest.
    pub(super) fn find(&self, reference: &Reference) -> Option<&Entry> {
        self.manifests.iter().find(|entry| match reference {
            Reference::Tag(tag) => entry.tag() == Some(tag),
            Reference::Digest(digest) => entry.digest == digest.as_str(),
        })
    }

    /// Adds a manifest. A tag moves from its previous manifest, which remains untagged.
    pub(super) fn put(&mut self, reference: &Reference, media_type: &str, digest: &Digest, size: u64) {
        let bare = |entry: &Entry| Entry { annotations: BTreeMap::new(), ..entry.clone() };
        let new = Entry {
            media_type: media_type.to_owned(),
            digest: digest.as_str().to_owned(),
            size,
            annotations: BTreeMap::new(),
        };
        let Reference::Tag(tag) = reference else {
            if self.find(reference).is_none() {
                self.manifests.push(new);
            }
            return;
        };
        if let Some(at) = self.manifests.iter().position(|entry| entry.tag() == Some(tag)) {
            let old = self.manifests.remove(at);
            if old.digest != new.digest && !self.manifests.iter().any(|entry| entry.digest == old.digest) {
                self.manifests.push(bare(&old));
            }
        }
        self.manifests.retain(|entry| entry.digest != new.digest || entry.tag().is_some());
        self.manifests.push(Entry { annotations: BTreeMap::from([(TAG.to_owned(), tag.clone())]), ..new });
    }

    /// Removes a tag, or a manifest with all its tags. Returns whether it existed.
    pub(super) fn remove(&mut self, reference: &Reference) -> bool {
        let Some(found) = self.find(reference).cloned() else { return false };
        self.manifests.retain(|entry| match reference {
            Reference::Tag(tag) => entry.tag() != Some(tag),
            Reference::Digest(digest) => entry.digest != digest.as_str(),
        });
        let untagged = matches!(reference, Reference::Tag(_));
        if untagged && !self.manifests.iter().any(|entry| entry.digest == found.digest) {
            self.manifests.push(Entry { annotations: BTreeMap::new(), ..found });
        }
        true
    }

    /// Returns all tags in order.
    pub(super) fn tags(&self) -> Vec<&str> {
        let mut tags: Vec<&str> = self.manifests.iter().filter_map(Entry::tag).collect();
        tags.sort_unstable();
        tags
    }
}

/// The blobs and manifests that a manifest refers to, and that must exist before the manifest is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) media_type: String,
    pub(super) blobs: Vec<Digest>,
    pub(super) manifests: Vec<Digest>,
}

/// Parses a document of an image.
pub(super) fn read(bytes: &[u8]) -> Result<Value, Refusal> {
    BOUNDS.read(bytes).map_err(|unreadable| match unreadable {
        Unreadable::Malformed(_) => Refusal::manifest_invalid("it is not JSON"),
        other => Refusal::manifest_invalid(other.to_string()),
    })
}

/// Parses a pushed manifest.
pub(super) fn needs(content_type: &str, bytes: &[u8]) -> Result<Needs, Refusal> {
    let manifest: Value = read(bytes)?;
    if manifest["schemaVersion"] != 2 {
        return Err(Refusal::manifest_invalid("schemaVersion is not 2"));
    }
    let inside = manifest["mediaType"].as_str();
    let outside = content_type.split(';').next().unwrap_or_default().trim();
    let media_type = if outside.is_empty() { inside.unwrap_or_default() } else { outside };
    if inside.is_some_and(|inside| inside != media_type) {
        return Err(Refusal::manifest_invalid("mediaType is not the content type"));
    }
    let digests = |list: &[&Value]| -> Result<Vec<Digest>, Refusal> {
        let digest = |descriptor: &&Value| descriptor["digest"].as_str().and_then(Digest::parse);
        list.iter().map(|d| digest(d).ok_or_else(|| Refusal::manifest_invalid("a digest is malformed"))).collect()
    };
    let listed = |field: &str| manifest[field].as_array().map(|list| list.iter().collect::<Vec<_>>());
    let (blobs, manifests) = if INDEXES.contains(&media_type) {
        let manifests = listed("manifests").ok_or_else(|| Refusal::manifest_invalid("manifests are missing"))?;
        (Vec::new(), digests(&manifests)?)
    } else if IMAGES.contains(&media_type) {
        let mut blobs = listed("layers").ok_or_else(|| Refusal::manifest_invalid("layers are missing"))?;
        // Layers with URLs are stored elsewhere.
        blobs.retain(|layer| layer["urls"].as_array().is_none_or(Vec::is_empty));
        blobs.push(&manifest["config"]);
        (digests(&blobs)?, Vec::new())
    } else {
        return Err(Refusal::manifest_invalid(format!("media type {media_type:?} is not supported")));
    };
    Ok(Needs { media_type: media_type.to_owned(), blobs, manifests })
}

/// Selects the manifest of an index for Linux and this architecture, or else the first for Linux.
pub(super) fn chosen(index: &Value, architecture: &str) -> Option<Digest> {
    let all = index["manifests"].as_array()?;
    let linux = || all.iter().filter(|m| m["platform"]["os"].as_str().is_none_or(|os| os == "linux"));
    let fits = |m: &&Value| m["platform"]["architecture"] == architecture;
    linux().find(fits).or_else(|| linux().next()).and_then(|m| m["digest"].as_str()).and_then(Digest::parse)
}

/// Whether a media type means an index.
pub(super) fn is_index(media_type: &str) -> bool {
    INDEXES.contains(&media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Reference {
        Reference::Tag(text.to_owned())
    }

    #[test]
    fn tags_move_and_manifests_stay() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        let mut index = Index::default();
        index.put(&Reference::Digest(a.clone()), IMAGES[0], &a, 1);
        index.put(&tag("x"), IMAGES[0], &a, 1);
        index.put(&tag("y"), IMAGES[0], &a, 1);
        assert_eq!((index.tags(), index.manifests.len()), (vec!["x", "y"], 2));
        index.put(&tag("x"), IMAGES[0], &b, 1);
        assert_eq!(index.find(&tag("x")).unwrap().digest, b.as_str());
        assert!(index.remove(&tag("y")) && !index.remove(&tag("y")));
        assert!(index.find(&Reference::Digest(a.clone())).is_some(), "an image outlives its last tag");
        assert!(index.remove(&Reference::Digest(b)) && index.tags().is_empty());
    }

    #[test]
    fn reads_what_a_manifest_needs() {
        let digest = Digest::of(b"a");
        let descriptor = format!(r#"{{"digest":"{}"}}"#, digest.as_str());
        let image = format!(r#"{{"schemaVersion":2,"config":{descriptor},"layers":[{descriptor}]}}"#);
        let got = needs(IMAGES[0], image.as_bytes()).unwrap();
        assert_eq!((got.blobs.len(), got.manifests.len()), (2, 0));
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{descriptor}]}}"#);
        assert_eq!(needs(INDEXES[0], index.as_bytes()).unwrap().manifests, [digest]);
        for wrong in ["", "[]", "{}", r#"{"schemaVersion":2}"#, r#"{"schemaVersion":2,"layers":[{}],"config":{}}"#] {
            assert_eq!(needs(IMAGES[0], wrong.as_bytes()).unwrap_err().code, "MANIFEST_INVALID", "{wrong}");
        }
        let many = format!(r#"{{"schemaVersion":2,"x":[{}0]}}"#, "0,".repeat(200_000));
        assert!(needs(IMAGES[0], many.as_bytes()).unwrap_err().message.contains("more than 100000 values"));
        let other = format!(r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[]}}"#, INDEXES[0]);
        assert_eq!(needs(IMAGES[0], other.as_bytes()).unwrap_err().code, "MANIFEST_INVALID");
    }
}
