//! Decrypts data that was encrypted to an OpenPGP public key, with the private keys.
//!
//! Not here: smart cards, and private keys with a passphrase, which cannot be entered.

use std::io::Read as _;

use pgp::composed::{DecryptionOptions, Deserializable as _, Message, SignedSecretKey, TheRing};
use pgp::types::{KeyDetails as _, Password};
use zeroize::Zeroizing;

use super::age::Miss;

/// First line of an armored private key.
const BEGIN: &str = "-----BEGIN PGP PRIVATE KEY BLOCK-----";
/// Maximum size of an encrypted data key with its recipients, in bytes.
const LONGEST: usize = 64 << 10;
/// Maximum size of the decrypted content, in bytes. A data key is much shorter.
const MOST: u64 = 1024;

/// A private key with its subkeys.
pub(super) struct PrivateKey(SignedSecretKey);

impl PrivateKey {
    /// Parses the private keys in a text, which may have several blocks.
    ///
    /// # Errors
    /// The error, as the end of a sentence.
    pub(super) fn all_in(text: &str) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for block in text.split(BEGIN).skip(1) {
            let block = Zeroizing::new(format!("{BEGIN}{block}"));
            let unreadable = |_| "cannot be read as a private key of OpenPGP".to_owned();
            let (keys, _) = SignedSecretKey::from_string_many(&block).map_err(unreadable)?;
            for key in keys {
                let key = key.map_err(unreadable)?;
                let is_protected = key.primary_key.secret_params().is_encrypted()
                    || key.secret_subkeys.iter().any(|subkey| subkey.secret_params().is_encrypted());
                if is_protected {
                    return Err("is protected with a passphrase, or lacks a part: take the passphrase off with `gpg \
                                --edit-key KEY passwd`, and export the key with `gpg --export-secret-keys --armor KEY`"
                        .to_owned());
                }
                all.push(Self(key));
            }
        }
        match all.is_empty() {
            false => Ok(all),
            true if text.contains("BEGIN PGP PUBLIC KEY") => Err(
                "is a public key, which cannot decrypt anything: `gpg --export-secret-keys --armor KEY` writes the \
                     private one"
                    .to_owned(),
            ),
            true => Err("holds no private key of OpenPGP".to_owned()),
        }
    }

    /// Returns whether the fingerprint of the key or of a subkey is this fingerprint, or ends with it.
    pub(super) fn is_named(&self, fingerprint: &str) -> bool {
        let subkeys = self.0.secret_subkeys.iter().map(|subkey| subkey.key.fingerprint());
        let mut all = std::iter::once(self.0.primary_key.fingerprint()).chain(subkeys);
        all.any(|own| fingerprint.len() >= 16 && format!("{own:X}").ends_with(&fingerprint.to_ascii_uppercase()))
    }
}

/// Decrypts an armored message with one of the keys.
pub(super) fn decrypt<'k>(
    text: &str,
    keys: impl Iterator<Item = &'k PrivateKey>,
    attempts: &mut u32,
) -> Result<Zeroizing<Vec<u8>>, Miss> {
    if text.len() > LONGEST {
        return Err(Miss::Damaged);
    }
    let keys: Vec<&SignedSecretKey> = keys.map(|key| &key.0).collect();
    let count = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    *attempts = attempts.checked_sub(count).ok_or(Miss::TooMany)?;
    let (message, _) = Message::from_string(text).map_err(|_| Miss::Damaged)?;
    if !message.is_encrypted() {
        return Err(Miss::Damaged);
    }
    let password = Password::empty();
    let ring = TheRing {
        key_passwords: vec![&password; keys.len()],
        secret_keys: keys,
        // GnuPG uses this mode for keys that it generated.
        decrypt_options: DecryptionOptions::new().enable_gnupg_aead(),
        ..TheRing::default()
    };
    let (mut message, _) = message.decrypt_the_ring(ring, true).map_err(|_| Miss::NoKey)?;
    if message.is_compressed() {
        message = message.decompress().map_err(|_| Miss::Damaged)?;
    }
    let mut content = Zeroizing::new(Vec::new());
    message.take(MOST).read_to_end(&mut content).map_err(|_| Miss::Damaged)?;
    Ok(content)
}
