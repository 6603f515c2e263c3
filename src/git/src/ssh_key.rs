//! SSH keys: turns the `data` of a Secret into an [`SshIdentity`], and the key in it into a private key.
//!
//! Supported formats are those of `ssh-keygen` and `openssl`: OpenSSH, PKCS#1 and SEC1 ("PEM"), and PKCS#8. OpenSSH
//! and PKCS#8 keys can be encrypted.
//!
//! Invariant: no error and no `Debug` shows any part of the key or the passphrase.
//! Invariant: the cost of decrypting a key is bounded.
//! Invariant: the checked bytes are exactly the parsed bytes: those of the only block in the key, selected by its
//! label.

use std::collections::BTreeMap;

use ::pkcs8::EncryptedPrivateKeyInfoOwned;
use ::pkcs8::der::Decode as _;
use k8s_openapi::ByteString;
use russh::keys::ssh_key::Kdf;
use russh::keys::{self, Algorithm, Encryption, PrivateKey, pkcs8};

use super::error::Fault;
use super::known_hosts;
use super::pem::{Block, NoBlock};
use super::pinning::Pinning;
use super::ssh_fault::SshFault;
use mainstay_object::Secret;

/// Fields of a Secret for the private key, in order of preference: Kyma's name, Kubernetes' name in
/// `kubernetes.io/ssh-auth`, and Flux's name.
pub(super) const FIELDS: [&str; 3] = ["key", "ssh-privatekey", "identity"];
/// Field for the passphrase of an encrypted key.
const PASSPHRASE: &str = "password";
/// Field for the host keys.
const KNOWN_HOSTS: &str = "known_hosts";
/// The fields of a Secret that are read.
pub(super) const KEY_FIELDS: [&str; 5] = [FIELDS[0], FIELDS[1], FIELDS[2], PASSPHRASE, KNOWN_HOSTS];

/// Maximum bcrypt rounds of a key. `ssh-keygen` writes 16 or 24.
const BCRYPT_ROUNDS: u32 = 512;
/// Maximum PBKDF2 rounds of a key. `openssl` writes 2048.
const PBKDF2_ROUNDS: u32 = 2_000_000;
/// Maximum scrypt memory of a key, in bytes. `openssl` needs 16 MiB.
const SCRYPT_BYTES: u64 = 32 << 20;
/// Allowed sizes of an RSA key, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Maximum length of a private key's text, in bytes. An RSA key of 8192 bits has about 7000.
const MAX_BYTES: usize = 16 << 10;

/// A key with its passphrase and host keys.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SshIdentity {
    /// The field of the Secret that contains the key.
    pub(super) field: &'static str,
    pub(super) key: Secret<String>,
    pub(super) passphrase: Option<Secret<String>>,
    /// The Secret's `known_hosts`, if there is one.
    pub(super) known_hosts: Option<String>,
    /// The pinning, if the repository pins host keys.
    pub(super) pinning: Option<Pinning>,
}

