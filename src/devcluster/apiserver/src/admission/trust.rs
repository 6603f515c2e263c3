//! The trusted certificates of a webhook call: those in `caBundle`, as authorities or as the webhook's own certificate.
//!
//! Not here: the certificate authorities of the machine. A webhook without `caBundle` cannot be called.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// Returns the TLS settings for a CA bundle; `None` if it has no certificate.
pub(super) fn client(bundle: &str) -> Option<Arc<ClientConfig>> {
    let pem = STANDARD.decode(bundle).ok()?;
    let own: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem).flatten().collect();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(own.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().ok()?;
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let verifier = Arc::new(Bundle { own, chain });
    Some(Arc::new(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()))
}

/// Accepts certificates signed by the bundle's authorities, and the bundle's own certificates.
///
/// The latter allows self-signed certificates, which a real server accepts, too.
#[derive(Debug)]
struct Bundle {
    own: Vec<CertificateDer<'static>>,
    chain: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.own.iter().any(|own| own.as_ref() == certificate.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.chain.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Returns why a handshake failed, in the words of a real server.
pub(super) fn explain(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(Error::InvalidCertificate(error)) => format!("tls: failed to verify certificate: x509: {error}"),
        _ => format!("tls: {error}"),
    }
}
