//! Verifies a signature of `ssh-keygen -Y sign -n git`.

use jiff::{SignedDuration, Timestamp};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::ssh_key::{Algorithm, HashAlg, PublicKey, SshSig};

use super::allowed_signers::{NAMESPACE, SshSigner};
use super::fault::SignatureFault;
use super::signed_object::Signed;

/// Minimum bits of an RSA key.
const RSA_BITS: usize = 2048;
/// Maximum time by which the clock of a signer may be ahead.
pub(super) const SKEW: SignedDuration = SignedDuration::from_mins(10);

/// Verifies the signature in `text`. Returns the time until which the result is valid.
pub(super) fn judge(
    text: &str,
    signed: &Signed,
    signers: &[SshSigner],
    now: Timestamp,
) -> Result<Option<Timestamp>, SignatureFault> {
    let unreadable = |why| SignatureFault::Unreadable { why };
    let signature = SshSig::from_pem(text).map_err(|_| unreadable("it is not an SSH signature by a plain key"))?;
    if signature.version() != SshSig::VERSION || !signature.reserved().is_empty() {
        return Err(unreadable("it uses a later version of the format"));
    }
    let key = PublicKey::from(signature.public_key().clone());
    let name = format!("SSH key {}", key.fingerprint(HashAlg::Sha256));
    if signature.namespace() != NAMESPACE {
        return Err(unreadable("it was made for a purpose other than Git (`ssh-keygen -Y sign -n git`)"));
    }
    if matches!(signature.algorithm(), Algorithm::Rsa { hash: None } | Algorithm::Dsa) {
        return Err(SignatureFault::Weak { key: name, what: "SHA-1".to_owned() });
    }
    if let KeyData::Rsa(rsa) = signature.public_key()
        && rsa.n().as_positive_bytes().is_none_or(|modulus| modulus.len() < RSA_BITS / 8)
    {
        return Err(SignatureFault::MayNotSign { key: name, why: "an RSA key must have at least 2048 bits" });
    }
    if key.verify(NAMESPACE, &signed.payload, &signature).is_err() {
        return Err(SignatureFault::Wrong { key: name });
    }
    let mut refused = SignatureFault::unknown(name.clone());
    for signer in signers.iter().filter(|signer| signer.key.key_data() == signature.public_key()) {
        let key = if signer.principals.is_empty() { name.clone() } else { format!("{name} ({})", signer.principals) };
        match may_sign(signer, key, signed.made, now) {
            // If this line expires, a later check tries another line for the same key.
            Ok(()) => return Ok(signer.valid_before),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}

/// Checks that the signer is valid now, and was valid at the object's own creation time. The first check prevents that
/// backdated objects are signed with a stolen key that has expired.
fn may_sign(signer: &SshSigner, key: String, made: Option<i64>, now: Timestamp) -> Result<(), SignatureFault> {
    if !signer.for_git {
        return Err(SignatureFault::MayNotSign { key, why: "its namespaces in the Secret do not include git" });
    }
    let made = made.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(now);
    if let Some(at) = signer.valid_before.filter(|at| *at < now || *at < made) {
        return Err(SignatureFault::Expired { key, at });
    }
    if let Some(from) = signer.valid_after.filter(|from| *from > now || *from > made) {
        return Err(SignatureFault::NotYetValid { key, from });
    }
    Ok(())
}
