//! The signing key of a server: signs JSON Web Tokens with ECDSA (`ES256`) and verifies its own signatures.
//!
//! Not here: the meaning of claims (`tokens`).

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Maximum length of a token, in bytes.
const MAX_TOKEN: usize = 16 << 10;

/// The DER prefix (`SubjectPublicKeyInfo`) before the point of a P-256 key.
const DER_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Size of a coordinate of the public key, in bytes.
const COORDINATE: usize = 32;

/// The signing key of a server.
pub struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// Generates a new key; `None` if the machine has no randomness.
    pub fn new() -> Option<Self> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).ok()?;
        let mut hash = Sha256::new_with_prefix(DER_HEAD);
        hash.update(key.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(hash.finalize());
        Some(Self { key, random, id })
    }

    /// Signs a token with these claims.
    pub fn sign(&self, claims: &Value) -> Option<String> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&json!({"alg": "ES256", "kid": self.id})), part(claims));
        let signature = self.key.sign(&self.random, text.as_bytes()).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the public key as a JSON Web Key Set.
    pub fn keys(&self) -> Value {
        // An uncompressed point: a byte 4, then both coordinates.
        let point = self.key.public_key().as_ref();
        let coordinate = |place: usize| {
            let start = 1 + place * COORDINATE;
            URL_SAFE_NO_PAD.encode(point.get(start..start + COORDINATE).unwrap_or_default())
        };
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": coordinate(0), "y": coordinate(1),
        }]})
    }

    /// Returns the claims of a token that this key has signed.
    pub fn verify(&self, token: &str) -> Option<Value> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (text, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref());
        key.verify(text.as_bytes(), &signature).ok()?;
        let (_, claims) = text.split_once('.')?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_its_own_signature_only() {
        let (mine, other) = (Signer::new().unwrap(), Signer::new().unwrap());
        let token = mine.sign(&json!({"sub": "a"})).unwrap();
        assert_eq!(mine.verify(&token).unwrap()["sub"], "a");
        assert!(other.verify(&token).is_none());
        let forged = format!(
            "{}.{}.{}",
            token.split('.').next().unwrap(),
            URL_SAFE_NO_PAD.encode("{\"sub\":\"b\"}"),
            token.rsplit('.').next().unwrap()
        );
        assert!(mine.verify(&forged).is_none());
        for hostile in ["", ".", "..", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
            assert!(mine.verify(hostile).is_none(), "{hostile}");
        }
    }
}
