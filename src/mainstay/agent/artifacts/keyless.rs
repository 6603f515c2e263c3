//! Judges signatures of cosign without a key of one's own: a certificate names the signer. No network is used.
//!
//! Invariant: a certificate is issued by an authority of the trusted root, was valid at the time that the log of signatures
//! or a timestamp authority has signed, and is listed by a log of certificates. Invariant: the log of signatures has signed
//! its entry about this signature. Invariant: issuer and subject match one entry of the spec.
//!
//! A signature of cosign 2 becomes a bundle, too. It has no proof of inclusion: the log has signed the promise to include it,
//! as cosign verifies it.

use std::sync::{Arc, LazyLock};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::digest::SHA256;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::json;
use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_verify::types::{Artifact, Bundle, Sha256Hash, SignatureContent};
use sigstore_verify::{VerificationPolicy, Verifier};

use super::bounds::bounded;
use super::cosign::{Flaw, NO_ENVELOPE, Proof, Signature, of_payload, of_statement};
use super::foreign_text::plain;
use super::identities::Identities;
use super::ring_provider;
use mainstay_function::registry::Digest;

/// Maximum length of an annotation, in bytes.
const LONGEST_ANNOTATION: usize = 64 << 10;
const NO_CERTIFICATE: Flaw = Flaw::Unreadable("it has no certificate");
/// The library requires no proof in the first version of the format, and of several entries only one.
const NO_INCLUSION: Flaw = Flaw::Unreadable("it has no proof that each entry is included in a transparency log");

/// The root of the public instance of Sigstore, as this version of the library has it.
static PUBLIC: LazyLock<Result<Arc<Root>, String>> =
    LazyLock::new(|| Root::read(SIGSTORE_PRODUCTION_TRUSTED_ROOT).map(Arc::new));

/// The authorities and logs that are trusted.
pub(super) struct Root {
    verifier: Verifier,
    policy: VerificationPolicy,
}

/// The identities that may sign, and the authorities that prove them.
pub(super) struct Keyless {
    root: Arc<Root>,
    identities: Identities,
}

impl Root {
    /// Returns the root of the public instance of Sigstore.
    pub(super) fn public() -> Result<Arc<Self>, String> {
        PUBLIC.clone()
    }

    /// Reads a trusted root in JSON. If it lists no logs of certificates, certificates need not be listed in one.
    ///
    /// # Errors
    /// Fails with the end of a sentence about the document.
    pub(super) fn read(json: &str) -> Result<Self, String> {
        ring_provider::install();
        let unusable = |why: &str| format!("is not a trusted root of Sigstore: {}", plain(why));
        let root = TrustedRoot::from_json(json).map_err(|error| unusable(&error.to_string()))?;
        if root.certificate_authorities.is_empty() {
            return Err("lists no certificate authority".to_owned());
        }
        if root.tlogs.is_empty() {
            return Err("lists no transparency log".to_owned());
        }
        let verifier = Verifier::new(&root).map_err(|error| unusable(&error.to_string()))?;
        let policy = VerificationPolicy::any_identity();
        let policy = if root.ctlogs.is_empty() { policy.skip_sct() } else { policy };
        Ok(Self { verifier, policy })
    }
}

impl Keyless {
    pub(super) fn new(root: Arc<Root>, identities: Identities) -> Self {
        Self { root, identities }
    }

