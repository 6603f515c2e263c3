//! The key of an SSH repository: the `data` of a Secret becomes an [`SshIdentity`], and its text a private key.
//!
//! A key is read in the forms that `ssh-keygen` and `openssl` write: OpenSSH's own, PKCS#1 and SEC1 ("PEM"), and PKCS#8;
//! the first and the last with a passphrase, too.
//!
//! Invariant: no error and no `Debug` shows anything of the key or the passphrase.
//! Invariant: reading a key costs little, whatever work its encryption asks for: too much of it is refused.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use pkcs8::EncryptedPrivateKeyInfoOwned;
use pkcs8::der::Decode as _;
use russh::keys::ssh_key::Kdf;
use russh::keys::{self, Algorithm, PrivateKey};

use super::error::Fault;
use super::ssh_fault::SshFault;
use crate::object::Secret;

/// Where people keep the private key in a Secret, in the order in which it is looked for: the seeds' name, Kubernetes'
/// own for `kubernetes.io/ssh-auth`, and Flux's.
const FIELDS: [&str; 3] = ["key", "ssh-privatekey", "identity"];
/// The passphrase of an encrypted key.
const PASSPHRASE: &str = "password";
/// The keys of hosts.
const KNOWN_HOSTS: &str = "known_hosts";
/// All keys of a Secret that are looked at.
pub const KEY_FIELDS: [&str; 5] = [FIELDS[0], FIELDS[1], FIELDS[2], PASSPHRASE, KNOWN_HOSTS];

/// Rounds of bcrypt that a key may ask for; `ssh-keygen` writes 16 or 24.
const BCRYPT_ROUNDS: u32 = 512;
/// Rounds of PBKDF2 that a key may ask for; `openssl` writes 2048.
const PBKDF2_ROUNDS: u32 = 2_000_000;
/// Bytes of memory that a key may ask scrypt for; `openssl` writes 16 MiB.
const SCRYPT_BYTES: u64 = 32 << 20;
/// Bits that an RSA key may have.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Bytes of a private key.
const LONGEST: usize = 64 << 10;

/// A key and what belongs to it, as a Secret has them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SshIdentity {
    /// Which field of the Secret the key is from.
    pub(super) field: &'static str,
    pub(super) key: Secret<String>,
    pub(super) passphrase: Option<Secret<String>>,
    /// What the Secret says of hosts' keys, if anything.
    pub(super) known_hosts: Option<String>,
}

impl SshIdentity {
    /// Reads the data of a Secret.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Fault> {
        let found = FIELDS.into_iter().find_map(|field| Some((field, data.get(field)?)));
        let (field, key) = found.ok_or(SshFault::MissingPrivateKey)?;
        if key.0.len() > LONGEST {
            return Err(SshFault::Unreadable { field, why: "it is longer than a key can be" }.into());
        }
        let key = std::str::from_utf8(&key.0).map_err(|_| SshFault::Unreadable { field, why: NO_KEY })?;
        let passphrase = data.get(PASSPHRASE).map(|value| String::from_utf8_lossy(&value.0).into_owned());
        // One trailing line break, which `echo` leaves, is not part of it.
        let passphrase = passphrase.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
        let known_hosts = data.get(KNOWN_HOSTS).map(|value| String::from_utf8_lossy(&value.0).into_owned());
        Ok(Self {
            field,
            key: Secret::new(key.to_owned()),
            passphrase: passphrase.filter(|text| !text.is_empty()).map(Secret::new),
            known_hosts: known_hosts.filter(|text| !text.trim().is_empty()),
        })
    }

    /// All that makes two of them different ones.
    pub(super) fn parts(&self) -> [&str; 3] {
        let passphrase = self.passphrase.as_ref().map(|text| text.expose().as_str()).unwrap_or_default();
        [self.key.expose(), passphrase, self.known_hosts.as_deref().unwrap_or_default()]
    }

    /// The private key itself. An encrypted one takes some tenths of a second.
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
            Algorithm::Rsa { .. } => unreadable("an RSA key has 2048 to 8192 bits; make an ed25519 key"),
            _ => unreadable("keys of the kinds ed25519, ECDSA and RSA are read; make an ed25519 key"),
        }
    }
}

const NO_KEY: &str = "it is no private key in the form of OpenSSH, PEM or PKCS#8 (it begins with `-----BEGIN`)";
const DAMAGED: &str = "it is damaged; copy the whole file, with its first and last line";
const CONVERT: &str = "it is encrypted in a form that is not read; `ssh-keygen -p -f FILE` writes it anew";

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
    // Blanks around lines come from indented YAML.
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join("\n") + "\n";
    let damaged = Problem::Unreadable(DAMAGED);
    let Some(begin) = lines.iter().find(|line| line.starts_with("-----BEGIN ")) else {
        let is_public = text.starts_with("ssh-") || text.starts_with("ecdsa-");
        return Err(Problem::Unreadable(match text {
            _ if is_public => "it is the public half; the private one is in the file without `.pub`",
            text if text.starts_with("PuTTY") => "it is in PuTTY's form; export it as an OpenSSH key",
            _ => NO_KEY,
        }));
    };
    match begin.trim_matches('-').trim_start_matches("BEGIN ") {
        "OPENSSH PRIVATE KEY" => {
            let key = PrivateKey::from_openssh(&text).map_err(|_| damaged)?;
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
        "RSA PRIVATE KEY" | "EC PRIVATE KEY" if text.contains("Proc-Type: 4,ENCRYPTED") => {
            // As `ssh-keygen -m PEM` writes RSA keys.
            if !text.contains("DEK-Info: AES-128-CBC,") || !begin.contains("RSA") {
                return Err(Problem::Unreadable(CONVERT));
            }
            let passphrase = passphrase.ok_or(Problem::MissingPassphrase)?;
            keys::decode_secret_key(&text, Some(passphrase)).map_err(|_| Problem::WrongPassphrase)
        }
        "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "PRIVATE KEY" => {
            keys::decode_secret_key(&text, None).map_err(|_| damaged)
        }
        "ENCRYPTED PRIVATE KEY" => {
            let passphrase = passphrase.ok_or(Problem::MissingPassphrase)?;
            check_work(&lines)?;
            keys::decode_secret_key(&text, Some(passphrase)).map_err(|_| Problem::WrongPassphrase)
        }
        _ => Err(Problem::Unreadable(NO_KEY)),
    }
}

/// Refuses a PKCS#8 key whose decryption asks for too much work or memory.
fn check_work(lines: &[&str]) -> Result<(), Problem> {
    let body: String = lines.iter().filter(|line| !line.starts_with("-----")).copied().collect();
    let der = BASE64_STANDARD.decode(body).map_err(|_| Problem::Unreadable(DAMAGED))?;
    let info = EncryptedPrivateKeyInfoOwned::from_der(&der).map_err(|_| Problem::Unreadable(CONVERT))?;
    let kdf = &info.encryption_algorithm.pbes2().ok_or(Problem::Unreadable(CONVERT))?.kdf;
    let fits = match (kdf.pbkdf2(), kdf.scrypt()) {
        (Some(pbkdf2), _) => pbkdf2.iteration_count <= PBKDF2_ROUNDS,
        (_, Some(scrypt)) => {
            let memory = scrypt.cost_parameter.saturating_mul(u64::from(scrypt.block_size)).saturating_mul(128);
            memory <= SCRYPT_BYTES && scrypt.parallelization <= 4
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err(Problem::Unreadable("its encryption takes too much work or memory to open")) }
}
