//! Turns the values of a Secret into trusted keys.
//!
//! The names of values do not matter; Flux calls OpenPGP keys `*.asc` and SSH keys `*.sshpub`. The content of a value
//! determines its kind.
//!
//! Invariant: a value that cannot be parsed is an error, not a missing key, because its owner expects the key to be
//! used.

use super::allowed_signers::{self, SshSigner};
use super::certificate::{self, Certificate};
use super::fault::SignatureFault;

/// The trusted keys.
#[derive(Debug, Default)]
pub(super) struct Signers {
    pub(super) ssh: Vec<SshSigner>,
    pub(super) openpgp: Vec<Certificate>,
}

impl Signers {
    /// Reads the values of a Secret.
    pub(super) fn read<'v>(
        secret: &str,
        values: impl Iterator<Item = (&'v str, &'v [u8])>,
    ) -> Result<Self, SignatureFault> {
        let mut signers = Self::default();
        for (name, value) in values {
            let read = signers.add(value);
            let unusable = |why| SignatureFault::UnusableKey { secret: secret.to_owned(), name: name.to_owned(), why };
            read.map_err(unusable)?;
        }
        if signers.ssh.is_empty() && signers.openpgp.is_empty() {
            return Err(SignatureFault::NoKeys { secret: secret.to_owned() });
        }
        Ok(signers)
    }

    fn add(&mut self, value: &[u8]) -> Result<(), String> {
        let Ok(text) = std::str::from_utf8(value) else {
            self.openpgp.extend(certificate::from_bytes(value)?);
            return Ok(());
        };
        if text.contains("PRIVATE KEY") {
            return Err("it holds a private key; only the public half is needed to verify".to_owned());
        }
        if text.contains("-----BEGIN PGP PUBLIC KEY BLOCK-----") {
            self.openpgp.extend(certificate::from_text(text)?);
        } else {
            self.ssh.extend(allowed_signers::read(text)?);
        }
        Ok(())
    }
}
