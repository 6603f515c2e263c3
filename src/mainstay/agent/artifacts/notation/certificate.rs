//! A certificate of a signer or of an authority above it.
//!
//! Invariant: a certificate is short when it is parsed, and its sets are small: see `narrow`.

use x509_cert::Certificate as Parsed;
use x509_cert::Version;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{AuthorityInfoAccessSyntax, BasicConstraints, ExtendedKeyUsage, KeyUsage};
use x509_cert::name::Name;
use x509_cert::spki::ObjectIdentifier;
use x509_cert::time::Time;

use super::super::narrow;
use super::algorithm::{PublicKey, Scheme};

/// Maximum length of a certificate, in bytes of DER.
const LONGEST: usize = 8 << 10;
const CRL: [ObjectIdentifier; 2] =
    [ObjectIdentifier::new_unwrap("2.5.29.31"), ObjectIdentifier::new_unwrap("2.5.29.46")];
const ACCESS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.1");
const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
/// Extensions that may be critical: key usage, basic constraints, extended key usage, alternative names and policies.
const KNOWN: [ObjectIdentifier; 5] = [
    ObjectIdentifier::new_unwrap("2.5.29.15"),
    ObjectIdentifier::new_unwrap("2.5.29.19"),
    ObjectIdentifier::new_unwrap("2.5.29.37"),
    ObjectIdentifier::new_unwrap("2.5.29.17"),
    ObjectIdentifier::new_unwrap("2.5.29.32"),
];

/// A certificate.
pub(super) struct Certificate {
    der: Vec<u8>,
    /// The bytes that the issuer has signed.
    signed: Vec<u8>,
    scheme: Scheme,
    signature: Vec<u8>,
    pub(super) subject: Name,
    pub(super) issuer: Name,
    pub(super) not_before: Time,
    pub(super) not_after: Time,
    pub(super) key: PublicKey,
    /// Whether it is of an authority, and the maximum number of authorities below it.
    pub(super) constraints: Option<BasicConstraints>,
    /// Whether the extension is critical, and its value.
    pub(super) usage: Option<(bool, KeyUsage)>,
    pub(super) extended_usage: Vec<ObjectIdentifier>,
    /// Whether it names a list of revoked certificates or a responder of OCSP.
    pub(super) is_revocable: bool,
}

impl Certificate {
    /// Reads a certificate. An error is the end of a sentence about it.
    pub(super) fn read(der: &[u8]) -> Result<Self, String> {
        if der.len() > LONGEST {
            return Err("is longer than 8 KiB".to_owned());
        }
        narrow::check(der)?;
        let parsed = Parsed::from_der(der).map_err(|_| "cannot be read")?;
        let signed = signed(der).ok_or("cannot be read")?;
        let body = parsed.tbs_certificate;
        if parsed.signature_algorithm != body.signature {
            return Err("names two different algorithms of its signature".to_owned());
        }
        let scheme = Scheme::read(&body.signature);
        let scheme = scheme.ok_or("has a signature that is not supported; use ECDSA or RSA with SHA-2")?;
        let signature = parsed.signature.as_bytes().ok_or("cannot be read")?.to_vec();
        let extensions = body.extensions.as_deref().unwrap_or_default();
        if !extensions.is_empty() && body.version != Version::V3 {
            return Err("has extensions, but is not of version 3".to_owned());
        }
        if let Some(odd) = extensions.iter().find(|one| one.critical && !KNOWN.contains(&one.extn_id)) {
            return Err(format!("has the critical extension {}, which is not supported", odd.extn_id));
        }
        let odd = |_| "has an extension that cannot be read";
        let constraints = body.get::<BasicConstraints>().map_err(odd)?.map(|(_, value)| value);
        let usage = body.get::<KeyUsage>().map_err(odd)?;
        let extended_usage = body.get::<ExtendedKeyUsage>().map_err(odd)?.map(|(_, value)| value.0);
        let is_revocable = extensions.iter().any(is_about_revocation);
        let key = PublicKey::read(&body.subject_public_key_info);
        Ok(Self {
            der: der.to_vec(),
            signed,
            scheme,
            signature,
            subject: body.subject,
            issuer: body.issuer,
            not_before: body.validity.not_before,
            not_after: body.validity.not_after,
            key: key.ok_or("has a key that is not supported; use ECDSA P-256, P-384 or P-521, or RSA")?,
            constraints,
            usage,
            extended_usage: extended_usage.unwrap_or_default(),
            is_revocable,
        })
    }

    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whether the key of a certificate has signed this one, which names it as the issuer.
    ///
    /// # Errors
    /// The algorithm is not supported. The error is the end of a sentence about this certificate.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> Result<bool, String> {
        if self.issuer != issuer.subject {
            return Ok(false);
        }
        issuer.key.has_issued(self.scheme, &self.signed, &self.signature)
    }

    /// Whether it is valid at a time, given in seconds since 1970.
    pub(super) fn is_valid_at(&self, second: i64) -> bool {
        let seconds = |time: Time| i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        seconds(self.not_before) <= second && second <= seconds(self.not_after)
    }
}

/// Returns the first element of a certificate with its header.
fn signed(der: &[u8]) -> Option<Vec<u8>> {
    let mut reader = SliceReader::new(der).ok()?;
    let signed = reader.sequence(|inside| {
        let signed = inside.tlv_bytes()?.to_vec();
        let rest = inside.remaining_len();
        inside.read_slice(rest)?;
        Ok(signed)
    });
    signed.ok()
}

fn is_about_revocation(extension: &Extension) -> bool {
    if extension.extn_id != ACCESS {
        return CRL.contains(&extension.extn_id);
    }
    let value = extension.extn_value.as_bytes();
    // An extension that is not read may name a responder.
    if narrow::check(value).is_err() {
        return true;
    }
    let access = AuthorityInfoAccessSyntax::from_der(value);
    access.map_or(true, |access| access.0.iter().any(|one| one.access_method == OCSP))
}
