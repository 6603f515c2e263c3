//! The certificate authority of the gateway's hosts.
//!
//! Each host has its own certificate, because clients reject the wildcard `*.localhost`.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;

/// Maximum number of cached certificates.
const KEPT: usize = 256;

/// A certificate authority. Its key is in memory only.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    /// The key of all hosts.
    key: KeyPair,
    leaves: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl Authority {
    /// Generates an authority.
    ///
    /// # Errors
    /// A key cannot be generated.
    pub(super) fn new() -> io::Result<Self> {
        Self::make().map_err(io::Error::other)
    }

    fn make() -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // The name must be unique: clients would confuse two authorities of the same name.
        let name = format!("gateway of an embedded cluster {}", uuid::Uuid::new_v4());
        authority.distinguished_name = rcgen::DistinguishedName::new();
        authority.distinguished_name.push(DnType::CommonName, name);
        let own = KeyPair::generate()?;
        let pem = authority.self_signed(&own)?.pem();
        let issuer = Issuer::new(authority, own);
        Ok(Self { issuer, pem, key: KeyPair::generate()?, leaves: Mutex::default() })
    }

    /// Returns the authority's certificate as PEM.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate of a host; `None` if the name is invalid. The certificate of `localhost` includes the
    /// loopback addresses.
    pub(super) fn leaf(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        if let Some(known) = self.leaves.lock().get(host) {
            return Some(Arc::clone(known));
        }
        let names = if host == "localhost" { vec![host, "127.0.0.1", "::1"] } else { vec![host] };
        let mut leaf = CertificateParams::new(names.into_iter().map(str::to_owned).collect::<Vec<_>>()).ok()?;
        leaf.distinguished_name = rcgen::DistinguishedName::new();
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = leaf.signed_by(&self.key, &self.issuer).ok()?;
        let key = any_supported_type(&PrivateKeyDer::Pkcs8(self.key.serialize_der().into())).ok()?;
        let certified = Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key));
        let mut leaves = self.leaves.lock();
        if leaves.len() >= KEPT {
            leaves.clear();
        }
        leaves.insert(host.to_owned(), Arc::clone(&certified));
        Some(certified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_certificates_are_kept() {
        let authority = Authority::new().unwrap();
        let first = authority.leaf("a.localhost").unwrap();
        assert!(Arc::ptr_eq(&first, &authority.leaf("a.localhost").unwrap()));
        for number in 0..=KEPT {
            assert!(authority.leaf(&format!("{number}.localhost")).is_some());
        }
        assert!(authority.leaves.lock().len() <= KEPT);
        assert!(authority.leaf("é").is_none(), "no host is written so");
    }
}