    /// Returns the signer of the manifest with a digest, for messages.
    pub(super) fn judge(&self, signature: &Signature, digest: &Digest) -> Result<String, Flaw> {
        match signature {
            Signature::Simple { payload, signature, proof } => {
                let bundle = bounded(bundle_of(payload, signature, proof)?)?;
                let policy = self.root.policy.clone().skip_tlog_unsafe();
                let signer = self.signer(Artifact::from_blob(payload), &bundle, &policy)?;
                of_payload(payload, digest).map_err(|why| Flaw::Other(signer.clone(), why)).map(|()| signer)
            }
            Signature::Bundle(bytes) => {
                let text = std::str::from_utf8(bytes).map_err(|_| Flaw::Unreadable(NO_ENVELOPE))?;
                let bundle = Bundle::from_json(text).map_err(|_| Flaw::Unreadable("the bundle is invalid"))?;
                let bundle = bounded(bundle)?;
                let entries = &bundle.verification_material.tlog_entries;
                if entries.is_empty() || entries.iter().any(|entry| entry.inclusion_proof.is_none()) {
                    return Err(NO_INCLUSION);
                }
                let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
                    return Err(Flaw::Unreadable(NO_ENVELOPE));
                };
                let signed =
                    Sha256Hash::from_hex(digest.hex()).map_err(|_| Flaw::Unreadable("its digest is invalid"))?;
                let signer = self.signer(Artifact::from_digest(signed), &bundle, &self.root.policy)?;
                let judged = of_statement(&envelope.payload_type, envelope.payload.as_bytes(), digest);
                judged.map_err(|why| Flaw::Other(signer.clone(), why)).map(|()| signer)
            }
        }
    }

    /// Verifies a bundle, and returns the accepted signer.
    fn signer(&self, signed: Artifact<'_>, bundle: &Bundle, policy: &VerificationPolicy) -> Result<String, Flaw> {
        if bundle.signing_certificate().is_none() {
            return Err(NO_CERTIFICATE);
        }
        let unverified = |why: &str| Flaw::Unverified(plain(why));
        let verified = self.root.verifier.verify(signed, bundle, policy);
        let verified = verified.map_err(|error| unverified(&error.to_string()))?;
        let (Some(subject), Some(issuer)) = (verified.identity(), verified.issuer()) else {
            return Err(unverified("the certificate names no subject or no issuer"));
        };
        let signer = format!("{} of the issuer {}", plain(subject.as_str()), plain(issuer));
        if self.identities.include(subject.as_str(), issuer) { Ok(signer) } else { Err(Flaw::Stranger(signer)) }
    }
}

/// The entry of the log in an annotation of cosign 2, with the promise of the log to include it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    signed_entry_timestamp: String,
    payload: Content,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    body: String,
    integrated_time: i64,
    log_index: u64,
    #[serde(rename = "logID")]
    log_id: String,
}

/// Returns the bundle of a signature over a payload, with the first certificate of the annotation.
fn bundle_of(payload: &[u8], signature: &str, proof: &Proof) -> Result<Bundle, Flaw> {
    let certificate = proof.certificate.as_deref().ok_or(NO_CERTIFICATE)?;
    let entry = proof.entry.as_deref().ok_or(Flaw::Unreadable("it has no entry of a transparency log"))?;
    if [signature, certificate, entry].iter().any(|text| text.len() > LONGEST_ANNOTATION) {
        return Err(Flaw::Unreadable("an annotation of its layer is longer than 64 KiB"));
    }
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| Flaw::Unreadable("its certificate is not valid PEM"))?;
    let unreadable = || Flaw::Unreadable("its entry of a transparency log cannot be read");
    let Entry { signed_entry_timestamp, payload: content } = serde_json::from_str(entry).map_err(|_| unreadable())?;
    let log_id = hex::decode(&content.log_id).map_err(|_| unreadable())?;
    let entry = json!({
        "logIndex": content.log_index.to_string(),
        "logId": {"keyId": BASE64_STANDARD.encode(log_id)},
        "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
        "integratedTime": content.integrated_time.to_string(),
        "inclusionPromise": {"signedEntryTimestamp": signed_entry_timestamp},
        "canonicalizedBody": content.body,
    });
    // cosign 2 signs the SHA-256 of the payload with any curve. The library would take another digest for P-384.
    let digest = ring::digest::digest(&SHA256, payload);
    let digest = json!({"algorithm": "SHA2_256", "digest": BASE64_STANDARD.encode(digest)});
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle+json;version=0.1",
        "verificationMaterial": {"certificate": {"rawBytes": BASE64_STANDARD.encode(&certificate)}, "tlogEntries": [entry]},
        "messageSignature": {"messageDigest": digest, "signature": signature.trim()},
    });
    Bundle::from_json(&bundle.to_string()).map_err(|_| unreadable())
}

#[cfg(test)]
mod tests;
