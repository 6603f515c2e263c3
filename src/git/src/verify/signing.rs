//! Signs a new commit with the OpenPGP or SSH key of a Secret.
//!
//! Invariant: no message and no `Debug` shows a value of the Secret.
//! Invariant: a passphrase that does not open the key is tried once.
//! Invariant: the signature is that of `git commit --gpg-sign`: it covers the commit without the header `gpgsig`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use russh::keys::ssh_key::{HashAlg, LineEnding};

use super::allowed_signers::NAMESPACE;
use super::signing_fault::SigningFault;
use super::signing_key::{self, Unsigned};
use crate::ssh_fault::SshFault;
use crate::ssh_key::SshIdentity;
use mainstay_api::image_update_automation::SigningKeyType;
use mainstay_object::Secret;

/// Key of the Secret with the OpenPGP key, and that with its passphrase; these are the names of Flux.
const OPENPGP: &str = "git.asc";
const PASSPHRASE: &str = "passphrase";
/// Key of the Secret with the SSH key, for messages.
const SSH: &str = "identity";
/// Maximum length of an OpenPGP key, in bytes. A key with photos or many signatures is larger; its minimal export is not.
const LONGEST: usize = 64 << 10;
/// Maximum length of a passphrase, in bytes.
const LONGEST_PASSPHRASE: usize = 1 << 10;

/// A private key that signs commits.
pub struct CommitSigner {
    /// Name of the Secret, for messages.
    secret: String,
    key: Key,
    /// The fault of a wrong passphrase. Another attempt would take the same work and memory.
    locked: OnceLock<SigningFault>,
}

#[derive(PartialEq, Eq)]
enum Key {
    OpenPgp { text: Secret<String>, passphrase: Option<Secret<String>> },
    Ssh(SshIdentity),
}

impl CommitSigner {
    /// Reads the key in the `data` of a Secret. It must be able to sign at `now`.
    ///
    /// - OpenPGP: the armored private key in `git.asc`, its passphrase in `passphrase`
    /// - SSH: the private key in `identity` (or `ssh-privatekey` or `key`), its passphrase in `password`
    ///
    /// # Errors
    /// A key of the Secret is missing or cannot be used.
    pub fn read(
        secret: &str,
        kind: SigningKeyType,
        data: &BTreeMap<String, ByteString>,
        now: Timestamp,
    ) -> Result<Self, SigningFault> {
        let key = match kind {
            SigningKeyType::Gpg => openpgp(data, now),
            SigningKeyType::Ssh => SshIdentity::read(data).map(Key::Ssh).map_err(|fault| (SSH, fault.to_string())),
        };
        let unusable = |(key, why)| SigningFault { secret: secret.to_owned(), key, why };
        Ok(Self { secret: secret.to_owned(), key: key.map_err(unusable)?, locked: OnceLock::new() })
    }

    /// Whether the other one has the same key and passphrase, from a Secret with the same name.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.secret == other.secret && self.key == other.key
    }

    /// Returns the commit with a signature that was made at this time, in seconds since 1970. Blocks. It may need 32 MiB
    /// of memory, so only one caller runs at a time.
    pub(crate) fn signed(&self, commit: &str, seconds: i64) -> Result<String, SigningFault> {
        if let Some(fault) = self.locked.get() {
            return Err(fault.clone());
        }
        let now = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let signature = match &self.key {
            Key::OpenPgp { text, passphrase } => {
                let passphrase = passphrase.as_ref().map(|text| text.expose().as_str());
                let key = signing_key::read(text.expose()).map_err(|why| self.fault(OPENPGP, why))?;
                let signed = signing_key::sign(&key, passphrase, commit.as_bytes(), now);
                signed.map_err(|unsigned| match unsigned {
                    Unsigned::Locked => {
                        self.locked(OPENPGP, "the key cannot be opened with `passphrase` of the Secret".to_owned())
                    }
                    Unsigned::Unusable(why) => self.fault(OPENPGP, why),
                })?
            }
            Key::Ssh(identity) => {
                let key = identity.private_key().map_err(|fault| match fault {
                    SshFault::WrongPassphrase => self.locked(SSH, fault.to_string()),
                    fault => self.fault(SSH, fault.to_string()),
                })?;
                let signed = key.sign(NAMESPACE, HashAlg::Sha512, commit.as_bytes());
                let signed = signed.and_then(|signature| signature.to_pem(LineEnding::LF));
                signed.map_err(|_| self.fault(SSH, "it cannot sign; generate an ed25519 key".to_owned()))?
            }
        };
        let (headers, message) = commit.split_once("\n\n").unwrap_or((commit, ""));
        // A header continues on lines that begin with a space.
        let signature = signature.trim_end().replace('\n', "\n ");
        Ok(format!("{headers}\ngpgsig {signature}\n\n{message}"))
    }

    fn fault(&self, key: &'static str, why: String) -> SigningFault {
        SigningFault { secret: self.secret.clone(), key, why }
    }

    /// Records that the passphrase is wrong.
    fn locked(&self, key: &'static str, why: String) -> SigningFault {
        self.locked.get_or_init(|| self.fault(key, why)).clone()
    }
}

/// Formats no key.
impl fmt::Debug for CommitSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitSigner(Secret {})", self.secret)
    }
}

