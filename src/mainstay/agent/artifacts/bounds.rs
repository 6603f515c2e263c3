//! Limits of a Sigstore bundle, before the library reads its certificates and timestamps.
//!
//! Invariant: a part that the library reads is short, and the sets of a certificate are small. The library sorts the elements
//! of each set in a certificate or a timestamp, and its time grows with the square of their number. Anyone may write such a part.
//! Invariant: the certificates above that of the signer are those of the trusted root. The registry sends none.

use sigstore_verify::types::{Bundle, DerCertificate, VerificationMaterialContent};

use super::cosign::Flaw;
use super::narrow;

/// Maximum length of a certificate, in bytes of DER.
const LONGEST_CERTIFICATE: usize = 8 << 10;
/// Maximum length of a timestamp, and of the signed head of a log, in bytes.
const LONGEST_TIMESTAMP: usize = 16 << 10;
const LONGEST_CHECKPOINT: usize = 16 << 10;
/// Maximum number of certificates: that of the signer, and those above it.
const MOST_CERTIFICATES: usize = 5;
/// Maximum number of entries of transparency logs, and of timestamps.
const MOST_ENTRIES: usize = 4;
const MOST_TIMESTAMPS: usize = 4;

/// Returns a bundle with the signer's certificate only, if none of its parts is too long, and it has not too many of them.
pub(super) fn bounded(mut bundle: Bundle) -> Result<Bundle, Flaw> {
    if let Some(why) = excess(&bundle) {
        return Err(Flaw::Unreadable(why));
    }
    if let VerificationMaterialContent::X509CertificateChain { certificates } =
        &mut bundle.verification_material.content
    {
        certificates.truncate(1);
    }
    Ok(bundle)
}

/// Returns which limit a bundle exceeds.
fn excess(bundle: &Bundle) -> Option<&'static str> {
    let material = &bundle.verification_material;
    let certificates: Vec<&DerCertificate> = match &material.content {
        VerificationMaterialContent::Certificate(one) => vec![&one.raw_bytes],
        VerificationMaterialContent::X509CertificateChain { certificates } => {
            certificates.iter().map(|one| &one.raw_bytes).collect()
        }
        _ => Vec::new(),
    };
    let entries = &material.tlog_entries;
    let timestamps = &material.timestamp_verification_data.rfc3161_timestamps;
    let mut checkpoints =
        entries.iter().filter_map(|entry| entry.inclusion_proof.as_ref()).map(|proof| &proof.checkpoint);
    let limits = [
        (certificates.len() > MOST_CERTIFICATES, "it has more than 5 certificates"),
        (certificates.iter().any(|one| one.len() > LONGEST_CERTIFICATE), "its certificate is longer than 8 KiB"),
        (
            certificates.iter().any(|one| narrow::check(one.as_bytes()).is_err()),
            "its certificate cannot be read, or has a set with more than 8 elements",
        ),
        (entries.len() > MOST_ENTRIES, "it has more than 4 entries of transparency logs"),
        (checkpoints.any(|one| one.envelope().len() > LONGEST_CHECKPOINT), "its checkpoint is longer than 16 KiB"),
        (timestamps.len() > MOST_TIMESTAMPS, "it has more than 4 timestamps"),
        (
            timestamps.iter().any(|one| one.signed_timestamp.len() > LONGEST_TIMESTAMP),
            "its timestamp is longer than 16 KiB",
        ),
    ];
    limits.into_iter().find(|(exceeded, _)| *exceeded).map(|(_, why)| why)
}