impl SshIdentity {
    /// Reads the data of a Secret.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Fault> {
        let found = FIELDS.into_iter().find_map(|field| Some((field, data.get(field)?)));
        let (field, key) = found.ok_or(SshFault::MissingPrivateKey)?;
        if key.0.len() > MAX_BYTES {
            return Err(SshFault::Unreadable { field, why: "it is longer than a key can be" }.into());
        }
        let key = std::str::from_utf8(&key.0).map_err(|_| SshFault::Unreadable { field, why: NO_KEY })?;
        let passphrase = data.get(PASSPHRASE).map(|value| String::from_utf8_lossy(&value.0).into_owned());
        // One trailing line break, which `echo` adds, is not part of the passphrase.
        let passphrase = passphrase.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        if data.get(KNOWN_HOSTS).is_some_and(|text| text.0.len() > known_hosts::MAX_BYTES) {
            return Err(SshFault::KnownHostsTooLong.into());
        }
        let known_hosts = data.get(KNOWN_HOSTS).map(|value| String::from_utf8_lossy(&value.0).into_owned());
        Ok(Self {
            field,
            key: Secret::new(key.to_owned()),
            passphrase: passphrase.filter(|text| !text.is_empty()).map(Secret::new),
            known_hosts: known_hosts.filter(|text| !text.trim().is_empty()),
            pinning: None,
        })
    }

    /// Returns the pinning if the Secret's host keys supersede it.
    pub(super) fn superseded(&self) -> Option<&Pinning> {
        self.pinning.as_ref().filter(|_| self.known_hosts.is_some())
    }

    /// Returns the parts that distinguish identities.
    pub(super) fn parts(&self) -> Vec<&str> {
        let passphrase = self.passphrase.as_ref().map(|text| text.expose().as_str()).unwrap_or_default();
        let mut parts = vec![self.key.expose().as_str(), passphrase, self.known_hosts.as_deref().unwrap_or_default()];
        parts.extend(self.pinning.iter().flat_map(Pinning::parts));
        parts
    }

    /// Parses the private key. Decrypting one takes some tenths of a second.
    pub(super) fn private_key(&self) -> Result<PrivateKey, SshFault> {
        let key = decode(self.key.expose(), self.passphrase.as_ref().map(|text| text.expose().as_str()));
        let key = key.map_err(|problem| match problem {
            Problem::Unreadable(why) => SshFault::Unreadable { field: self.field, why },
            Problem::MissingPassphrase => SshFault::MissingPassphrase,
            Problem::WrongPassphrase => SshFault::WrongPassphrase,
        })?;
        let unreadable = |why| Err(SshFault::Unreadable { field: self.field, why });
        match key.algorithm() {
            Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(key),
            Algorithm::Rsa { .. } if RSA_BITS.contains(&bits(&key)) => Ok(key),
            Algorithm::Rsa { .. } => unreadable("an RSA key must have 2048 to 8192 bits; generate an ed25519 key"),
            _ => unreadable("the key must have the type ed25519, ECDSA or RSA; generate an ed25519 key"),
        }
    }
}

const NO_KEY: &str = "it must be a private key in OpenSSH, PEM or PKCS#8 format (which begins with `-----BEGIN`)";
const DAMAGED: &str = "it is damaged; copy the whole file, with its first and last line";
const CONVERT: &str = "it is encrypted in a form that is not read; `ssh-keygen -p -f FILE` writes it again";

const NOT_ALONE: &str =
    "there is text before its first line or after its last one; keep only the part from `-----BEGIN` to `-----END`";
const PUBLIC: &str = "it is the public key; the private key is in the file without `.pub`";
const PUTTY: &str = "it is in PuTTY's form; export it as an OpenSSH key";

