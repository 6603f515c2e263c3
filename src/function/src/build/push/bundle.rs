//! The CA bundle for registries of base images.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::Error;

/// Maximum size of a bundle in bytes. A Secret has the same limit.
const MAX_BUNDLE: u64 = 1 << 20;

/// The operator's CA bundle.
#[derive(Debug)]
pub(super) enum Bundle {
    /// The operator configured no bundle.
    Unset,
    /// The namespace lacks the Secret or its key.
    Missing,
    /// Certificates in PEM format.
    Pem(Vec<u8>),
}

impl Bundle {
    /// Reads the file of a Secret's key. A missing file means that the Secret lacks the key.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self::Unset) };
        let unread = |cause| Error::ReadSecret { path: path.to_owned(), cause };
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::Missing),
            Err(error) => return Err(unread(error)),
        };
        let mut pem = Vec::new();
        file.take(MAX_BUNDLE).read_to_end(&mut pem).map_err(unread)?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default();
        if certificates.is_empty() { Err(Error::NoCertificates) } else { Ok(Self::Pem(pem)) }
    }

    /// Returns the certificates.
    pub(super) fn pem(&self) -> &[u8] {
        match self {
            Self::Unset | Self::Missing => &[],
            Self::Pem(pem) => pem,
        }
    }

    /// Returns a hint for a registry whose certificate is not trusted.
    pub(super) const fn way_out(&self) -> &'static str {
        match self {
            Self::Unset => {
                "put the certificate of the registry's CA into a Secret of the agent's namespace, and name the \
                 Secret in MAINSTAY_BASE_CA (mainstay install --base-ca SECRET)"
            }
            Self::Missing => {
                "the Secret or the key of MAINSTAY_BASE_CA is not in this namespace; label the Secret of the agent's namespace \
                 serverless.kyma-project.io/config=credentials"
            }
            Self::Pem(_) => "the CA bundle of MAINSTAY_BASE_CA does not hold the CA of the registry's certificate",
        }
    }
}
