//! Decrypts single values.
//!
//! Invariant: a value can be decrypted only at its original location, because the path of keys is authenticated with
//! it.

use aes_gcm::aead::consts::{U12, U16, U32};
use aes_gcm::aead::{AeadInOut as _, KeyInit as _};
use aes_gcm::{AesGcm, aes::Aes256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::MARKER;

/// Length of a data key, in bytes.
pub(super) const KEY: usize = 32;

/// A decrypted value. The type has no `Debug`, so that a value cannot be shown.
#[derive(Clone, PartialEq)]
pub enum Plain {
    /// A string.
    Text(String),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Bool(bool),
}

/// The reason that a value cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flawed {
    /// The value is not encrypted.
    NotEncrypted,
    /// The value was changed or moved.
    Damaged,
    /// The decrypted value does not have the stated type.
    Type,
    /// The decrypted bytes are not text.
    NotText,
}

/// The parts of an encrypted value.
struct Parts<'t> {
    data: Vec<u8>,
    nonce: Vec<u8>,
    tag: [u8; 16],
    kind: &'t str,
}

fn parse(text: &str) -> Option<Parts<'_>> {
    let inner = text.strip_prefix(MARKER)?.strip_prefix("data:")?.strip_suffix(']')?;
    let (data, rest) = inner.split_once(",iv:")?;
    let (nonce, rest) = rest.split_once(",tag:")?;
    let (tag, kind) = rest.split_once(",type:")?;
    Some(Parts {
        data: STANDARD.decode(data).ok()?,
        nonce: STANDARD.decode(nonce).ok()?,
        tag: STANDARD.decode(tag).ok()?.try_into().ok()?,
        kind,
    })
}

/// Decrypts the values of a file.
#[derive(Clone)]
pub(super) struct Cipher {
    key: Zeroizing<[u8; KEY]>,
    usual: AesGcm<Aes256, U32>,
}

impl Cipher {
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let key: [u8; KEY] = key.try_into().ok()?;
        Some(Self { usual: AesGcm::new(&key.into()), key: Zeroizing::new(key) })
    }

    /// Decrypts the encrypted value `text` at this path (each key followed by a colon). Returns the value, and the
    /// bytes that the MAC covers.
    pub(super) fn decrypt(&self, text: &str, path: &str) -> Result<(Plain, Zeroizing<Vec<u8>>), Flawed> {
        if text.is_empty() {
            return Ok((Plain::Text(String::new()), Zeroizing::default()));
        }
        if !text.starts_with(MARKER) {
            return Err(Flawed::NotEncrypted);
        }
        let Parts { data, nonce, tag, kind } = parse(text).ok_or(Flawed::Damaged)?;
        let mut bytes = Zeroizing::new(data);
        let (path, tag) = (path.as_bytes(), &tag.into());
        let key = || (&*self.key).into();
        let opened = match nonce.len() {
            32 => exact(&nonce)
                .map(|nonce| self.usual.decrypt_inout_detached(&nonce, path, bytes.as_mut_slice().into(), tag)),
            16 => exact(&nonce).map(|nonce| {
                let cipher = AesGcm::<Aes256, U16>::new(key());
                cipher.decrypt_inout_detached(&nonce, path, bytes.as_mut_slice().into(), tag)
            }),
            12 => exact(&nonce).map(|nonce| {
                let cipher = AesGcm::<Aes256, U12>::new(key());
                cipher.decrypt_inout_detached(&nonce, path, bytes.as_mut_slice().into(), tag)
            }),
            _ => None,
        };
        if !matches!(opened, Some(Ok(()))) {
            return Err(Flawed::Damaged);
        }
        let plain = typed(kind, &bytes)?;
        Ok((plain, bytes))
    }
}

fn exact<N: aes_gcm::aead::array::ArraySize>(bytes: &[u8]) -> Option<aes_gcm::Nonce<N>> {
    aes_gcm::Nonce::<N>::try_from(bytes).ok()
}

fn typed(kind: &str, bytes: &[u8]) -> Result<Plain, Flawed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Flawed::NotText)?;
    match kind {
        "str" | "bytes" | "time" | "comment" => Ok(Plain::Text(text.to_owned())),
        "int" => text.parse().map(Plain::Int).map_err(|_| Flawed::Type),
        "bool" => match text {
            "True" | "true" | "TRUE" | "1" | "t" | "T" => Ok(Plain::Bool(true)),
            "False" | "false" | "FALSE" | "0" | "f" | "F" => Ok(Plain::Bool(false)),
            _ => Err(Flawed::Type),
        },
        "float" => match text {
            "+Inf" => Ok(Plain::Float(f64::INFINITY)),
            "-Inf" => Ok(Plain::Float(f64::NEG_INFINITY)),
            text => text.parse().map(Plain::Float).map_err(|_| Flawed::Type),
        },
        _ => Err(Flawed::Type),
    }
}
