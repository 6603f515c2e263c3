//! An OpenPGP certificate: a primary key, its subkeys, and the owner's self-signatures.
//!
//! Invariant: only self-signatures by the primary key with a strong hash are trusted. They bind subkeys, and define
//! usage and expiry.
//! Invariant: a revocation is permanent, whatever its time and reason.

use std::io::Read as _;
use std::sync::Arc;

use jiff::Timestamp;
use pgp::armor::Dearmor;
use pgp::composed::{Deserializable as _, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Packet, PacketParser, Signature, SignatureConfig, SignatureType, SubpacketData};
use pgp::ser::Serialize as _;
use pgp::types::{Fingerprint, KeyDetails, KeyVersion, PublicParams, Tag, VerifyingKey};

use super::fault::SignatureFault;
use super::validity::earlier;

/// Minimum bytes of a 2048 bit RSA key. Most of them are the modulus.
const RSA_BYTES: usize = 256;
/// First line of an armored certificate.
const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";

/// A trusted certificate. Contains all revocations of primary keys in the same file.
pub(super) struct Certificate(SignedPublicKey, Arc<[Signature]>);

/// Formats only the fingerprint.
impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name(&self.0))
    }
}

/// The owner's statements about a key.
struct Terms {
    may_sign: bool,
    expires: Option<Timestamp>,
}

/// Parses the certificates in armored form. The input may contain several blocks.
pub(super) fn from_text(text: &str) -> Result<Vec<Certificate>, String> {
    let mut all = Vec::new();
    for block in text.split(BEGIN).skip(1) {
        let block = format!("{BEGIN}{block}");
        let (read, _) = SignedPublicKey::from_string_many(&block).map_err(|_| unreadable(all.len()))?;
        let before = all.len();
        let mut bytes = Vec::new();
        Dearmor::new(block.as_bytes()).read_to_end(&mut bytes).map_err(|_| unreadable(before))?;
        add(&mut all, read, &bytes)?;
        if all.len() == before {
            return Err(format!(
                "the block after {before} OpenPGP keys holds no key; import a revocation certificate with `gpg --import`, and \
                 put what `gpg --export --armor` then writes"
            ));
        }
    }
    Ok(all)
}

/// Parses the certificates in a binary file.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<Vec<Certificate>, String> {
    let mut all = Vec::new();
    let read = SignedPublicKey::from_bytes_many(bytes).map_err(|_| unreadable(0))?;
    add(&mut all, read, bytes)?;
    if all.is_empty() { Err(unreadable(0)) } else { Ok(all) }
}

fn add(
    all: &mut Vec<Certificate>,
    read: impl Iterator<Item = pgp::errors::Result<SignedPublicKey>>,
    bytes: &[u8],
) -> Result<(), String> {
    // If a revocation was appended, it follows the last subkey, where the certificate parser skips it. Packets that
    // cannot be read are skipped, too; the packet parser stops at data that is not a packet.
    let revocations = PacketParser::new(bytes).filter_map(Result::ok).filter_map(|packet| match packet {
        Packet::Signature(signature) if signature.typ() == Some(SignatureType::KeyRevocation) => Some(signature),
        _ => None,
    });
    let revocations: Arc<[Signature]> = revocations.collect();
    for certificate in read {
        let certificate = certificate.map_err(|_| unreadable(all.len()))?;
        all.push(Certificate(certificate, Arc::clone(&revocations)));
    }
    Ok(())
}

fn unreadable(before: usize) -> String {
    format!("OpenPGP key {} cannot be read", before + 1)
}

impl Certificate {
    /// Returns the certificate of a key.
    pub(super) fn of(key: SignedPublicKey) -> Self {
        Self(key, Vec::new().into())
    }

