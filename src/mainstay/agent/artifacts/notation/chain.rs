//! The rules of the Notary Project for the certificates of a signature, from that of the signer to the root.
//!
//! Not here: times, revocation, and the question whether one of them is trusted.

use x509_cert::ext::pkix::{KeyUsage, KeyUsages};
use x509_cert::spki::ObjectIdentifier;

use super::certificate::Certificate;

/// Maximum number of certificates of a signature.
const MOST: usize = 8;
/// Purposes that a certificate for signatures must not have.
const OTHER_PURPOSES: [(ObjectIdentifier, &str); 5] = [
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1"), "servers"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2"), "clients"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.4"), "emails"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.8"), "timestamps"),
    (ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9"), "responses of OCSP"),
];

/// Reads the certificates of a signature: that of the signer first.
pub(super) fn read(ders: &[Vec<u8>]) -> Result<Vec<Certificate>, String> {
    if ders.is_empty() {
        return Err("has no certificate".to_owned());
    }
    if ders.len() > MOST {
        return Err(format!("has more than {MOST} certificates"));
    }
    let read = |(at, der): (usize, &Vec<u8>)| {
        Certificate::read(der).map_err(|why| format!("has a certificate (number {}) that {why}", at + 1))
    };
    ders.iter().enumerate().map(read).collect()
}

/// Returns why certificates do not form a chain: the end of a sentence about the signature.
pub(super) fn check(chain: &[Certificate]) -> Result<(), String> {
    let Some((signer, authorities)) = chain.split_first() else { return Err("has no certificate".to_owned()) };
    of_signer(signer).map_err(|why| format!("has a certificate of its signer that {why}"))?;
    for (below, authority) in authorities.iter().enumerate() {
        of_authority(authority, below)
            .map_err(|why| format!("has a certificate of an authority (number {}) that {why}", below + 2))?;
    }
    let links = chain.iter().zip(authorities);
    for (at, (certificate, issuer)) in links.enumerate() {
        if certificate.is_issued_by(certificate) == Ok(true) {
            return Err(format!("has a self-signed certificate (number {}) before the last one", at + 1));
        }
        let is_issued = certificate.is_issued_by(issuer);
        if !is_issued.map_err(|why| format!("has a certificate (number {}) that {why}", at + 1))? {
            return Err(format!("has a certificate (number {}) that the next one has not issued", at + 1));
        }
    }
    match chain.last().map(|root| root.is_issued_by(root)) {
        Some(Ok(true)) => Ok(()),
        Some(Err(why)) => Err(format!("has a certificate (number {}) that {why}", chain.len())),
        Some(Ok(false)) | None => Err("has certificates that do not end with a self-signed one".to_owned()),
    }
}

/// Checks the certificate of a signer. An error is the end of a sentence about it.
fn of_signer(signer: &Certificate) -> Result<(), String> {
    if signer.constraints.as_ref().is_some_and(|constraints| constraints.ca) {
        return Err("is that of an authority".to_owned());
    }
    let usage = usage(signer)?;
    if !usage.digital_signature() {
        return Err("is not for signatures: its key usage has no digitalSignature".to_owned());
    }
    if !(KeyUsages::DigitalSignature | KeyUsages::NonRepudiation).contains(usage.0) {
        return Err("is not only for signatures: its key usage has more than digitalSignature".to_owned());
    }
    let other = OTHER_PURPOSES.into_iter().find(|(purpose, _)| signer.extended_usage.contains(purpose));
    if let Some((_, purpose)) = other {
        return Err(format!("is for {purpose}: see its extended key usage"));
    }
    if signer.key.algorithm().is_none() {
        return Err("has an RSA key that has not 2048, 3072 or 4096 bits".to_owned());
    }
    Ok(())
}

/// Checks the certificate of an authority with this number of authorities below it.
fn of_authority(authority: &Certificate, below: usize) -> Result<(), String> {
    let Some(constraints) = authority.constraints.as_ref().filter(|constraints| constraints.ca) else {
        return Err("is not that of an authority: its basic constraints have no CA".to_owned());
    };
    if constraints.path_len_constraint.is_some_and(|most| usize::from(most) < below) {
        return Err("does not permit so many authorities below it".to_owned());
    }
    if !usage(authority)?.key_cert_sign() {
        return Err("must not issue certificates: its key usage has no keyCertSign".to_owned());
    }
    Ok(())
}

fn usage(certificate: &Certificate) -> Result<KeyUsage, String> {
    match certificate.usage {
        Some((true, usage)) => Ok(usage),
        Some((false, _)) => Err("has a key usage that is not critical".to_owned()),
        None => Err("has no key usage".to_owned()),
    }
}
