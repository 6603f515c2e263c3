//! Signs JSON Web Tokens with RSA keys, with which servers issue tokens.
//!
//! Invariant: no error shows any part of a key.
//!
//! Not here: clocks, and the claims of a server.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

/// Reads an RSA private key in PEM format; `None` if it is a different key or has less than 2048 bits.
pub(super) fn rsa_key(pem: &str) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs1(der)) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
        Ok(PrivateKeyDer::Pkcs8(der)) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        _ => None,
    }
}

/// Returns the signed token; `None` if the key cannot sign. The header must have `"alg":"RS256"`.
pub(super) fn rs256(key: &RsaKeyPair, header: &Value, claims: &Value) -> Option<String> {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let mut signature = vec![0; key.public().modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).ok()?;
    Some(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
}
