//! TLS with a certificate that can be replaced at any time.
//!
//! Invariant: a handshake uses the certificate that is current when it begins. Open connections continue.
//! Invariant: without a certificate every handshake fails.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

/// The served certificate, if there is one.
#[derive(Default)]
pub struct ServedCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl fmt::Debug for ServedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().clone()
    }
}

impl ServedCertificate {
    /// Replaces the certificate.
    pub fn set(&self, certified: Option<CertifiedKey>) {
        *self.0.write() = certified.map(Arc::new);
    }

    /// Returns the TLS configuration. Clients may present a certificate of these authorities.
    pub fn config(self: Arc<Self>, authorities: Option<Arc<RootCertStore>>) -> Option<ServerConfig> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let builder = match authorities {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().ok()?)
            }
        };
        let mut config = builder.with_cert_resolver(self);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some(config)
    }
}
