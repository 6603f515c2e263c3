//! Files that SOPS has encrypted become the values that were encrypted, in memory.
//!
//! [`Keys`] are read from a Secret. [`open`] takes the documents of a file, finds the data key that one of the keys
//! decrypts, decrypts every value that the file's own rules select, and verifies the MAC over all of them. What a tool
//! has made of such a file afterwards is decrypted by [`Sealed`], which stands for a file that was verified.
//!
//! Invariant: of a file whose MAC is not that of its values nothing is used.
//! Invariant: nothing here is written to a disk, and no fault quotes a value: it names the field, and recipients of keys.
//! Invariant: no input causes a panic; the work is proportional to the file, and the keys that are tried are bounded.
//! Invariant: data keys and private keys are erased from memory when they are dropped.
//!
//! Deliberately absent: encrypting; master keys that another service keeps (KMS, Vault); plug-ins of age, which are
//! programs; private keys with a passphrase. age's own format is read here, because what its library brings along is
//! forty crates for the texts of its command line.

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

/// How every encrypted value begins.
pub const MARKER: &str = "ENC[AES256_GCM,";
