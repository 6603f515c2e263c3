//! Algorithms of signatures: those of envelopes, which the key determines, and those of certificates.
//!
//! `ring` verifies them, except for the curve P-521, which it does not have.

use p521::ecdsa::signature::hazmat::PrehashVerifier as _;
use ring::digest::{SHA384, SHA512, digest};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use x509_cert::der::asn1::UintRef;
use x509_cert::der::{Reader as _, SliceReader, TagMode, TagNumber};
use x509_cert::spki::{AlgorithmIdentifierOwned, AlgorithmIdentifierRef, ObjectIdentifier, SubjectPublicKeyInfoOwned};

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const CURVES: [(ObjectIdentifier, Kind); 3] = [
    (ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7"), Kind::P256),
    (ObjectIdentifier::new_unwrap("1.3.132.0.34"), Kind::P384),
    (ObjectIdentifier::new_unwrap("1.3.132.0.35"), Kind::P521),
];
const PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const SCHEMES: [(ObjectIdentifier, Scheme); 6] = [
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11"), Scheme::Pkcs1(Hash::Sha256)),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.12"), Scheme::Pkcs1(Hash::Sha384)),
    (ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.13"), Scheme::Pkcs1(Hash::Sha512)),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2"), Scheme::Ecdsa(Hash::Sha256)),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3"), Scheme::Ecdsa(Hash::Sha384)),
    (ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.4"), Scheme::Ecdsa(Hash::Sha512)),
];
/// Lengths of RSA keys that are supported, in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
const HASHES: [(ObjectIdentifier, Hash); 3] = [
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1"), Hash::Sha256),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2"), Hash::Sha384),
    (ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3"), Hash::Sha512),
];

/// The kind of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With the length of the modulus in bits, as a multiple of 8.
    Rsa(usize),
    P256,
    P384,
    P521,
}

/// The public key of a certificate.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    kind: Kind,
    bytes: Vec<u8>,
}

/// An algorithm of the signature of an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

