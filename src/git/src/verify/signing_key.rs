//! Makes a detached OpenPGP signature with a private key.
//!
//! The newest subkey for signing is used, or else the primary key. Smart cards are not supported.
//!
//! Invariant: time and memory to open a key are bounded.

use jiff::Timestamp;
use pgp::composed::{ArmorOptions, Deserializable as _, DetachedSignature, SignedSecretKey};
use pgp::errors::Result as PgpResult;
use pgp::packet::{Signature, SignatureConfig, SignatureType, Subpacket, SubpacketData};
use pgp::types::{KeyDetails as _, KeyVersion, Password, S2kParams, SecretParams, SigningKey, StringToKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::certificate::Certificate;
use super::fault::SignatureFault;
use super::openpgp;

/// First line of an armored private key.
const BEGIN: &str = "-----BEGIN PGP PRIVATE KEY BLOCK-----";
/// Maximum memory to open a key with Argon2, as an exponent of KiB: 32 MiB.
const ARGON2_MEMORY: u8 = 15;
/// Maximum passes and lanes of Argon2.
const ARGON2_WORK: u8 = 8;
/// Length of the salt of a signature if the hash states none, in bytes.
const SALT: usize = 32;

const EXPORT: &str = "put what `gpg --export-secret-keys --armor KEY` writes there";

/// Returns the only private key in a text.
///
/// # Errors
/// The violated rule, without any part of the text.
pub(super) fn read(text: &str) -> Result<SignedSecretKey, String> {
    let Some(at) = text.find(BEGIN) else {
        let what = if text.contains("BEGIN PGP PUBLIC KEY") {
            "it is a public key"
        } else {
            "it must be an armored private key"
        };
        return Err(format!("{what}; {EXPORT}"));
    };
    let unreadable = || format!("it cannot be read as a private key of OpenPGP; {EXPORT}");
    let (keys, _) = SignedSecretKey::from_string_many(&text[at..]).map_err(|_| unreadable())?;
    let mut keys = keys.collect::<PgpResult<Vec<_>>>().map_err(|_| unreadable())?;
    match (keys.pop(), keys.is_empty() && text.matches(BEGIN).count() == 1) {
        (Some(key), true) => Ok(key),
        (Some(_), false) => Err(format!("it holds several keys; {EXPORT}, for one key")),
        (None, _) => Err(unreadable()),
    }
}

/// Returns whether the key that signs is protected with a passphrase.
///
/// # Errors
/// No key in it can sign now.
pub(super) fn is_protected(key: &SignedSecretKey, now: Timestamp) -> Result<bool, String> {
    chosen(key, now).map(|(_, is_protected)| is_protected)
}

/// Why a key makes no signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// The passphrase does not open the key.
    Locked,
    /// The key may not sign, or its signature would not be accepted.
    Unusable(String),
}

impl From<String> for Unsigned {
    fn from(why: String) -> Self {
        Self::Unusable(why)
    }
}

/// Returns an armored signature over the payload.
///
/// # Errors
/// No key in it can sign, or the passphrase is wrong.
pub(super) fn sign(
    key: &SignedSecretKey,
    passphrase: Option<&str>,
    payload: &[u8],
    now: Timestamp,
) -> Result<String, Unsigned> {
    let password = passphrase.map_or_else(Password::empty, Password::from);
    let (signing, is_protected) = chosen(key, now)?;
    let signature = match signing {
        Chosen::Primary => made(&key.primary_key, &password, payload, now),
        Chosen::Subkey(at) => made(&key.secret_subkeys[at].key, &password, payload, now),
    };
    let failed = |_| if is_protected { Unsigned::Locked } else { Unsigned::Unusable("it cannot sign".to_owned()) };
    let armored = signature
        .and_then(|signature| DetachedSignature::new(signature).to_armored_string(ArmorOptions::default()))
        .map_err(failed)?;
    // A signature that no verification accepts would be found only after the push.
    openpgp::judge(&armored, payload, &[Certificate::of(key.to_public_key())], now).map_err(why)?;
    Ok(armored)
}

/// The key that signs.
enum Chosen {
    Primary,
    /// The index of the subkey.
    Subkey(usize),
}

/// Returns the key that signs, and whether it is protected with a passphrase.
fn chosen(key: &SignedSecretKey, now: Timestamp) -> Result<(Chosen, bool), String> {
    let mut refused = None;
    for fingerprint in Certificate::of(key.to_public_key()).signing_keys(now).map_err(why)? {
        let (chosen, parameters) = if key.primary_key.fingerprint() == fingerprint {
            (Chosen::Primary, key.primary_key.secret_params())
        } else {
            let mut subkeys = key.secret_subkeys.iter().enumerate();
            let Some((at, subkey)) = subkeys.find(|(_, subkey)| subkey.key.fingerprint() == fingerprint) else {
                continue;
            };
            (Chosen::Subkey(at), subkey.key.secret_params())
        };
        match needs_passphrase(parameters) {
            Ok(is_protected) => return Ok((chosen, is_protected)),
            Err(why) => refused = Some(why),
        }
    }
    Err(refused.unwrap_or(NO_PRIVATE_PART).to_owned())
}

