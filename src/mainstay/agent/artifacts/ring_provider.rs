//! The cryptography of the library that verifies keyless signatures: `ring`, as for TLS.
//!
//! `ring` verifies no signature over a digest. These are verified by the curves that SSH uses, too.

use p256::ecdsa::signature::hazmat::PrehashVerifier as _;
use ring::digest::{Context, SHA256, SHA384, SHA512};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use sigstore_verify::crypto::{
    CryptoProvider, Error, HashContext, KeyAlgorithm, Result, SigningScheme, install_default_provider,
};
use sigstore_verify::types::HashAlgorithm;

static RING: Ring = Ring;

/// Makes `ring` the cryptography of the library, which has none of its own.
pub(super) fn install() {
    // After the first time, it is installed already.
    let _ = install_default_provider(&RING);
}

#[derive(Debug)]
struct Ring;

struct Hash(Context);

impl HashContext for Hash {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn finalize(self: Box<Self>) -> Vec<u8> {
        self.0.finish().as_ref().to_vec()
    }
}

impl CryptoProvider for Ring {
    fn hash(&self, algorithm: HashAlgorithm) -> Result<Box<dyn HashContext>> {
        let algorithm = match algorithm {
            HashAlgorithm::Sha2256 => &SHA256,
            HashAlgorithm::Sha2384 => &SHA384,
            HashAlgorithm::Sha2512 => &SHA512,
            other => return Err(Error::UnsupportedAlgorithm(format!("digests of {other}"))),
        };
        Ok(Box::new(Hash(Context::new(algorithm))))
    }

    fn verify_raw(&self, scheme: SigningScheme, key: &[u8], data: &[u8], signature: &[u8]) -> Result<()> {
        let algorithm = algorithm(scheme).ok_or_else(|| unsupported(scheme))?;
        UnparsedPublicKey::new(algorithm, key).verify(data, signature).map_err(|_| invalid(scheme))
    }

    fn verify_prehashed(&self, scheme: SigningScheme, key: &[u8], digest: &[u8], signature: &[u8]) -> Result<()> {
        let verified = match scheme.key_algorithm() {
            KeyAlgorithm::EcdsaP256 => of_p256(key, digest, signature),
            KeyAlgorithm::EcdsaP384 => of_p384(key, digest, signature),
            _ => return Err(unsupported(scheme)),
        };
        verified.map_err(|_| invalid(scheme))
    }
}

fn of_p256(key: &[u8], digest: &[u8], signature: &[u8]) -> std::result::Result<(), p256::ecdsa::Error> {
    let key = p256::ecdsa::VerifyingKey::from_sec1_bytes(key)?;
    key.verify_prehash(digest, &p256::ecdsa::Signature::from_der(signature)?)
}

fn of_p384(key: &[u8], digest: &[u8], signature: &[u8]) -> std::result::Result<(), p384::ecdsa::Error> {
    let key = p384::ecdsa::VerifyingKey::from_sec1_bytes(key)?;
    key.verify_prehash(digest, &p384::ecdsa::Signature::from_der(signature)?)
}

/// Returns the algorithm of a scheme; `None` if `ring` does not have it.
fn algorithm(scheme: SigningScheme) -> Option<&'static dyn VerificationAlgorithm> {
    let algorithm: &'static dyn VerificationAlgorithm = match scheme {
        SigningScheme::EcdsaP256Sha256 => &ECDSA_P256_SHA256_ASN1,
        SigningScheme::EcdsaP256Sha384 => &ECDSA_P256_SHA384_ASN1,
        SigningScheme::EcdsaP384Sha256 => &ECDSA_P384_SHA256_ASN1,
        SigningScheme::EcdsaP384Sha384 => &ECDSA_P384_SHA384_ASN1,
        SigningScheme::Ed25519 => &ED25519,
        SigningScheme::RsaPssSha256 => &RSA_PSS_2048_8192_SHA256,
        SigningScheme::RsaPssSha384 => &RSA_PSS_2048_8192_SHA384,
        SigningScheme::RsaPssSha512 => &RSA_PSS_2048_8192_SHA512,
        SigningScheme::RsaPkcs1Sha256 => &RSA_PKCS1_2048_8192_SHA256,
        SigningScheme::RsaPkcs1Sha384 => &RSA_PKCS1_2048_8192_SHA384,
        SigningScheme::RsaPkcs1Sha512 => &RSA_PKCS1_2048_8192_SHA512,
        _ => return None,
    };
    Some(algorithm)
}

fn unsupported(scheme: SigningScheme) -> Error {
    Error::UnsupportedAlgorithm(format!("signatures of {}", scheme.name()))
}

fn invalid(scheme: SigningScheme) -> Error {
    Error::Verification(format!("the signature of {} is invalid", scheme.name()))
}

#[cfg(test)]
mod tests {
    use p384::ecdsa::signature::hazmat::PrehashSigner as _;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    #[test]
    fn verifies_a_signature_over_a_message_and_over_its_digest() {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, document.as_ref(), &random).unwrap();
        let (scheme, made) = (SigningScheme::EcdsaP256Sha256, pair.sign(&random, b"message").unwrap());
        let (key, signature): (&[u8], &[u8]) = (pair.public_key().as_ref(), made.as_ref());
        let digest = |data: &[u8]| RING.sha256(data);
        assert!(RING.verify_raw(scheme, key, b"message", signature).is_ok());
        assert!(RING.verify_raw(scheme, key, b"other", signature).is_err());
        assert!(RING.verify_prehashed(scheme, key, &digest(b"message"), signature).is_ok());
        assert!(RING.verify_prehashed(scheme, key, &digest(b"other"), signature).is_err());
        assert!(RING.verify_prehashed(scheme, &key[1..], &digest(b"message"), signature).is_err());
        assert!(RING.verify_prehashed(scheme, key, &digest(b"message"), &signature[1..]).is_err());
        assert!(RING.verify_prehashed(SigningScheme::Ed25519, key, &digest(b"message"), signature).is_err());
        assert!(RING.verify_raw(SigningScheme::MlDsa44, key, b"message", signature).is_err());
    }

    #[test]
    fn verifies_a_signature_of_p384_over_a_digest_of_sha256() {
        let pair = p384::ecdsa::SigningKey::from_slice(&[1; 48]).unwrap();
        let (scheme, digest) = (SigningScheme::EcdsaP384Sha256, RING.sha256(b"message"));
        let made: p384::ecdsa::Signature = pair.sign_prehash(&digest).unwrap();
        let (made, point) = (made.to_der(), pair.verifying_key().to_sec1_point(false));
        let (key, signature): (&[u8], &[u8]) = (point.as_ref(), made.as_ref());
        assert!(RING.verify_prehashed(scheme, key, &digest, signature).is_ok());
        assert!(RING.verify_prehashed(scheme, key, &RING.sha256(b"other"), signature).is_err());
        assert!(RING.verify_raw(scheme, key, b"message", signature).is_ok(), "ring agrees");
        assert!(RING.verify_raw(SigningScheme::EcdsaP384Sha384, key, b"message", signature).is_err());
    }
}