#[derive(Debug)]
enum Problem {
    Unreadable(&'static str),
    MissingPassphrase,
    WrongPassphrase,
}

fn bits(key: &PrivateKey) -> usize {
    let modulus = key.public_key().key_data().rsa().map(|rsa| rsa.n().as_positive_bytes().map_or(0, <[u8]>::len));
    modulus.unwrap_or(0) * 8
}

fn decode(text: &str, passphrase: Option<&str>) -> Result<PrivateKey, Problem> {
    let damaged = Problem::Unreadable(DAMAGED);
    let start = text.trim_start();
    if start.starts_with("PuTTY") {
        return Err(Problem::Unreadable(PUTTY));
    }
    let block = Block::read(text).map_err(|problem| match problem {
        NoBlock::Absent if start.starts_with("ssh-") || start.starts_with("ecdsa-") => Problem::Unreadable(PUBLIC),
        NoBlock::Absent => Problem::Unreadable(NO_KEY),
        NoBlock::NotAlone => Problem::Unreadable(NOT_ALONE),
        NoBlock::Damaged => Problem::Unreadable(DAMAGED),
    })?;
    // From here on, only the bytes of the block are parsed, each format by its own parser.
    match (block.label, &*block.headers) {
        ("OPENSSH PRIVATE KEY", []) => {
            let key = PrivateKey::from_bytes(&block.der).map_err(|_| damaged)?;
            if !key.is_encrypted() {
                return Ok(key);
            }
            if matches!(key.kdf(), Kdf::Bcrypt { rounds, .. } if *rounds > BCRYPT_ROUNDS) {
                return Err(Problem::Unreadable(
                    "its passphrase takes too many rounds (ssh-keygen -a); at most 512 are done",
                ));
            }
            key.decrypt(passphrase.ok_or(Problem::MissingPassphrase)?).map_err(|_| Problem::WrongPassphrase)
        }
        // `ssh-keygen -m PEM` writes this format. Its key derivation is one round of MD5, which needs no limit.
        ("RSA PRIVATE KEY", [("Proc-Type", "4,ENCRYPTED"), ("DEK-Info", info)]) => {
            let vector = info.strip_prefix("AES-128-CBC,").and_then(vector).ok_or(Problem::Unreadable(CONVERT))?;
            let passphrase = passphrase.ok_or(Problem::MissingPassphrase)?;
            let key = keys::decode_pkcs5(&block.der, Some(passphrase), Encryption::Aes128Cbc(vector));
            key.map_err(|_| Problem::WrongPassphrase)
        }
        ("RSA PRIVATE KEY" | "EC PRIVATE KEY", [("Proc-Type", _), ..]) => Err(Problem::Unreadable(CONVERT)),
        ("RSA PRIVATE KEY", []) => keys::decode_secret_key(&block.bare(), None).map_err(|_| damaged),
        ("EC PRIVATE KEY" | "PRIVATE KEY", []) => pkcs8::decode_pkcs8(&block.der, None).map_err(|_| damaged),
        ("ENCRYPTED PRIVATE KEY", []) => {
            check_work(&block.der)?;
            let passphrase = passphrase.ok_or(Problem::MissingPassphrase)?;
            pkcs8::decode_pkcs8(&block.der, Some(passphrase.as_bytes())).map_err(|_| Problem::WrongPassphrase)
        }
        (label, _) if label.ends_with("PRIVATE KEY") => Err(damaged),
        _ => Err(Problem::Unreadable(NO_KEY)),
    }
}

/// Parses an initialisation vector of 32 hexadecimal digits.
fn vector(text: &str) -> Option<[u8; 16]> {
    hex::decode(text).ok()?.try_into().ok()
}

/// Refuses a PKCS#8 key whose key derivation needs too much work or memory, or none.
fn check_work(der: &[u8]) -> Result<(), Problem> {
    let info = EncryptedPrivateKeyInfoOwned::from_der(der).map_err(|_| Problem::Unreadable(CONVERT))?;
    let kdf = &info.encryption_algorithm.pbes2().ok_or(Problem::Unreadable(CONVERT))?.kdf;
    let (is_one, fits) = match (kdf.pbkdf2(), kdf.scrypt()) {
        (Some(pbkdf2), _) => (pbkdf2.iteration_count > 0, pbkdf2.iteration_count <= PBKDF2_ROUNDS),
        (_, Some(scrypt)) => {
            let (cost, block, lanes) = (scrypt.cost_parameter, scrypt.block_size, scrypt.parallelization);
            let memory = cost.saturating_mul(u64::from(block)).saturating_mul(128);
            let is_one = cost >= 2 && cost.is_power_of_two() && block > 0 && lanes > 0;
            (is_one, memory <= SCRYPT_BYTES && lanes <= 4)
        }
        _ => return Err(Problem::Unreadable(CONVERT)),
    };
    match (is_one, fits) {
        (false, _) => Err(Problem::Unreadable(DAMAGED)),
        (true, false) => Err(Problem::Unreadable("its encryption takes too much work or memory to open")),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use proptest::prelude::*;

    use super::super::key_pair::key_pair;
    use super::*;

    fn open(key: &[u8]) -> Result<PrivateKey, String> {
        let data = BTreeMap::from([
            ("key".to_owned(), ByteString(key.to_vec())),
            ("password".to_owned(), ByteString(b"canary-81723".to_vec())),
        ]);
        let identity = SshIdentity::read(&data).map_err(|fault| fault.to_string())?;
        identity.private_key().map_err(|fault| fault.to_string())
    }

    proptest! {
        #[test]
        fn opens_any_bytes_without_panic(der: Vec<u8>, label in "(OPENSSH |RSA |EC |ENCRYPTED )?PRIVATE KEY", text: Vec<u8>) {
            let body = BASE64_STANDARD.encode(&der);
            let block = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
            for key in [block.as_bytes(), &text] {
                prop_assert!(open(key).is_err_and(|said| !said.contains("canary-81723")));
            }
        }

        #[test]
        fn opens_a_damaged_key_without_panic(at in 0usize..500, with: u8, cut in 0usize..500) {
            let key = key_pair(&Secret::new([7; 32]), "damaged").unwrap().private;
            prop_assert!(open(key.expose().as_bytes()).is_ok());
            let mut damaged = key.expose().clone().into_bytes();
            if let Some(byte) = damaged.get_mut(at) {
                *byte = with;
            }
            let _ = open(&damaged);
            damaged.truncate(cut);
            let _ = open(&damaged);
        }
    }
}
