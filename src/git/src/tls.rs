//! The certificates in a Secret: trusted CAs ([`Authorities`]), and the client certificate ([`ClientIdentity`]).
//!
//! Invariant: unusable certificates and keys are refused here. The error contains their field.
//! Invariant: no error and no `Debug` shows any part of a private key.
//!
//! Not here: the diagnosis of a server's certificate (`transport::http_fault`).

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error as TlsError, RootCertStore, sign::CertifiedKey};

use super::access_fault::AccessFault;
use mainstay_object::Secret;

/// Fields for CA certificates, in order of preference: Kubernetes' name, then Flux's old one.
const AUTHORITIES: [&str; 2] = ["ca.crt", "caFile"];
/// Fields for a client certificate and its private key, in order of preference.
const PAIRS: [[&str; 2]; 2] = [["tls.crt", "tls.key"], ["certFile", "keyFile"]];
/// The fields of a Secret that are read.
pub(super) const FIELDS: [&str; 6] =
    [AUTHORITIES[0], AUTHORITIES[1], PAIRS[0][0], PAIRS[0][1], PAIRS[1][0], PAIRS[1][1]];

/// Maximum length of a field, in bytes. The bundle of all public CAs has 220 kB.
const MAX_BYTES: usize = 512 << 10;

/// CA certificates as PEM. They replace all other CAs, as with Git's `http.sslCAInfo`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Authorities(String);

/// A client certificate with its chain and private key, as PEM.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClientIdentity(Secret<String>);

impl Authorities {
    /// Reads the data of a Secret; `None` without CA certificates.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Option<Self>, AccessFault> {
        let Some((field, text)) = AUTHORITIES.into_iter().find_map(|field| Some((field, data.get(field)?))) else {
            return Ok(None);
        };
        let text = pem_text(field, text)?;
        store(field, text)?;
        Ok(Some(Self(text.to_owned())))
    }

    /// Returns the certificates as the only ones that are trusted.
    pub(super) fn store(&self) -> Result<RootCertStore, AccessFault> {
        store(AUTHORITIES[0], &self.0)
    }

    pub(super) fn pem(&self) -> &str {
        &self.0
    }
}

impl ClientIdentity {
    /// Reads the data of a Secret; `None` without a client certificate.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Option<Self>, AccessFault> {
        let found = PAIRS.into_iter().find(|pair| pair.iter().any(|field| data.contains_key(*field)));
        let Some([certificate, key]) = found else { return Ok(None) };
        let value = |field, beside| data.get(field).ok_or(AccessFault::MissingHalf { field, beside });
        let certificate_text = pem_text(certificate, value(certificate, key)?)?;
        let key_text = pem_text(key, value(key, certificate)?)?;
        let chain = certificates(certificate, certificate_text)?;
        let private = PrivateKeyDer::from_pem_slice(key_text.as_bytes());
        let private =
            private.map_err(|error| AccessFault::UnusableField { field: key, why: no_key(&error, key_text) })?;
        let pair = CertifiedKey::from_der(chain, private, &rustls::crypto::ring::default_provider());
        pair.map_err(|error| match error {
            TlsError::InconsistentKeys(_) => {
                AccessFault::UnusableField { field: key, why: "it does not match the certificate in the same Secret" }
            }
            TlsError::InvalidCertificate(_) => AccessFault::UnusableField { field: certificate, why: DAMAGED },
            _ => AccessFault::UnusableField {
                field: key,
                why: "it is not an RSA, ECDSA or Ed25519 key that TLS can use",
            },
        })?;
        Ok(Some(Self(Secret::new(format!("{certificate_text}\n{key_text}\n")))))
    }

    /// Returns the certificate with its chain, and the private key.
    pub(super) fn chain_and_key(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), AccessFault> {
        let [certificate, key] = PAIRS[0];
        let private = PrivateKeyDer::from_pem_slice(self.pem().as_bytes());
        let private = private.map_err(|error| AccessFault::UnusableField { field: key, why: no_key(&error, "") })?;
        Ok((certificates(certificate, self.pem())?, private))
    }

    pub(super) fn pem(&self) -> &str {
        self.0.expose()
    }
}

