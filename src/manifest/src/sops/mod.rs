//! Decrypts files that SOPS has encrypted, in memory.
//!
//! [`Keys`] are read from a Secret. [`open`] first decrypts the data key of a file with one of the keys, and then every
//! value that the file's own rules select. It also verifies the MAC over all values. [`Sealed`] is a verified file,
//! which decrypts objects that a tool has built from such files.
//!
//! Invariant: no value of a file with a wrong MAC is used.
//! Invariant: nothing is written to disk. No error quotes a value; it names the field, and recipients of keys.
//! Invariant: no input causes a panic. The work is proportional to the file, and the number of tried keys is bounded.
//! Invariant: data keys and private keys are erased from memory when they are dropped.
//!
//! Not here: encryption, master keys in key services (KMS, Vault), age plug-ins, which are programs, and private keys
//! with a passphrase. age's format is parsed here, because its library would add forty crates for the texts of its
//! command line.

mod age;
mod bech32;
mod data_key;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod json;
mod keys;
mod metadata;
mod openpgp;
mod rules;
mod scalar;
mod shamir;
mod tree;
mod value;
mod yaml;

#[cfg(test)]
mod tests;

pub use file::{Fault, Format, MAX_BYTES, Opened, Sealed, open};
pub use keys::{KeyId, Keys};
pub use value::Plain;

/// Prefix of every encrypted value.
pub(crate) const MARKER: &str = "ENC[AES256_GCM,";
