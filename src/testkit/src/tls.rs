//! A private CA, and a TLS listener on loopback.

use std::{net::SocketAddr, sync::Arc};

use rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// A certificate and its private key in PEM format.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// A CA.
pub struct PrivateCa {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: rcgen::Certificate,
}

impl PrivateCa {
    pub fn new() -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "private CA");
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        Self { issuer: rcgen::Issuer::new(parameters, key), certificate }
    }

    /// Returns the CA's certificate in PEM format.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Returns a certificate store that trusts the CA.
    pub fn store(&self) -> RootCertStore {
        let mut store = RootCertStore::empty();
        store.add(self.certificate.der().clone()).unwrap();
        store
    }

    /// Issues a certificate for a name, for a server or a client.
    pub fn issue(&self, name: &str) -> Pair {
        self.issue_with(name, |_| {})
    }

    /// Issues a certificate after `change` has modified it.
    pub fn issue_with(&self, name: &str, change: impl FnOnce(&mut rcgen::CertificateParams)) -> Pair {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut parameters);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Returns the configuration of a server with a certificate for a name.
    pub fn server(&self, name: &str) -> ServerConfig {
        Self::server_with(&self.issue(name))
    }

    /// Returns the configuration of a server with a certificate for several names.
    pub fn server_for(&self, names: &[&str]) -> ServerConfig {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        Self::server_with(&self.issue_with("localhost", |parameters| {
            *parameters = rcgen::CertificateParams::new(names).unwrap();
        }))
    }

    /// Returns the configuration of a server with this certificate.
    pub fn server_with(pair: &Pair) -> ServerConfig {
        let (certificates, key) = pair.der();
        ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap()
    }

    /// Returns the configuration of a server that requires client certificates of this CA.
    pub fn server_for_clients(&self, name: &str) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.store())).build().unwrap();
        let (certificates, key) = self.issue(name).der();
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(certificates, key).unwrap()
    }
}

impl Pair {
    pub(crate) fn der(&self) -> (Vec<rustls::pki_types::CertificateDer<'static>>, PrivateKeyDer<'static>) {
        use rustls::pki_types::pem::PemObject as _;
        let certificates = rustls::pki_types::CertificateDer::pem_slice_iter(self.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap();
        (certificates.map(Result::unwrap).collect(), key)
    }
}

/// A listener on loopback. Connections whose handshake fails are dropped.
pub struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub async fn bind(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
