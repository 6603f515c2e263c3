//! Finds the manifests that refer to a manifest, such as its signatures.
//!
//! A registry without the API of referrers has their index under the tag `sha256-HEX`.

use serde::Deserialize;

use mainstay_function::registry::{Client, Digest};
use mainstay_object::failure::chain;

/// The index of the manifests that refer to a manifest.
#[derive(Default, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Referrer>,
}

/// A manifest that refers to another one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Referrer {
    pub(super) digest: Digest,
    #[serde(default)]
    pub(super) artifact_type: String,
}

/// Returns the manifests that refer to the one with a digest. An index that cannot be read lists none.
pub(super) async fn find(client: &Client, digest: &Digest) -> Result<Vec<Referrer>, String> {
    let index = match client.again(|| client.referrers(digest)).await.map_err(|error| chain(&error))? {
        Some(index) => index,
        None => match tagged(client, &format!("sha256-{}", digest.hex())).await? {
            Some(named) => {
                client.again(|| client.manifest(&named)).await.map_err(|error| chain(&error))?.bytes.to_vec()
            }
            None => Vec::new(),
        },
    };
    let index: Index = serde_json::from_slice(&index).unwrap_or_default();
    Ok(index.manifests)
}

/// Returns the digest of a tag; `None` if there is no such tag.
pub(super) async fn tagged(client: &Client, tag: &str) -> Result<Option<Digest>, String> {
    client.again(|| client.points_to(tag)).await.map_err(|error| chain(&error))
}