const NO_PRIVATE_PART: &str = "the private part of the key that signs is missing; export it without a smart card";

fn needs_passphrase(parameters: &SecretParams) -> Result<bool, &'static str> {
    let SecretParams::Encrypted(encrypted) = parameters else { return Ok(false) };
    let (S2kParams::Aead { s2k, .. } | S2kParams::Cfb { s2k, .. } | S2kParams::MalleableCfb { s2k, .. }) =
        encrypted.string_to_key_params()
    else {
        return Ok(true);
    };
    match s2k {
        StringToKey::Argon2 { t, p, m_enc, .. } if *m_enc > ARGON2_MEMORY || *t > ARGON2_WORK || *p > ARGON2_WORK => {
            Err("its passphrase takes too much work or memory to open; set it again with `gpg --edit-key KEY passwd`")
        }
        // GnuPG writes a private type for keys without their private part.
        StringToKey::Reserved { .. } | StringToKey::Private { .. } | StringToKey::Other { .. } => Err(NO_PRIVATE_PART),
        _ => Ok(true),
    }
}

fn made(key: &impl SigningKey, password: &Password, payload: &[u8], now: Timestamp) -> PgpResult<Signature> {
    let hash = key.hash_alg();
    let mut config = if key.version() == KeyVersion::V6 {
        let mut salt = vec![0; hash.salt_len().unwrap_or(SALT)];
        if SystemRandom::new().fill(&mut salt).is_err() {
            return Err(std::io::Error::other("the system provides no random numbers").into());
        }
        SignatureConfig::v6_with_salt(SignatureType::Binary, key.algorithm(), hash, salt)
    } else {
        let issuer = SubpacketData::IssuerKeyId(key.legacy_key_id());
        let mut config = SignatureConfig::v4(SignatureType::Binary, key.algorithm(), hash);
        config.unhashed_subpackets = vec![Subpacket::regular(issuer)?];
        config
    };
    let seconds = u32::try_from(now.as_second()).unwrap_or_default();
    let time = SubpacketData::SignatureCreationTime(pgp::types::Timestamp::from_secs(seconds));
    let issuer = SubpacketData::IssuerFingerprint(key.fingerprint());
    config.hashed_subpackets = vec![Subpacket::regular(time)?, Subpacket::regular(issuer)?];
    config.sign(key, password, payload)
}

/// Returns why a key may not sign.
fn why(fault: SignatureFault) -> String {
    match fault {
        SignatureFault::Expired { key, at } => format!("{key} expired at {at}; extend it, or use another key"),
        SignatureFault::Revoked { key } => format!("{key} is revoked; use another key"),
        SignatureFault::MayNotSign { key, why } => format!("{key} may not sign: {why}"),
        SignatureFault::NotYetValid { key, from } => format!("{key} is valid from {from} only"),
        _ => "its signature is not usable; use another key".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use pgp::crypto::sym::SymmetricKeyAlgorithm;
    use pgp::types::EncryptedSecretParams;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_that_takes_too_much_memory_to_open_is_refused() {
        let opened = |passes, lanes, memory| {
            let s2k = StringToKey::Argon2 { salt: [7; 16], t: passes, p: lanes, m_enc: memory };
            let parameters = S2kParams::Cfb { sym_alg: SymmetricKeyAlgorithm::AES256, s2k, iv: vec![0_u8; 16].into() };
            let encrypted = EncryptedSecretParams::new(vec![0_u8; 64].into(), parameters);
            needs_passphrase(&SecretParams::Encrypted(encrypted))
        };
        assert_eq!(opened(3, 4, 15), Ok(true));
        for (passes, lanes, memory) in [(3, 4, 16), (9, 4, 15), (3, 9, 15)] {
            let said = opened(passes, lanes, memory).unwrap_err();
            assert!(said.starts_with("its passphrase takes too much work or memory"), "{said}");
        }
    }

    #[test]
    fn a_text_without_one_private_key_is_refused_without_its_content() {
        let public = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\ncanary\n";
        for (text, expected) in [
            (String::new(), "it must be an armored private key"),
            (public.to_owned(), "it is a public key"),
            (format!("{BEGIN}\n\ncanary\n-----END PGP PRIVATE KEY BLOCK-----\n"), "it cannot be read"),
        ] {
            let said = read(&text).unwrap_err();
            assert!(said.starts_with(expected) && !said.contains("canary"), "{said}");
        }
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text: String, body in "[A-Za-z0-9+/=\n]{0,200}") {
            let _ = read(&text);
            let _ = read(&format!("{BEGIN}\n\n{body}\n-----END PGP PRIVATE KEY BLOCK-----\n"));
        }
    }
}
