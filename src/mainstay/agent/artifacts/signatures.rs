//! Reads the signatures of cosign of a manifest from its registry, and has them judged.
//!
//! cosign stores signatures under the tag `sha256-HEX.sig`, or as manifests that refer to the signed one.
//!
//! Invariant: at most [`MOST`] signatures of each place are read, however they are spread over manifests, and each has at
//! most [`LONGEST`] bytes.
//! Invariant: a failed request for one signature does not hide another one that is valid.

use std::sync::Arc;

use serde::Deserialize;

use super::cosign::{Flaw, Proof, Signature};
use super::failure::Failure;
use super::referrers::{self, Referrer};
use super::signers::CosignSigners;
use mainstay_function::registry::{Client, Digest, Error};
use mainstay_git::Source;
use mainstay_object::failure::{Class, chain};

/// Maximum number of signatures of a place that are read.
const MOST: usize = 32;
/// Maximum size of a signature with its payload, in bytes.
const LONGEST: u64 = 256 << 10;
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

/// The search for a signature that counts.
struct Search<'s> {
    client: &'s Client,
    digest: &'s Digest,
    signers: &'s Arc<CosignSigners>,
    source: &'s Source,
    /// The number of signatures of this place that may still be read.
    left: usize,
    /// Whether there are more signatures than are read.
    is_cut: bool,
    /// The number of signatures that do not count.
    flawed: usize,
    flaw: Option<Flaw>,
    /// The first failed request.
    failed: Option<String>,
}

/// Returns the signer of the manifest: the end of a sentence.
pub(super) async fn verify(
    client: &Client,
    digest: &Digest,
    signers: &Arc<CosignSigners>,
    source: &Source,
) -> Result<String, Failure> {
    let mut search =
        Search { client, digest, signers, source, left: MOST, is_cut: false, flawed: 0, flaw: None, failed: None };
    if let Some(named) = referrers::tagged(client, &format!("sha256-{}.sig", digest.hex())).await?
        && let Some(signer) = search.held(&named).await?
    {
        return Ok(signer);
    }
    let is_holder = |one: &Referrer| HOLDERS.iter().any(|kind| one.artifact_type.starts_with(kind));
    // The holders have several types, and a request can name only one.
    let found = referrers::find(client, digest, None, is_holder, MOST).await?;
    search.is_cut |= found.is_cut;
    search.left = MOST;
    for referrer in &found.referrers {
        if let Some(signer) = search.held(&referrer.digest).await? {
            return Ok(signer);
        }
    }
    Err(search.outcome())
}

impl Search<'_> {
    /// Returns the signer of the first signature of an image that counts.
    async fn held(&mut self, image: &Digest) -> Result<Option<String>, String> {
        if self.left == 0 {
            self.is_cut = true;
            return Ok(None);
        }
        let manifest = match self.client.again(|| self.client.manifest(image)).await {
            Ok(manifest) => manifest,
            Err(error) => {
                self.missed(&error);
                return Ok(None);
            }
        };
        let Ok(holder) = serde_json::from_slice::<Holder>(&manifest.bytes) else {
            self.flaw(Flaw::Unreadable("its manifest is invalid"));
            return Ok(None);
        };
        let is_signature = |layer: &Layer| layer.media_type == PAYLOAD || layer.media_type.starts_with(BUNDLE);
        for layer in holder.layers.into_iter().filter(is_signature) {
            if self.left == 0 {
                self.is_cut = true;
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
        let bytes = match self.client.small_blob(&layer.digest, layer.size, LONGEST).await {
            Ok(bytes) => bytes,
            Err(error) => {
                self.missed(&error);
                return Ok(None);
            }
        };
        let Annotations { signature, certificate, entry } = layer.annotations;
        let signature = match signature {
            _ if layer.media_type != PAYLOAD => Signature::Bundle(bytes),
            Some(signature) => Signature::Simple { payload: bytes, signature, proof: Proof { certificate, entry } },
            None => {
                self.flaw(Flaw::Unreadable("its layer has no signature"));
                return Ok(None);
            }
        };
        let (signers, digest) = (Arc::clone(self.signers), self.digest.clone());
        let judge = move || signers.judge(&signature, &digest);
        match self.source.run_alone(judge).await.map_err(|fault| fault.to_string())? {
            Ok(signer) => Ok(Some(signer)),
            Err(flaw) => {
                self.flaw(flaw);
                Ok(None)
            }
        }
    }

    fn flaw(&mut self, flaw: Flaw) {
        self.flawed += 1;
        self.flaw = self.flaw.take().max(Some(flaw));
    }

    fn missed(&mut self, error: &Error) {
        if error.fault.class() == Class::Invalid {
            self.flaw(Flaw::Unreadable("the registry does not send it, or it is too large"));
        } else {
            self.failed.get_or_insert_with(|| format!("a signature: {}", chain(error)));
        }
    }

    fn outcome(self) -> Failure {
        if let Some(failed) = self.failed {
            return Failure::Read(failed);
        }
        let rest = if self.is_cut { referrers::rest(MOST) } else { String::new() };
        Failure::Unsigned(self.signers.refusal(self.flaw, self.flawed) + &rest)
    }
}