const NO_CERTIFICATE: &str = "it does not contain a certificate in PEM form (which begins with `-----BEGIN \
                              CERTIFICATE-----`)";
const NO_KEY: &str = "it does not contain a private key in PEM form (which begins with `-----BEGIN`)";
const ENCRYPTED: &str = "it is encrypted; remove the passphrase with `openssl pkey -in FILE`";
const DAMAGED: &str = "it is damaged; copy the whole file, with its first and last line";

fn pem_text<'d>(field: &'static str, value: &'d ByteString) -> Result<&'d str, AccessFault> {
    if value.0.len() > MAX_BYTES {
        return Err(AccessFault::UnusableField { field, why: "it is longer than 512 KiB" });
    }
    std::str::from_utf8(&value.0).map_err(|_| AccessFault::UnusableField { field, why: "it is not text in PEM form" })
}

/// Parses at least one certificate.
fn certificates(field: &'static str, text: &str) -> Result<Vec<CertificateDer<'static>>, AccessFault> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = read.map_err(|_| AccessFault::UnusableField { field, why: DAMAGED })?;
    if certificates.is_empty() {
        return Err(AccessFault::UnusableField { field, why: NO_CERTIFICATE });
    }
    Ok(certificates)
}

/// Returns a store that trusts the certificates of a text.
fn store(field: &'static str, text: &str) -> Result<RootCertStore, AccessFault> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(field, text)? {
        store.add(certificate).map_err(|_| AccessFault::UnusableField { field, why: DAMAGED })?;
    }
    Ok(store)
}

fn no_key(error: &pem::Error, text: &str) -> &'static str {
    match error {
        _ if text.contains("ENCRYPTED") => ENCRYPTED,
        pem::Error::NoItemsFound => NO_KEY,
        _ => DAMAGED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new([name.to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[track_caller]
    fn check(data: &[(&str, &str)], expected: &str) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let read = Authorities::read(&data).and_then(|ca| Ok((ca.is_some(), ClientIdentity::read(&data)?.is_some())));
        let got = read.map_or_else(|fault| fault.to_string(), |read| format!("{read:?}"));
        assert_eq!(got, expected);
    }

    #[test]
    fn reads_certificates_under_both_names_and_says_what_is_wrong_with_them() {
        let ((certificate, key), (_, other)) = (pair("a"), pair("b"));
        let (certificate, key) = (certificate.as_str(), key.as_str());
        check(&[("username", "u")], "(false, false)");
        check(&[("ca.crt", &certificate.repeat(3))], "(true, false)");
        check(&[("caFile", certificate), ("certFile", certificate), ("keyFile", key)], "(true, true)");
        check(&[("tls.crt", certificate), ("tls.key", key)], "(false, true)");
        check(&[("ca.crt", "")], &format!("ca.crt of the Secret cannot be used: {NO_CERTIFICATE}"));
        check(
            &[("ca.crt", &certificate[..certificate.len() / 2])],
            &format!("ca.crt of the Secret cannot be used: {DAMAGED}"),
        );
        check(&[("ca.crt", key)], &format!("ca.crt of the Secret cannot be used: {NO_CERTIFICATE}"));
        let nonsense = "-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----\n";
        check(&[("ca.crt", nonsense)], &format!("ca.crt of the Secret cannot be used: {DAMAGED}"));
        check(&[("tls.crt", certificate)], "the Secret has tls.crt without tls.key: it needs both");
        check(&[("tls.key", key)], "the Secret has tls.key without tls.crt: it needs both");
        let unusable = |why: &str| format!("tls.key of the Secret cannot be used: {why}");
        check(
            &[("tls.crt", certificate), ("tls.key", &other)],
            &unusable("it does not match the certificate in the same Secret"),
        );
        check(&[("tls.crt", certificate), ("tls.key", "")], &unusable(NO_KEY));
        let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
        check(&[("tls.crt", certificate), ("tls.key", &encrypted)], &unusable(ENCRYPTED));
        check(
            &[("ca.crt", &"x".repeat(MAX_BYTES + 1))],
            "ca.crt of the Secret cannot be used: it is longer than 512 KiB",
        );
    }
}
