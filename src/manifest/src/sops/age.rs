//! Decrypts data that age encrypted to an X25519 recipient. The identities are the private keys.
//!
//! The format is <https://age-encryption.org/v1>, limited to the parts that a data key needs: armored, one chunk.
//!
//! Invariant: an identity is erased from memory when it is dropped.
//!
//! Not here: plug-ins, and recipients that are SSH keys, passphrases or hybrid (post-quantum) keys. The stanzas of such
//! recipients are skipped.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::{aead, hkdf, hmac};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize as _, Zeroizing};

use super::bech32;

const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
const VERSION: &[u8] = b"age-encryption.org/v1\n";
/// Maximum size of an encrypted data key with its recipients, in bytes.
const LONGEST: usize = 64 << 10;
/// Maximum number of recipients.
const MOST_STANZAS: usize = 100;
/// Lengths of the payload's nonce and of the file key, in bytes.
const NONCE: usize = 16;
const FILE_KEY: usize = 16;

/// A private key of age.
pub(super) struct Identity {
    secret: StaticSecret,
    recipient: PublicKey,
}

/// The reason that decryption failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// No key matches a recipient.
    NoKey,
    /// The data was changed.
    Damaged,
    /// The number of attempts is exhausted.
    TooMany,
}

impl Identity {
    /// Parses an identity.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (prefix, bytes) = bech32::decode(text)?;
        let bytes = Zeroizing::new(bytes);
        let mut key: [u8; 32] = bytes.as_slice().try_into().ok().filter(|_| prefix == "age-secret-key-")?;
        let secret = StaticSecret::from(key);
        key.zeroize();
        let recipient = PublicKey::from(&secret);
        Some(Self { secret, recipient })
    }

    /// Returns the public recipient of the identity.
    pub(super) fn recipient(&self) -> String {
        bech32::encode("age", self.recipient.as_bytes())
    }
}

/// A stanza of the header: the file key, encrypted to one recipient.
struct Stanza<'t> {
    arguments: Vec<&'t str>,
    body: Vec<u8>,
}

/// Decrypts an armored text with one of the identities. Each identity that is tried reduces `attempts`.
pub(super) fn decrypt<'i>(
    text: &str,
    identities: impl Iterator<Item = &'i Identity> + Clone,
    attempts: &mut u32,
) -> Result<Zeroizing<Vec<u8>>, Miss> {
    let file = dearmored(text).ok_or(Miss::Damaged)?;
    let (stanzas, header, mac, payload) = parse(&file).ok_or(Miss::Damaged)?;
    let mut miss = Miss::NoKey;
    for stanza in stanzas.iter().filter(|stanza| stanza.arguments.first() == Some(&"X25519")) {
        for identity in identities.clone() {
            *attempts = attempts.checked_sub(1).ok_or(Miss::TooMany)?;
            let Some(file_key) = unwrapped(stanza, identity) else { continue };
            match opened(&file_key, header, &mac, payload) {
                Some(content) => return Ok(content),
                None => miss = Miss::Damaged,
            }
        }
    }
    Err(miss)
}

fn dearmored(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    if text.len() > LONGEST {
        return None;
    }
    let body = text.strip_prefix(BEGIN)?.strip_suffix(END)?;
    let compact: String = body.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    STANDARD.decode(compact).ok()
}

type Parsed<'f> = (Vec<Stanza<'f>>, &'f [u8], Vec<u8>, &'f [u8]);

/// Splits a file into its stanzas, the bytes of the header that the MAC covers, the MAC, and the payload.
fn parse(file: &[u8]) -> Option<Parsed<'_>> {
    let mut at = file.strip_prefix(VERSION).map(|_| VERSION.len())?;
    let mut line = || {
        let rest = file.get(at..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')?;
        at += length + 1;
        std::str::from_utf8(&rest[..length]).ok()
    };
    let mut stanzas = Vec::new();
    loop {
        let first = line()?;
        if let Some(mac) = first.strip_prefix("--- ") {
            let mac_line = first.len() + 1;
            let mac = STANDARD_NO_PAD.decode(mac).ok()?;
            // The MAC covers the header up to the dashes.
            let header = file.get(..at - mac_line + 3)?;
            return Some((stanzas, header, mac, file.get(at..)?));
        }
        let arguments: Vec<&str> = first.strip_prefix("-> ")?.split(' ').collect();
        let mut body = String::new();
        loop {
            let part = line()?;
            body.push_str(part);
            if part.len() < 64 {
                break;
            }
        }
        stanzas.push(Stanza { arguments, body: STANDARD_NO_PAD.decode(body).ok()? });
        if stanzas.len() > MOST_STANZAS {
            return None;
        }
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derived(secret: &[u8], salt: &[u8], info: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    extracted.expand(&[info], Length(key.len())).ok()?.fill(key.as_mut()).ok()?;
    Some(key)
}

/// Decrypts ChaCha20-Poly1305. The nonce must be used only once for this key.
fn unsealed(key: &[u8; 32], nonce: [u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::CHACHA20_POLY1305, key).ok()?);
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let length = key.open_in_place(nonce, aead::Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

/// Returns the file key in a stanza; `None` if the stanza is not for this identity.
fn unwrapped(stanza: &Stanza<'_>, identity: &Identity) -> Option<Zeroizing<Vec<u8>>> {
    let [_, share] = stanza.arguments.as_slice() else { return None };
    let share: [u8; 32] = STANDARD_NO_PAD.decode(share).ok()?.try_into().ok()?;
    let shared = identity.secret.diffie_hellman(&PublicKey::from(share));
    if !shared.was_contributory() || stanza.body.len() != FILE_KEY + 16 {
        return None;
    }
    let salt = [share, *identity.recipient.as_bytes()].concat();
    let key = derived(shared.as_bytes(), &salt, b"age-encryption.org/v1/X25519")?;
    unsealed(&key, [0; 12], &stanza.body)
}

/// Verifies the header with the file key, and then decrypts the payload.
fn opened(file_key: &[u8], header: &[u8], mac: &[u8], payload: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = derived(file_key, &[], b"header")?;
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), header, mac).ok()?;
    let (nonce, chunk) = payload.split_at_checked(NONCE)?;
    let key = derived(file_key, nonce, b"payload")?;
    // The nonce is the counter of the first chunk and the flag of the last chunk.
    let mut nonce = [0; 12];
    nonce[11] = 1;
    unsealed(&key, nonce, chunk)
}
