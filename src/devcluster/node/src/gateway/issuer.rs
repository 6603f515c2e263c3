//! A token issuer for trying out authentication: its key, its tokens and their introspection.
//!
//! Invariant: the gateway issues no tokens. Only a process that can read the key can create them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::jwt;

/// Host of the issuer's endpoints.
pub const HOST: &str = "issuer.localhost";
/// Value of the claim `iss`.
pub const ISSUER: &str = "http://issuer.localhost";
/// Path of the JWKS.
pub const KEYS: &str = "/keys";
/// Path of the introspection.
pub const INTROSPECT: &str = "/introspect";
/// Signature algorithm.
pub(super) const ALGORITHM: &str = "ES256";

/// An issuer with its key.
#[derive(Debug)]
pub struct Issuer {
    pair: EcdsaKeyPair,
    name: String,
    keys: Vec<Value>,
}

/// The claims of a token.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Subject.
    pub subject: &'a str,
    /// Granted scopes.
    pub scopes: &'a [String],
    /// Audiences.
    pub audiences: &'a [String],
    /// Time of issue in seconds since 1970.
    pub now: i64,
    /// Expiry in seconds since 1970.
    pub end: i64,
}

impl Issuer {
    /// Generates a key as PKCS#8; `None` if no random bytes are available.
    pub fn new_key() -> Option<Vec<u8>> {
        let document = EcdsaKeyPair::generate_pkcs8(&SIGNING, &SystemRandom::new()).ok()?;
        Some(document.as_ref().to_vec())
    }

    /// Creates the issuer of a key; `None` if the key is invalid.
    pub fn new(key: &[u8]) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&SIGNING, key, &SystemRandom::new()).ok()?;
        let point = pair.public_key().as_ref().to_vec();
        let name = hex::encode(&Sha256::digest(&point)[..8]);
        let (x, y) = (encode(point.get(1..33)?), encode(point.get(33..)?));
        let key = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": ALGORITHM, "kid": name, "x": x, "y": y});
        Some(Self { pair, name, keys: vec![key] })
    }

    /// Creates a token; `None` if no random bytes are available.
    pub fn token(&self, wanted: Wanted<'_>) -> Option<String> {
        let head = json!({"alg": ALGORITHM, "typ": "JWT", "kid": self.name});
        let claims = json!({
            "iss": ISSUER, "sub": wanted.subject, "aud": wanted.audiences, "scope": wanted.scopes.join(" "),
            "iat": wanted.now, "exp": wanted.end,
        });
        let text = format!("{}.{}", encode(head.to_string()), encode(claims.to_string()));
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes()).ok()?;
        Some(format!("{text}.{}", encode(signature)))
    }

    /// Returns the public keys as JWKs.
    pub(super) fn keys(&self) -> &[Value] {
        &self.keys
    }

    /// Returns the introspection of a token.
    pub(super) fn introspect(&self, token: &str, now: i64) -> Value {
        let config = json!({"allowed_algorithms": [ALGORITHM], "trusted_issuers": [ISSUER]});
        let token = jwt::read(token).filter(|token| jwt::is_signed(token, &self.keys, &config));
        match token.filter(|token| jwt::is_good(token, &config, now)) {
            Some(mut token) => {
                token.claims["active"] = true.into();
                token.claims["token_use"] = "access_token".into();
                token.claims
            }
            None => json!({"active": false}),
        }
    }
}

/// Whether a URL belongs to this issuer.
pub(super) fn is_own(address: &str) -> bool {
    address.parse().is_ok_and(|address: http::Uri| {
        address.scheme_str() == Some("http") && address.host().is_some_and(|host| host.eq_ignore_ascii_case(HOST))
    })
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_until_it_ends_and_only_by_its_issuer() {
        let (issuer, other) = (Issuer::new(&Issuer::new_key().unwrap()), Issuer::new(&Issuer::new_key().unwrap()));
        let (issuer, other) = (issuer.unwrap(), other.unwrap());
        let scopes = ["read".to_owned(), "write".to_owned()];
        let token = issuer.token(Wanted { subject: "me", scopes: &scopes, audiences: &[], now: 10, end: 20 }).unwrap();
        let said = issuer.introspect(&token, 15);
        assert_eq!((&said["active"], &said["scope"], &said["sub"]), (&json!(true), &json!("read write"), &json!("me")));
        let none = json!({"active": false});
        assert_eq!((issuer.introspect(&token, 20), other.introspect(&token, 15)), (none.clone(), none.clone()));
        assert_eq!(issuer.introspect("x", 15), none);
        assert!(Issuer::new(b"x").is_none());
    }

    #[test]
    fn its_addresses_are_those_of_its_host() {
        assert!(is_own("http://issuer.localhost:8080/keys") && is_own("http://Issuer.localhost/introspect"));
        for other in
            ["http://issuer.localhost.example.com/", "https://issuer.localhost/", "http://issuer.localhost@a/", ""]
        {
            assert!(!is_own(other), "{other}");
        }
    }
}