/// An algorithm of the signature of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Pkcs1(Hash),
    Pss(Hash),
    Ecdsa(Hash),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl PublicKey {
    /// Returns the key, if it is of RSA or of one of three curves.
    pub(super) fn read(info: &SubjectPublicKeyInfoOwned) -> Option<Self> {
        let bytes = info.subject_public_key.as_bytes()?.to_vec();
        let kind = if info.algorithm.oid == RSA {
            Kind::Rsa(bits(&bytes)?)
        } else if info.algorithm.oid == EC {
            let curve: ObjectIdentifier = info.algorithm.parameters.as_ref()?.decode_as().ok()?;
            CURVES.into_iter().find(|(named, _)| *named == curve).map(|(_, kind)| kind)?
        } else {
            return None;
        };
        Some(Self { kind, bytes })
    }

    /// Returns the algorithm of envelopes by this key; `None` if none is specified for its length.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        match self.kind {
            Kind::Rsa(2048) => Some(Algorithm::Ps256),
            Kind::Rsa(3072) => Some(Algorithm::Ps384),
            Kind::Rsa(4096) => Some(Algorithm::Ps512),
            Kind::Rsa(_) => None,
            Kind::P256 => Some(Algorithm::Es256),
            Kind::P384 => Some(Algorithm::Es384),
            Kind::P521 => Some(Algorithm::Es512),
        }
    }

    /// Whether the key made the signature of an envelope with the algorithm of the key.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let Some(algorithm) = self.algorithm() else { return false };
        let by: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => {
                let signature = p521::ecdsa::Signature::from_slice(signature);
                return signature.is_ok_and(|signature| self.of_p521(digest(&SHA512, message).as_ref(), &signature));
            }
        };
        UnparsedPublicKey::new(by, &self.bytes).verify(message, signature).is_ok()
    }

    /// Whether the key made the signature of a certificate.
    ///
    /// # Errors
    /// The algorithm is not supported for the key. The error is the end of a sentence about the certificate.
    pub(super) fn has_issued(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> Result<bool, String> {
        let unsupported = |remedy: &str| {
            Err(format!("is signed with an algorithm that is not supported for the key of its issuer; use {remedy}"))
        };
        let by: &'static dyn VerificationAlgorithm = match (self.kind, scheme) {
            (Kind::Rsa(bits), Scheme::Pkcs1(_) | Scheme::Pss(_)) if !RSA_BITS.contains(&bits) => {
                return unsupported("an RSA key with 2048 to 8192 bits");
            }
            (Kind::P256 | Kind::P384, Scheme::Ecdsa(Hash::Sha512)) => return unsupported("SHA-256 or SHA-384"),
            (Kind::P521, Scheme::Ecdsa(Hash::Sha256)) => return unsupported("SHA-384 or SHA-512"),
            (Kind::Rsa(_), Scheme::Pkcs1(Hash::Sha256)) => &RSA_PKCS1_2048_8192_SHA256,
            (Kind::Rsa(_), Scheme::Pkcs1(Hash::Sha384)) => &RSA_PKCS1_2048_8192_SHA384,
            (Kind::Rsa(_), Scheme::Pkcs1(Hash::Sha512)) => &RSA_PKCS1_2048_8192_SHA512,
            (Kind::Rsa(_), Scheme::Pss(Hash::Sha256)) => &RSA_PSS_2048_8192_SHA256,
            (Kind::Rsa(_), Scheme::Pss(Hash::Sha384)) => &RSA_PSS_2048_8192_SHA384,
            (Kind::Rsa(_), Scheme::Pss(Hash::Sha512)) => &RSA_PSS_2048_8192_SHA512,
            (Kind::P256, Scheme::Ecdsa(Hash::Sha256)) => &ECDSA_P256_SHA256_ASN1,
            (Kind::P256, Scheme::Ecdsa(Hash::Sha384)) => &ECDSA_P256_SHA384_ASN1,
            (Kind::P384, Scheme::Ecdsa(Hash::Sha256)) => &ECDSA_P384_SHA256_ASN1,
            (Kind::P384, Scheme::Ecdsa(Hash::Sha384)) => &ECDSA_P384_SHA384_ASN1,
            (Kind::P521, Scheme::Ecdsa(hash @ (Hash::Sha384 | Hash::Sha512))) => {
                let hashed = digest(if hash == Hash::Sha384 { &SHA384 } else { &SHA512 }, message);
                let signature = p521::ecdsa::Signature::from_der(signature);
                return Ok(signature.is_ok_and(|signature| self.of_p521(hashed.as_ref(), &signature)));
            }
            // The issuer has a key of a different kind.
            (Kind::Rsa(_), Scheme::Ecdsa(_))
            | (Kind::P256 | Kind::P384 | Kind::P521, Scheme::Pkcs1(_) | Scheme::Pss(_)) => return Ok(false),
        };
        Ok(UnparsedPublicKey::new(by, &self.bytes).verify(message, signature).is_ok())
    }

    fn of_p521(&self, digest: &[u8], signature: &p521::ecdsa::Signature) -> bool {
        let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(&self.bytes);
        key.is_ok_and(|key| key.verify_prehash(digest, signature).is_ok())
    }
}

/// Returns the length of the modulus of an RSA key.
fn bits(key: &[u8]) -> Option<usize> {
    let mut reader = SliceReader::new(key).ok()?;
    let length = reader.sequence(|inside| {
        let modulus: UintRef<'_> = inside.decode()?;
        let _exponent: UintRef<'_> = inside.decode()?;
        Ok(modulus.as_bytes().len())
    });
    let length = length.ok()?;
    reader.is_finished().then_some(length * 8)
}

impl Algorithm {
    const ALL: [(Self, &'static str, i64); 6] = [
        (Self::Ps256, "PS256", -37),
        (Self::Ps384, "PS384", -38),
        (Self::Ps512, "PS512", -39),
        (Self::Es256, "ES256", -7),
        (Self::Es384, "ES384", -35),
        (Self::Es512, "ES512", -36),
    ];

    /// Returns the algorithm with a name of JWS.
    pub(super) fn of_jws(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(algorithm, ..)| algorithm)
    }

    /// Returns the algorithm with a number of COSE.
    pub(super) fn of_cose(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|(.., known)| *known == number).map(|(algorithm, ..)| algorithm)
    }
}

