//! Verifies the token of a delivery: a JWT that an issuer of OpenID Connect has signed.
//!
//! Invariant: only public-key algorithms are accepted, whatever the token says, so that no public key serves as a shared
//! secret.
//! Invariant: claims are returned only after the signature is verified, and no error quotes a part of the token.
//!
//! Not here: the keys (`issuers`), and the conditions for claims (`providers`).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use bounded_json::Bounds;
use http::{HeaderMap, header};
use jiff::{SignedDuration, Timestamp};
use openidconnect::JsonWebKey as _;
use openidconnect::core::{CoreJsonWebKey, CoreJsonWebKeySet, CoreJwsSigningAlgorithm};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Bounds of a part of a token. Tokens of known issuers have up to 4 KiB.
const BOUNDS: Bounds = Bounds { bytes: 16 << 10, values: 4096, depth: 16 };
/// Maximum length of a token, in bytes.
const LONGEST: usize = 24 << 10;
/// Maximum number of keys that are tried. An issuer that rotates keys has several without a name at most briefly.
const MOST_KEYS: usize = 4;
/// How far ahead the clock of an issuer may be.
const AHEAD: SignedDuration = SignedDuration::from_secs(60);

/// The reason why the token of a delivery is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenFlaw {
    /// There is no token.
    #[error("the header Authorization is missing: let the sender add a bearer token of the issuer")]
    Missing,
    /// The header has no token that can be parsed.
    #[error("the header Authorization must be one bearer token (JWT) with the claims iss, aud and exp")]
    Malformed,
    /// The algorithm is not accepted.
    #[error(
        "the algorithm of the token is not supported: use RS256, RS384, RS512, PS256, PS384, PS512, ES256 or ES384"
    )]
    Algorithm,
    /// No issuer of the Receiver is the issuer of the token.
    #[error("the issuer of the token (iss) is not an issuer of this Receiver")]
    Issuer,
    /// The audience is a different one.
    #[error("the audience of the token (aud) is not that of this Receiver")]
    Audience,
    /// The token has expired.
    #[error("the token has expired (exp)")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet (nbf)")]
    Early,
    /// The issuer has no such key.
    #[error("the issuer has no key with the name in the token (kid)")]
    Key,
    /// The signature is wrong.
    #[error("the signature of the token does not match the keys of its issuer")]
    Signature,
    /// The service account is a different one, or its address is not verified.
    #[error("the token is not of the service account in the key email of the Receiver's Secret")]
    Email,
    /// An expression is false. The text is that of the Receiver.
    #[error("the token is refused: {0}")]
    Invalid(String),
    /// An expression has no result.
    #[error("the token is refused: spec.oidcProviders[].{field}[{number}] cannot be evaluated: {why}")]
    Unevaluated {
        /// `variables` or `validations`.
        field: &'static str,
        /// The index of the expression.
        number: usize,
        /// The error of the expression.
        why: String,
    },
}

/// A token whose signature is not verified yet.
pub(super) struct Token<'t> {
    algorithm: CoreJwsSigningAlgorithm,
    /// The name of the key.
    kid: Option<String>,
    claims: Map<String, Value>,
    signed: &'t str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that a verifier must know.
    crit: Option<IgnoredAny>,
}

/// Returns the bearer token of a delivery.
pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, TokenFlaw> {
    let mut sent = headers.get_all(header::AUTHORIZATION).iter();
    let value = sent.next().ok_or(TokenFlaw::Missing)?;
    // If a header occurs twice, a proxy may have checked the other occurrence.
    if sent.next().is_some() {
        return Err(TokenFlaw::Malformed);
    }
    let (scheme, token) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(TokenFlaw::Malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(TokenFlaw::Malformed) }
}