    /// Returns the fingerprints of the keys that may sign now: subkeys from the newest to the oldest, then the primary
    /// key.
    ///
    /// # Errors
    /// No key may sign: a subkey has expired, or the fault of the primary key.
    pub(super) fn signing_keys(&self, now: Timestamp) -> Result<Vec<Fingerprint>, SignatureFault> {
        let (mut subkeys, mut expired) = (Vec::new(), None);
        for subkey in &self.0.public_subkeys {
            match self.judge_subkey(subkey, now, now) {
                Ok(_) => subkeys.push(&subkey.key),
                Err(fault @ SignatureFault::Expired { .. }) => expired = Some(fault),
                Err(_) => {}
            }
        }
        subkeys.sort_by_key(|key| std::cmp::Reverse(key.created_at().as_secs()));
        let mut keys: Vec<Fingerprint> = subkeys.into_iter().map(KeyDetails::fingerprint).collect();
        let primary = &self.0.primary_key;
        match self.terms_of_primary().and_then(|terms| valid(primary, &terms, now, now)) {
            Ok(_) => keys.push(primary.fingerprint()),
            Err(fault) if keys.is_empty() => return Err(expired.unwrap_or(fault)),
            Err(_) => {}
        }
        Ok(keys)
    }

    /// Verifies a signature by one of the certificate's keys. Returns the time until which the result is valid; `None`
    /// if no key made the signature.
    pub(super) fn judge(
        &self,
        signature: &Signature,
        payload: &[u8],
        made: Timestamp,
        now: Timestamp,
    ) -> Option<Result<Option<Timestamp>, SignatureFault>> {
        let primary = &self.0.primary_key;
        if is_by(signature, primary) {
            let until = self.terms_of_primary().and_then(|terms| valid(primary, &terms, made, now));
            return Some(until.and_then(|until| verify(signature, primary, payload).map(|()| until)));
        }
        let subkey = self.0.public_subkeys.iter().find(|subkey| is_by(signature, &subkey.key))?;
        let until = self.judge_subkey(subkey, made, now);
        Some(until.and_then(|until| verify(signature, &subkey.key, payload).map(|()| until)))
    }

    fn judge_subkey(
        &self,
        subkey: &SignedPublicSubKey,
        made: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, SignatureFault> {
        let primary = &self.0.primary_key;
        // A subkey expires with its primary key. The usage of the primary key does not matter.
        let terms = Terms { may_sign: true, ..self.terms_of_primary()? };
        let until = valid(primary, &terms, made, now)?;
        let key = || name(&subkey.key);
        let own = subkey.signatures.iter().filter(|sig| sig.verify_subkey_binding(primary, &subkey.key).is_ok());
        let own: Vec<_> = own.collect();
        if own.iter().any(|sig| sig.typ() == Some(SignatureType::SubkeyRevocation)) {
            return Err(SignatureFault::Revoked { key: key() });
        }
        let newest = newest(own.into_iter().filter(|sig| sig.typ() == Some(SignatureType::SubkeyBinding)));
        let why = "the binding signature of its primary key is missing, invalid or uses a weak hash";
        let not_bound = || SignatureFault::MayNotSign { key: key(), why };
        let binding = newest.ok_or_else(not_bound)?;
        let until = earlier(until, valid(&subkey.key, &terms_of(&subkey.key, &[binding]), made, now)?);
        // Otherwise, a primary key could adopt another owner's subkey.
        let back = binding.embedded_signature();
        let bound = back.is_some_and(|back| {
            back.hash_alg().is_some_and(is_strong) && back.verify_primary_key_binding(&subkey.key, primary).is_ok()
        });
        if bound {
            Ok(until)
        } else {
            let why = "its back signature, which confirms the primary key, is missing, invalid or uses a weak hash";
            Err(SignatureFault::MayNotSign { key: key(), why })
        }
    }

    /// Returns the terms in the newest self-signatures of the primary key.
    fn terms_of_primary(&self) -> Result<Terms, SignatureFault> {
        let (primary, details) = (&self.0.primary_key, &self.0.details);
        // A revocation is valid even with a weak hash, because an attacker gains nothing by forging one.
        if details.revocation_signatures.iter().chain(&*self.1).any(|sig| sig.verify_key(primary).is_ok()) {
            return Err(SignatureFault::Revoked { key: name(primary) });
        }
        let direct = details.direct_signatures.iter().filter(|sig| sig.verify_key(primary).is_ok());
        let users = details.users.iter().filter_map(|user| {
            let own = |sig: &&Signature| {
                is_by(sig, primary) && sig.verify_certification(primary, Tag::UserId, &user.id).is_ok()
            };
            let own: Vec<_> = user.signatures.iter().filter(own).collect();
            let revoked = own.iter().any(|sig| sig.typ() == Some(SignatureType::CertRevocation));
            if revoked { None } else { newest(own.into_iter()) }
        });
        // The direct signature takes precedence over the signature on a user id.
        let said: Vec<_> = [newest(direct), newest(users)].into_iter().flatten().collect();
        if said.is_empty() {
            let why = "it has no valid self-signature with a strong hash";
            return Err(SignatureFault::MayNotSign { key: name(primary), why });
        }
        Ok(terms_of(primary, &said))
    }
}

/// Returns the newest signature with a strong hash.
fn newest<'s>(signatures: impl Iterator<Item = &'s Signature>) -> Option<&'s Signature> {
    let strong = signatures.filter(|sig| sig.hash_alg().is_some_and(is_strong));
    strong.max_by_key(|sig| sig.created().map(pgp::types::Timestamp::as_secs))
}

