//! Reads the signatures of cosign of a manifest from its registry, and has them judged.
//!
//! cosign stores signatures under the tag `sha256-HEX.sig`, or as manifests that refer to the signed one.
//!
//! Invariant: at most [`MOST`] signatures of each place are read, however they are spread over manifests.

use std::sync::Arc;

use serde::Deserialize;

use super::cosign::{Flaw, Proof, Signature};
use super::failure::Failure;
use super::referrers::{self, Referrer};
use super::search::{MOST, Search};
use super::signers::CosignSigners;
use mainstay_function::registry::{Client, Digest};
use mainstay_git::Source;

/// The media types of payloads and bundles.
const PAYLOAD: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The types of manifests that hold signatures. Some registries list a bundle by the type of its empty configuration.
const HOLDERS: [&str; 3] =
    [BUNDLE, "application/vnd.dev.cosign.artifact.sig.v1+json", "application/vnd.oci.empty.v1+json"];

/// An image whose layers are signatures.
#[derive(Deserialize)]
pub(super) struct Holder {
    #[serde(default)]
    pub(super) layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: Digest,
    pub(super) size: u64,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "dev.cosignproject.cosign/signature")]
    signature: Option<String>,
    #[serde(rename = "dev.sigstore.cosign/certificate")]
    certificate: Option<String>,
    #[serde(rename = "dev.sigstore.cosign/bundle")]
    entry: Option<String>,
}

/// The signatures of an artifact.
struct Signatures<'s> {
    search: Search<'s, Flaw>,
    digest: &'s Digest,
    signers: &'s Arc<CosignSigners>,
    /// The number of signatures of this place that may still be read.
    left: usize,
}

/// Returns the signer of the manifest: the end of a sentence.
pub(super) async fn verify(
    client: &Client,
    digest: &Digest,
    signers: &Arc<CosignSigners>,
    source: &Source,
) -> Result<String, Failure> {
    let unsent = Flaw::Unreadable("the registry does not send it, or it is too large");
    let mut signatures = Signatures { search: Search::new(client, source, unsent), digest, signers, left: MOST };
    if let Some(named) = referrers::tagged(client, &format!("sha256-{}.sig", digest.hex())).await?
        && let Some(signer) = signatures.held(&named).await?
    {
        return Ok(signer);
    }
    let is_holder = |one: &Referrer| HOLDERS.iter().any(|kind| one.artifact_type.starts_with(kind));
    // The holders have several types, and a request can name only one.
    let found = referrers::find(client, digest, None, is_holder, MOST).await?;
    signatures.search.is_cut |= found.is_cut;
    signatures.left = MOST;
    for referrer in &found.referrers {
        if let Some(signer) = signatures.held(&referrer.digest).await? {
            return Ok(signer);
        }
    }
    Err(signatures.search.outcome(|flaw, count| signers.refusal(flaw, count)))
}

impl Signatures<'_> {
    /// Returns the signer of the first signature of an image that counts.
    async fn held(&mut self, image: &Digest) -> Result<Option<String>, String> {
        if self.left == 0 {
            self.search.is_cut = true;
            return Ok(None);
        }
        let Some(manifest) = self.search.manifest(image).await else { return Ok(None) };
        let Ok(holder) = serde_json::from_slice::<Holder>(&manifest) else {
            self.search.reject(Flaw::Unreadable("its manifest is invalid"));
            return Ok(None);
        };
        let is_signature = |layer: &Layer| layer.media_type == PAYLOAD || layer.media_type.starts_with(BUNDLE);
        for layer in holder.layers.into_iter().filter(is_signature) {
            if self.left == 0 {
                self.search.is_cut = true;
                break;
            }
            self.left -= 1;
            if let Some(signer) = self.layer(layer).await? {
                return Ok(Some(signer));
            }
        }
        Ok(None)
    }

    async fn layer(&mut self, layer: Layer) -> Result<Option<String>, String> {
        let Some(bytes) = self.search.signature(&layer.digest, layer.size).await else { return Ok(None) };
        let Annotations { signature, certificate, entry } = layer.annotations;
        let signature = match signature {
            _ if layer.media_type != PAYLOAD => Signature::Bundle(bytes),
            Some(signature) => Signature::Simple { payload: bytes, signature, proof: Proof { certificate, entry } },
            None => {
                self.search.reject(Flaw::Unreadable("its layer has no signature"));
                return Ok(None);
            }
        };
        let (signers, digest) = (Arc::clone(self.signers), self.digest.clone());
        self.search.judge(move || signers.judge(&signature, &digest)).await
    }
}
