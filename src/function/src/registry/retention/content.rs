//! Parses manifests of the registry's storage: their type, and the blobs that they need.

use serde_json::Value;

use crate::registry::Digest;
use mainstay_api::names::{FUNCTION_IMAGE, IMAGE_LABEL, LAYER, SERVER_LAYER};

/// Number of digits of tags that builds set.
const TAG: usize = 64;

/// The type of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An image that Mainstay built for a Function.
    Function,
    /// Another image for one platform.
    Image,
    /// Anything else, such as an index.
    Other,
}

/// A parsed manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The manifest's type, as far as the manifest itself determines it.
    pub content: Content,
    /// The digests of all blobs and manifests that it references.
    pub needs: Vec<Digest>,
    /// The digest of the image's configuration. The labels in the configuration may determine the type.
    pub configuration: Option<Digest>,
}

impl Parsed {
    /// Parses a manifest or an index; `None` if it contains an unknown kind of reference.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(bytes).ok()?;
        let mut needs = Vec::new();
        let mut add = |text: &Value| text.as_str()?.parse().ok().map(|digest| needs.push(digest));
        let all = |name: &str| document[name].as_array().into_iter().flatten();
        for (list, digest) in
            [("layers", "digest"), ("manifests", "digest"), ("blobs", "digest"), ("fsLayers", "blobSum")]
        {
            for one in all(list) {
                add(&one[digest])?;
            }
        }
        for one in ["config", "subject"].into_iter().filter(|one| !document[one].is_null()) {
            add(&document[one]["digest"])?;
        }
        let configuration = document["config"]["digest"].as_str().and_then(|digest| digest.parse().ok());
        let is_image = configuration.is_some() && document["layers"].is_array() && document["manifests"].is_null();
        let has_server = all("layers").any(|layer| layer["annotations"][LAYER] == SERVER_LAYER);
        let content = match (is_image, has_server) {
            (true, true) => Content::Function,
            (true, false) => Content::Image,
            (false, _) => Content::Other,
        };
        (!needs.is_empty()).then_some(Self { content, needs, configuration })
    }
}

/// Whether a configuration belongs to an image that Kaniko built for a Function.
pub fn is_of_function(configuration: &[u8]) -> bool {
    let document = serde_json::from_slice::<Value>(configuration).unwrap_or_default();
    document["config"]["Labels"][IMAGE_LABEL] == FUNCTION_IMAGE
}

/// Whether a build may have set this tag.
pub(super) fn is_tag_of_ours(tag: &str) -> bool {
    tag.len() == TAG && tag.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