/// Returns the terms of a key: each term from the first signature that states it. Old keys state no usage, and may do
/// everything.
fn terms_of(key: &impl KeyDetails, said: &[&Signature]) -> Terms {
    let speaks = |said: &&&Signature| {
        let mut parts = said.config().into_iter().flat_map(SignatureConfig::hashed_subpackets);
        parts.any(|part| matches!(part.data, SubpacketData::KeyFlags(_)))
    };
    let lasts = said.iter().find_map(|said| said.key_expiration_time());
    let lasts = lasts.map(|lasts| i64::from(lasts.as_secs())).filter(|lasts| *lasts > 0);
    let expires = lasts.and_then(|lasts| Timestamp::from_second(at(key.created_at()).as_second() + lasts).ok());
    Terms { may_sign: said.iter().find(speaks).is_none_or(|said| said.key_flags().sign()), expires }
}

/// Checks that a key may sign, both now and at the signature's stated time. Returns the time until which this is
/// valid.
fn valid(
    key: &impl KeyDetails,
    terms: &Terms,
    made: Timestamp,
    now: Timestamp,
) -> Result<Option<Timestamp>, SignatureFault> {
    let may_not = |why| SignatureFault::MayNotSign { key: name(key), why };
    if !matches!(key.version(), KeyVersion::V4 | KeyVersion::V6) {
        return Err(may_not("it uses an old version of OpenPGP"));
    }
    match key.public_params() {
        PublicParams::RSA(params) if params.write_len() < RSA_BYTES => {
            return Err(may_not("an RSA key must have at least 2048 bits"));
        }
        PublicParams::RSA(_)
        | PublicParams::ECDSA(_)
        | PublicParams::EdDSALegacy(_)
        | PublicParams::Ed25519(_)
        | PublicParams::Ed448(_) => {}
        _ => return Err(may_not("its algorithm is too weak, or is not for signing")),
    }
    if !terms.may_sign {
        return Err(may_not("it is not a signing key"));
    }
    if let Some(at) = terms.expires.filter(|at| *at < now || *at < made) {
        return Err(SignatureFault::Expired { key: name(key), at });
    }
    let created = at(key.created_at());
    if created > made {
        return Err(SignatureFault::NotYetValid { key: name(key), from: created });
    }
    Ok(terms.expires)
}

fn verify(signature: &Signature, key: &impl VerifyingKey, payload: &[u8]) -> Result<(), SignatureFault> {
    signature.verify(key, payload).map_err(|_| SignatureFault::Wrong { key: name(key) })
}

/// Returns whether this key is the issuer in a signature.
fn is_by(signature: &Signature, key: &impl KeyDetails) -> bool {
    let (fingerprint, id) = (key.fingerprint(), key.legacy_key_id());
    let fingerprints = signature.issuer_fingerprint();
    if fingerprints.is_empty() {
        return signature.issuer_key_id().contains(&&id);
    }
    fingerprints.contains(&&fingerprint)
}

fn name(key: &impl KeyDetails) -> String {
    format!("OpenPGP key {:X}", key.fingerprint())
}

/// Converts an OpenPGP time.
pub(super) fn at(time: pgp::types::Timestamp) -> Timestamp {
    Timestamp::from_second(i64::from(time.as_secs())).unwrap_or(Timestamp::MAX)
}

/// Returns whether a hash is strong enough for signatures.
pub(super) fn is_strong(hash: HashAlgorithm) -> bool {
    matches!(
        hash,
        HashAlgorithm::Sha256
            | HashAlgorithm::Sha384
            | HashAlgorithm::Sha512
            | HashAlgorithm::Sha3_256
            | HashAlgorithm::Sha3_512
    )
}
