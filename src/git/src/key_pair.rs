//! New SSH key pairs, and the public half of a private key in a Secret.
//!
//! Invariant: the private half is never shown. The public half is one line without control characters.
//! Not here: randomness (the seed is an argument), and the storage of keys.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey};

use super::error::Error;
use super::known_hosts;
use super::ssh_key::{FIELDS, SshIdentity};
use mainstay_object::Secret;

/// Number of random bytes for an ed25519 key.
pub const SEED_BYTES: usize = 32;
/// Field of a Secret under which a new private key is stored.
pub const PRIVATE_FIELD: &str = FIELDS[0];
/// Field of a Secret under which the public half of a new key is stored.
pub const PUBLIC_FIELD: &str = "key.pub";

/// A new key pair.
#[derive(Debug)]
pub struct KeyPair {
    /// The private key in OpenSSH's format.
    pub private: Secret<String>,
    /// The public key as one line of `authorized_keys`, without a line break.
    pub public: String,
}

/// The public half of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicHalf {
    /// One line of `authorized_keys`, without a line break.
    pub line: String,
    /// `SHA256:…`, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
    /// Type and fingerprint, as messages show them.
    pub shown: String,
}

/// Returns the ed25519 key pair of these random bytes; `None` if the comment is not allowed in a key.
pub fn key_pair(seed: &Secret<[u8; SEED_BYTES]>, comment: &str) -> Option<KeyPair> {
    if comment.chars().any(char::is_control) {
        return None;
    }
    let key = PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(seed.expose())), comment).ok()?;
    let private = Secret::new(key.to_openssh(LineEnding::LF).ok()?.to_string());
    Some(KeyPair { private, public: key.public_key().to_openssh().ok()? })
}

/// Returns whether the data of a Secret has content in a private key field.
pub fn holds_key(data: &BTreeMap<String, ByteString>) -> bool {
    FIELDS.iter().any(|field| data.get(*field).is_some_and(|value| !value.0.is_empty()))
}

/// Returns the public half of the private key in the data of a Secret. `key.pub` is ignored. Decrypting a key takes
/// some tenths of a second.
pub fn public_half(data: &BTreeMap<String, ByteString>) -> Result<PublicHalf, Error> {
    let failed = |cause| Error::Authenticate { cause: std::sync::Arc::new(cause) };
    let key = SshIdentity::read(data).and_then(|identity| Ok(identity.private_key()?)).map_err(failed)?;
    let public = key.public_key();
    // Only the comment comes from the Secret; the rest was encoded here.
    let line = public.to_openssh().unwrap_or_default();
    Ok(PublicHalf {
        line: line.chars().filter(|c| !c.is_control()).collect(),
        fingerprint: public.fingerprint(HashAlg::Sha256).to_string(),
        shown: known_hosts::shown(public),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(fields: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        fields.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn a_new_key_is_read_back_by_its_own_reader_and_has_the_comment() {
        let made = key_pair(&Secret::new([7; SEED_BYTES]), "mainstay/flux/shop").unwrap();
        assert!(made.public.starts_with("ssh-ed25519 AAAA") && made.public.ends_with(" mainstay/flux/shop"));
        assert!(!format!("{made:?}").contains("PRIVATE KEY"));
        let kept = data(&[(PRIVATE_FIELD, made.private.expose()), (PUBLIC_FIELD, "ssh-ed25519 stale")]);
        let half = public_half(&kept).unwrap();
        assert_eq!(half.line, made.public);
        assert!(half.fingerprint.starts_with("SHA256:") && half.shown == format!("{} (ED25519)", half.fingerprint));
        let other = key_pair(&Secret::new([8; SEED_BYTES]), "mainstay/flux/shop").unwrap();
        assert_ne!(other.public, made.public);
        assert!(key_pair(&Secret::new([7; SEED_BYTES]), "two\nlines").is_none());
    }

    #[test]
    fn a_key_under_any_of_its_names_is_one_and_an_empty_field_is_none() {
        for field in ["key", "ssh-privatekey", "identity"] {
            assert!(holds_key(&data(&[(field, "x")])) && !holds_key(&data(&[(field, "")])));
        }
        assert!(!holds_key(&data(&[("known_hosts", "x"), ("key.pub", "x")])));
        let error = public_half(&data(&[])).unwrap_err();
        assert!(error.fault().to_string().starts_with("missing field key"), "{error}");
    }
}