impl<'t> Token<'t> {
    /// Parses a token.
    pub(super) fn parse(text: &'t str) -> Result<Self, TokenFlaw> {
        if text.len() > LONGEST {
            return Err(TokenFlaw::Malformed);
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(TokenFlaw::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFlaw::Malformed)?;
        let Header { alg, kid, crit } = part(header)?;
        if crit.is_some() {
            return Err(TokenFlaw::Malformed);
        }
        let algorithm = algorithm(&alg).ok_or(TokenFlaw::Algorithm)?;
        Ok(Self { algorithm, kid, claims: part(claims)?, signed, signature: decoded(signature)? })
    }

    /// Returns the issuer that the token names.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Checks the audience and the times, so that a token for others causes no request to its issuer.
    pub(super) fn is_for(&self, audience: &str, now: Timestamp) -> Result<(), TokenFlaw> {
        let is_audience = match self.claims.get("aud") {
            Some(Value::String(one)) => one == audience,
            Some(Value::Array(all)) => all.iter().any(|one| one == audience),
            _ => return Err(TokenFlaw::Malformed),
        };
        if !is_audience {
            return Err(TokenFlaw::Audience);
        }
        if self.time("exp")?.ok_or(TokenFlaw::Malformed)? <= now {
            return Err(TokenFlaw::Expired);
        }
        if self.time("nbf")?.is_some_and(|start| start.duration_since(now) > AHEAD) {
            return Err(TokenFlaw::Early);
        }
        Ok(())
    }

    /// Whether one of the keys may be that of the token.
    pub(super) fn has_key(&self, keys: &CoreJsonWebKeySet) -> bool {
        self.candidates(keys).next().is_some()
    }

    /// Verifies the signature. Returns the claims.
    pub(super) fn verify(self, keys: &CoreJsonWebKeySet) -> Result<Map<String, Value>, TokenFlaw> {
        if !self.has_key(keys) {
            return Err(TokenFlaw::Key);
        }
        // The key itself refuses an algorithm of another kind of key, or other than its own.
        let is_right = |key: &CoreJsonWebKey| {
            key.verify_signature(&self.algorithm, self.signed.as_bytes(), &self.signature).is_ok()
        };
        if self.candidates(keys).any(is_right) { Ok(self.claims) } else { Err(TokenFlaw::Signature) }
    }

    fn candidates<'k>(&self, keys: &'k CoreJsonWebKeySet) -> impl Iterator<Item = &'k CoreJsonWebKey> {
        let is_named = move |key: &&CoreJsonWebKey| match &self.kid {
            Some(kid) => key.key_id().is_some_and(|id| **id == *kid),
            None => true,
        };
        keys.keys().iter().filter(is_named).take(MOST_KEYS)
    }

    /// Returns the time in a claim.
    fn time(&self, name: &str) -> Result<Option<Timestamp>, TokenFlaw> {
        let Some(claim) = self.claims.get(name) else { return Ok(None) };
        let since = claim.as_f64().and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
        let time = since.and_then(|since| Timestamp::from_duration(since).ok());
        time.map(Some).ok_or(TokenFlaw::Malformed)
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, TokenFlaw> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenFlaw::Malformed)
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, TokenFlaw> {
    BOUNDS.read(&decoded(text)?).map_err(|_| TokenFlaw::Malformed)
}

/// Returns an accepted algorithm. Those with a shared secret, `none` and unknown ones are not accepted.
fn algorithm(name: &str) -> Option<CoreJwsSigningAlgorithm> {
    match name {
        "RS256" => Some(CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256),
        "RS384" => Some(CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384),
        "RS512" => Some(CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512),
        "PS256" => Some(CoreJwsSigningAlgorithm::RsaSsaPssSha256),
        "PS384" => Some(CoreJwsSigningAlgorithm::RsaSsaPssSha384),
        "PS512" => Some(CoreJwsSigningAlgorithm::RsaSsaPssSha512),
        "ES256" => Some(CoreJwsSigningAlgorithm::EcdsaP256Sha256),
        "ES384" => Some(CoreJwsSigningAlgorithm::EcdsaP384Sha384),
        _ => None,
    }
}
