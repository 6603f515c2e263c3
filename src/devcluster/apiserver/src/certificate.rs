//! The certificate of a listener that requires a token. Kubernetes clients send tokens over TLS only.
//!
//! The certificate is self-signed, is created when the listener starts, and is the CA in the kubeconfig.

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
use std::{io, net::IpAddr, sync::Arc};
use tokio_rustls::TlsAcceptor;

/// A certificate with its key.
#[derive(Clone)]
pub(crate) struct Certificate {
    acceptor: TlsAcceptor,
    pem: String,
}

impl Certificate {
    /// Creates a certificate for loopback and this address.
    pub(crate) fn new(listen: IpAddr) -> io::Result<Self> {
        let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        names.push(listen.to_string());
        names.dedup();
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).map_err(io::Error::other)?;
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key));
        Ok(Self { acceptor: Arc::new(config.map_err(io::Error::other)?).into(), pem: cert.pem() })
    }

    /// Returns whether a connection that begins with this byte uses TLS.
    pub(crate) fn begins(byte: u8) -> bool {
        // The record type of a handshake. No HTTP method begins with it.
        byte == 0x16
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}
