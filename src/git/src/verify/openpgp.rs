//! Verifies a detached OpenPGP signature.

use jiff::Timestamp;
use pgp::composed::{Deserializable as _, DetachedSignature};
use pgp::packet::{Signature, SignatureConfig, SignatureType, SignatureVersion, SubpacketData};
use pgp::types::Fingerprint;

use super::certificate::{Certificate, at, is_strong};
use super::fault::SignatureFault;
use super::ssh::SKEW;
use super::validity::earlier;

/// Verifies the signature in `text` over the payload. Returns the time until which the result is valid.
pub(super) fn judge(
    text: &str,
    payload: &[u8],
    certificates: &[Certificate],
    now: Timestamp,
) -> Result<Option<Timestamp>, SignatureFault> {
    judge_signature(&read(text)?, SignatureType::Binary, payload, certificates, now)
}

/// Verifies a signature of this type over the payload. Returns the time until which the result is valid.
pub(super) fn judge_signature(
    signature: &Signature,
    kind: SignatureType,
    payload: &[u8],
    certificates: &[Certificate],
    now: Timestamp,
) -> Result<Option<Timestamp>, SignatureFault> {
    let unreadable = |why| SignatureFault::Unreadable { why };
    if !matches!(signature.version(), SignatureVersion::V4 | SignatureVersion::V6) {
        return Err(unreadable("it uses an old version of OpenPGP"));
    }
    if signature.typ() != Some(kind) {
        return Err(unreadable("it is not the signature of a document"));
    }
    let name = issuer(signature).ok_or_else(|| unreadable("it does not name the key that made it"))?;
    let hash = signature.hash_alg();
    if !hash.is_some_and(is_strong) {
        let what = hash.map_or_else(|| "a hash that is not known".to_owned(), |hash| hash.to_string());
        return Err(SignatureFault::Weak { key: name, what });
    }
    if has_unknown_critical(signature) {
        return Err(unreadable("it has a critical part that is not known"));
    }
    let made = signature.created().map(at).ok_or_else(|| unreadable("it does not say when it was made"))?;
    if made > now.saturating_add(SKEW).unwrap_or(now) {
        return Err(unreadable("it was made in the future"));
    }
    let mut until = None;
    if let Some(lasts) = signature.signature_expiration_time().filter(|lasts| lasts.as_secs() > 0) {
        let end = made.as_second().saturating_add(i64::from(lasts.as_secs()));
        let end = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        if end < now {
            return Err(SignatureFault::Expired { key: name, at: end });
        }
        until = Some(end);
    }
    let mut judgement = Err(SignatureFault::unknown(name));
    for certificate in certificates {
        match certificate.judge(signature, payload, made, now) {
            None => {}
            // If one copy of the certificate contains a revocation, it applies even if an older copy lacks it.
            Some(revoked @ Err(SignatureFault::Revoked { .. })) => return revoked,
            // The result of the copy with the later expiry is used.
            Some(Ok(end)) => {
                judgement = Ok(match judgement {
                    Ok(Some(known)) => end.map(|end| end.max(known)),
                    Ok(None) => None,
                    Err(_) => end,
                });
            }
            Some(refused) => judgement = judgement.or(refused),
        }
    }
    judgement.map(|end| earlier(end, until))
}

/// Parses the only packet of the signature.
fn read(text: &str) -> Result<Signature, SignatureFault> {
    let unreadable = |why| SignatureFault::Unreadable { why };
    let (mut packets, _) =
        DetachedSignature::from_string_many(text).map_err(|_| unreadable("it is not an OpenPGP signature"))?;
    let first = packets.next().and_then(Result::ok).ok_or_else(|| unreadable("it is not an OpenPGP signature"))?;
    if packets.next().is_some() {
        return Err(unreadable("it has more than one packet"));
    }
    Ok(first.signature)
}

/// Returns the key that a signature states as its issuer.
fn issuer(signature: &Signature) -> Option<String> {
    let shown = |fingerprint: &&Fingerprint| format!("OpenPGP key {fingerprint:X}");
    let by_fingerprint = signature.issuer_fingerprint().first().map(shown);
    by_fingerprint
        .or_else(|| signature.issuer_key_id().first().map(|id| format!("OpenPGP key {}", hex::encode_upper(id))))
}

/// Returns whether the signature has a critical subpacket that is not supported.
fn has_unknown_critical(signature: &Signature) -> bool {
    let parts = signature.config().into_iter().flat_map(SignatureConfig::hashed_subpackets);
    parts.filter(|part| part.is_critical).any(|part| {
        matches!(part.data, SubpacketData::Other(..) | SubpacketData::Experimental(..) | SubpacketData::Notation(_))
    })
}