impl Scheme {
    /// Returns the algorithm that a certificate names, if it is supported.
    pub(super) fn read(named: &AlgorithmIdentifierOwned) -> Option<Self> {
        if named.oid != PSS {
            return SCHEMES.into_iter().find(|(oid, _)| *oid == named.oid).map(|(_, scheme)| scheme);
        }
        let hash = named.parameters.as_ref()?.sequence(|inside| {
            let hash: Option<AlgorithmIdentifierRef<'_>> = inside.context_specific(TagNumber::N0, TagMode::Explicit)?;
            // The other parameters follow from the hash, or the signature does not count.
            let rest = inside.remaining_len();
            inside.read_slice(rest)?;
            Ok(hash.map(|hash| hash.oid))
        });
        let hash = hash.ok()??;
        HASHES.into_iter().find(|(oid, _)| *oid == hash).map(|(_, hash)| Self::Pss(hash))
    }
}

#[cfg(test)]
mod tests {
    use p521::ecdsa::signature::hazmat::PrehashSigner as _;

    use super::*;

    #[test]
    fn the_key_determines_the_algorithm() {
        let key = |kind| PublicKey { kind, bytes: Vec::new() };
        assert_eq!(key(Kind::Rsa(2048)).algorithm(), Algorithm::of_jws("PS256"));
        assert_eq!(key(Kind::Rsa(3072)).algorithm(), Algorithm::of_cose(-38));
        assert_eq!(key(Kind::Rsa(4096)).algorithm(), Algorithm::of_jws("PS512"));
        assert_eq!(key(Kind::P384).algorithm(), Algorithm::of_cose(-35));
        assert_eq!(key(Kind::Rsa(2056)).algorithm(), None);
        assert!(Algorithm::of_jws("RS256").is_none() && Algorithm::of_jws("none").is_none());
        assert!(!key(Kind::Rsa(1024)).has_signed(b"message", b""));
    }

    #[test]
    fn names_algorithms_that_are_not_supported_for_a_key() {
        for (kind, scheme, remedy) in [
            (Kind::P256, Scheme::Ecdsa(Hash::Sha512), "use SHA-256 or SHA-384"),
            (Kind::P384, Scheme::Ecdsa(Hash::Sha512), "use SHA-256 or SHA-384"),
            (Kind::P521, Scheme::Ecdsa(Hash::Sha256), "use SHA-384 or SHA-512"),
            (Kind::Rsa(1024), Scheme::Pkcs1(Hash::Sha256), "use an RSA key with 2048 to 8192 bits"),
            (Kind::Rsa(16_384), Scheme::Pss(Hash::Sha512), "use an RSA key with 2048 to 8192 bits"),
        ] {
            let found = PublicKey { kind, bytes: Vec::new() }.has_issued(scheme, b"message", b"").unwrap_err();
            let why = "is signed with an algorithm that is not supported for the key of its issuer; ";
            assert_eq!(found.strip_prefix(why), Some(remedy));
        }
        let rsa = PublicKey { kind: Kind::Rsa(2048), bytes: Vec::new() };
        assert_eq!(rsa.has_issued(Scheme::Ecdsa(Hash::Sha256), b"message", b""), Ok(false));
    }

    #[test]
    fn verifies_signatures_of_p521_in_both_encodings() {
        let pair = p521::ecdsa::SigningKey::from_slice(&[1; 66]).unwrap();
        let made: p521::ecdsa::Signature = pair.sign_prehash(digest(&SHA512, b"message").as_ref()).unwrap();
        let point = pair.verifying_key().to_sec1_point(false);
        let bytes: &[u8] = point.as_ref();
        let key = PublicKey { kind: Kind::P521, bytes: bytes.to_vec() };
        let (fixed, der) = (made.to_bytes(), made.to_der());
        let (fixed, der): (&[u8], &[u8]) = (fixed.as_ref(), der.as_ref());
        assert!(key.has_signed(b"message", fixed) && !key.has_signed(b"other", fixed) && !key.has_signed(b"", der));
        assert_eq!(key.has_issued(Scheme::Ecdsa(Hash::Sha512), b"message", der), Ok(true));
        assert_eq!(key.has_issued(Scheme::Ecdsa(Hash::Sha384), b"message", der), Ok(false));
        assert_eq!(key.has_issued(Scheme::Pkcs1(Hash::Sha512), b"message", der), Ok(false));
        let broken = PublicKey { kind: Kind::P521, bytes: vec![4; 133] };
        assert!(!broken.has_signed(b"message", fixed));
    }
}