/// Reads an OpenPGP key with its passphrase.
fn openpgp(data: &BTreeMap<String, ByteString>, now: Timestamp) -> Result<Key, (&'static str, String)> {
    let read = |name: &'static str, longest: usize| match data.get(name) {
        None => Ok(None),
        Some(value) if value.0.len() > longest => Err((name, format!("it is longer than {longest} bytes"))),
        Some(value) => match std::str::from_utf8(&value.0) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned())),
            Err(_) => Err((name, "it is not UTF-8".to_owned())),
        },
    };
    let missing = || "it is missing; put what `gpg --export-secret-keys --armor KEY` writes there".to_owned();
    let text = read(OPENPGP, LONGEST)?.ok_or_else(|| (OPENPGP, missing()))?;
    let passphrase = read(PASSPHRASE, LONGEST_PASSPHRASE)?.filter(|text| !text.is_empty()).map(Secret::new);
    let key = signing_key::read(&text).map_err(|why| (OPENPGP, why))?;
    if signing_key::is_protected(&key, now).map_err(|why| (OPENPGP, why))? && passphrase.is_none() {
        return Err((PASSPHRASE, "it is missing, and the private key is protected with a passphrase".to_owned()));
    }
    Ok(Key::OpenPgp { text: Secret::new(text), passphrase })
}

#[cfg(test)]
mod tests {
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::{Cipher, Kdf};

    use super::super::signed_object;
    use super::super::signed_object::Signed;
    use super::super::signers::Signers;
    use super::super::ssh;
    use super::*;
    use crate::key_pair::key_pair;

    const COMMIT: &str = "tree 1\nparent 2\nauthor A <a> 7 +0000\ncommitter A <a> 7 +0000\n\nsubject\n\nbody\n";

    fn data(all: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        all.iter().map(|(name, value)| ((*name).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn a_commit_signed_with_an_ssh_key_is_verified_until_it_changes() {
        let pair = key_pair(&Secret::new([7; 32]), "signer").unwrap();
        let now = Timestamp::from_second(7).unwrap();
        let secret = data(&[("identity", pair.private.expose().as_str())]);
        let signer = CommitSigner::read("keys", SigningKeyType::Ssh, &secret, now).unwrap();
        let signed = signer.signed(COMMIT, 7).unwrap();
        let found = signed_object::commit(signed.as_bytes()).unwrap().unwrap();
        assert_eq!(found.payload, COMMIT.as_bytes());
        let keys = Signers::read("keys", [("a", pair.public.as_bytes())].into_iter()).unwrap();
        let text = String::from_utf8(found.signature.clone()).unwrap();
        assert_eq!(ssh::judge(&text, &found, &keys.ssh, now), Ok(None));
        let other = Signed { payload: COMMIT.replace("body", "other").into_bytes(), ..found };
        assert!(ssh::judge(&text, &other, &keys.ssh, now).is_err());
        assert!(!format!("{signer:?}").contains("BEGIN"));
    }

    #[test]
    fn a_wrong_passphrase_is_tried_once() {
        let pair = key_pair(&Secret::new([7; 32]), "signer").unwrap();
        let kdf = Kdf::Bcrypt { salt: vec![7; 16], rounds: 1 };
        let key = PrivateKey::from_openssh(pair.private.expose()).unwrap();
        let key = key.encrypt_with(Cipher::Aes256Ctr, kdf, 7, "canary-right").unwrap();
        let key = key.to_openssh(LineEnding::LF).unwrap().to_string();
        let signer = |passphrase: &str| {
            let secret = data(&[("identity", key.as_str()), ("password", passphrase)]);
            CommitSigner::read("keys", SigningKeyType::Ssh, &secret, Timestamp::UNIX_EPOCH).unwrap()
        };
        let wrong = signer("canary-wrong");
        assert!(wrong.locked.get().is_none());
        let said = wrong.signed(COMMIT, 7).unwrap_err();
        assert!(!said.to_string().contains("canary"), "{said}");
        assert_eq!(wrong.locked.get(), Some(&said));
        assert_eq!(wrong.signed(COMMIT, 8), Err(said));
        // The same key with another passphrase is another one.
        assert!(wrong.has_key_of(&signer("canary-wrong")) && !wrong.has_key_of(&signer("canary-right")));
        let right = signer("canary-right");
        assert!(right.signed(COMMIT, 7).is_ok() && right.locked.get().is_none());
    }

    #[test]
    fn a_secret_without_a_usable_key_is_named_with_the_key_and_without_a_value() {
        let long = "canary".repeat(20_000);
        let gpg = "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\ncanary\n";
        for (kind, secret, expected) in [
            (SigningKeyType::Gpg, data(&[]), "key git.asc of Secret keys: it is missing; put what"),
            (SigningKeyType::Gpg, data(&[("git.asc", "canary")]), "key git.asc of Secret keys: it must be an armored"),
            (SigningKeyType::Gpg, data(&[("git.asc", gpg)]), "key git.asc of Secret keys: it cannot be read"),
            (SigningKeyType::Gpg, data(&[("git.asc", long.as_str())]), "key git.asc of Secret keys: it is longer"),
            (SigningKeyType::Ssh, data(&[]), "key identity of Secret keys: missing field key"),
        ] {
            let said = CommitSigner::read("keys", kind, &secret, Timestamp::UNIX_EPOCH).unwrap_err().to_string();
            assert!(said.starts_with(expected) && !said.contains("canary"), "{said}");
        }
    }
}
