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
    pub(super) fn check(&self, audience: &str, now: Timestamp) -> Result<(), TokenFlaw> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::hmac;
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    };
    use serde_json::json;

    use super::*;

    /// An RSA key, and tokens that it has signed.
    const MODULUS: &str = "mF5GughMer0cZFb9yc1zEZIJTiqcyGZF1EH2TbCH7IsISvqFdp61dVC8MDMwegPsw6xnFtxvapi8glZlRFmWh56S-esb54C7Rnya\
                         zvK0vLfsZk2Sxagf7kERjO-fQN8B9EvVrEselfYKmtKUmIQh7sIERQ3XPKrESR43uwTd4cAPHDhyJqHoNAqKD8LShGXQnmZprwtK\
                         -pTwgkoQF3fpLATm2C8yRJC2uIgY3V_R3KzWPMZkyTkHEIwmGFiGzPjy-lnFnA8tiz0pfFjuWJV38TMlMjro7wwg7ylsrDunWgTz\
                         LlEejnE57Vu3uQZD4942WllsW9K1p9NaW-2vIYBDjw";
    const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJodHRwczovL2NpLmV4YW1wbGUuY29tIiwiYXVkIjoibWFpbnN0YXkiL\
                         CJleHAiOjIwMDAwMDAwMDB9.kkAcBLPug7bjFc3nbxrlhtoN8Z-AeHHYevyYbu3vNUq-pKZ1eS7pGX_UgPd-DpPQUBD94TIKrLFv\
                         kzWqJw5iEto7GD0vObHUjIq2Y-oKDsyWbaug-k0ArVmf-T6NZFatKjWYjzk1-PW_kD_Kjyqzg3JzfYkb6KcZMgo2_r10gLoMT5tX\
                         pN186q-_d3Eo78SHM8lHOzt0knXxYO9AK13BdWikYl4SjX_McjsmJ3wjL3A2B1Q5ISpmEvL1PumN8s98nQMfYVhS3cRujnysGsn1\
                         rRUrU3WATgC-mmrLxk9eP0kOJOWC0tvQ7jCVopaTX2nROWaIueGMDoa6q6RbkJT74Q";
    const PS256: &str = "eyJhbGciOiJQUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJodHRwczovL2NpLmV4YW1wbGUuY29tIiwiYXVkIjoibWFpbnN0YXkiL\
                         CJleHAiOjIwMDAwMDAwMDB9.ZjDalLqdImJBjSRDs5jtTc3E5y58XzqHK7sNtFbI4oJwFxKBlRxep7nmeRPi3S_8JHBt_lFR_Hgx\
                         wdlfBEOndXkOjHpeWv7GXxYx9nI2V2Ix75btloAeo9xdZCBWP_NFN4UJ7tIDiYMTRrjt0hVIqGcvqytEQe6d-A8_akQxui5MWf54\
                         MlNJhmFHVUdh0wPtFqIg6OAXTKavn-9MLXsWxPk7h_4OaBVGJlv0_hQ4_Di1ZBokYsV35Da_YMtZKRzA5U6d-ghgXhWeEumbUMRx\
                         tcIZc_pb40giutfJGp7aOrEKe4pZP4HqpdcPYtrQ-bTZC42lEbZZ5aitRTkjuIcRJQ";

    fn now() -> Timestamp {
        Timestamp::from_second(1_900_000_000).unwrap()
    }

    fn claims() -> Value {
        json!({"iss": "https://ci.example.com", "aud": "mainstay", "exp": 2_000_000_000})
    }

    fn encoded(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    fn unsigned(header: &Value, claims: &Value) -> String {
        format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()))
    }

    fn rsa() -> Value {
        json!({"kty": "RSA", "kid": "r", "n": MODULUS, "e": "AQAB"})
    }

    struct Signer {
        algorithm: &'static str,
        pair: EcdsaKeyPair,
    }

    impl Signer {
        fn new(algorithm: &'static str) -> Self {
            let signing = match algorithm {
                "ES384" => &ECDSA_P384_SHA384_FIXED_SIGNING,
                _ => &ECDSA_P256_SHA256_FIXED_SIGNING,
            };
            let random = SystemRandom::new();
            let document = EcdsaKeyPair::generate_pkcs8(signing, &random).unwrap();
            Self { algorithm, pair: EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).unwrap() }
        }

        fn key(&self, kid: &str) -> Value {
            let point = &self.pair.public_key().as_ref()[1..];
            let (x, y) = point.split_at(point.len() / 2);
            let curve = if self.algorithm == "ES384" { "P-384" } else { "P-256" };
            json!({"kty": "EC", "use": "sig", "kid": kid, "crv": curve, "x": encoded(x), "y": encoded(y)})
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let signed = unsigned(header, claims);
            let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
            format!("{signed}.{}", encoded(signature.as_ref()))
        }

        /// Signs claims in the usual way.
        fn token(&self, claims: &Value) -> String {
            self.sign(&json!({"alg": self.algorithm, "kid": "k", "typ": "JWT"}), claims)
        }
    }

    fn checked(token: &str, keys: &[Value]) -> Result<(), TokenFlaw> {
        let keys: CoreJsonWebKeySet = serde_json::from_value(json!({"keys": keys})).unwrap();
        let token = Token::parse(token)?;
        assert_eq!(token.issuer(), Some("https://ci.example.com"));
        token.check("mainstay", now())?;
        token.verify(&keys).map(drop)
    }

    #[test]
    fn a_token_of_each_kind_of_key_is_accepted() {
        for algorithm in ["ES256", "ES384"] {
            let signer = Signer::new(algorithm);
            assert_eq!(
                checked(&signer.token(&claims()), &[signer.key("other"), signer.key("k")]),
                Ok(()),
                "{algorithm}"
            );
            let without_name = signer.sign(&json!({"alg": algorithm}), &claims());
            assert_eq!(checked(&without_name, &[signer.key("any")]), Ok(()), "{algorithm}");
        }
        for token in [RS256, PS256] {
            assert_eq!(checked(token, &[rsa()]), Ok(()), "{token}");
        }
    }

    #[test]
    fn a_token_that_the_issuer_has_not_signed_is_refused() {
        let (signer, other) = (Signer::new("ES256"), Signer::new("ES256"));
        let keys = [signer.key("k")];
        assert_eq!(checked(&other.token(&claims()), &keys), Err(TokenFlaw::Signature));
        let unknown = signer.sign(&json!({"alg": "ES256", "kid": "K"}), &claims());
        assert_eq!(checked(&unknown, &keys), Err(TokenFlaw::Key));
        assert_eq!(checked(&signer.token(&claims()), &[]), Err(TokenFlaw::Key));
        // The signature of other claims.
        let (token, mut changed) = (signer.token(&claims()), claims());
        changed["sub"] = "admin".into();
        let header = json!({"alg": "ES256", "kid": "k", "typ": "JWT"});
        let forged = format!("{}.{}", unsigned(&header, &changed), token.rsplit_once('.').unwrap().1);
        assert_eq!(checked(&forged, &keys), Err(TokenFlaw::Signature));
        let (bare, _) = token.rsplit_once('.').unwrap();
        for signature in ["", "AA", &encoded([0_u8; 64]), &encoded(vec![1_u8; 4096])] {
            assert_eq!(checked(&format!("{bare}.{signature}"), &keys), Err(TokenFlaw::Signature), "{signature}");
        }
        let (bare, _) = RS256.rsplit_once('.').unwrap();
        assert_eq!(checked(&format!("{bare}.{}", encoded([0_u8; 256])), &[rsa()]), Err(TokenFlaw::Signature));
    }

    #[test]
    fn no_algorithm_but_the_issuers_own_is_accepted() {
        let signer = Signer::new("ES256");
        let (key, public) = (signer.key("k"), signer.pair.public_key().as_ref().to_vec());
        let mac = |algorithm: &str, secret: &[u8]| {
            let signed = unsigned(&json!({"alg": algorithm, "kid": "k"}), &claims());
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
            format!("{signed}.{}", encoded(tag))
        };
        let secret = json!({"kty": "oct", "kid": "k", "alg": "HS256", "k": encoded("secret")});
        let keys = [key.clone(), secret];
        for secret in [public.as_slice(), key.to_string().as_bytes(), MODULUS.as_bytes(), b"secret", b""] {
            assert_eq!(checked(&mac("HS256", secret), &keys), Err(TokenFlaw::Algorithm));
            // The signature is that of a shared secret, under an accepted name.
            assert_eq!(checked(&mac("ES256", secret), &keys), Err(TokenFlaw::Signature));
        }
        for algorithm in ["none", "None", "", "HS384", "HS512", "ES512", "EdDSA", "RSA-OAEP", "es256"] {
            let token = signer.sign(&json!({"alg": algorithm, "kid": "k"}), &claims());
            assert_eq!(checked(&token, &keys), Err(TokenFlaw::Algorithm), "{algorithm}");
            let bare = format!("{}.", unsigned(&json!({"alg": algorithm, "kid": "k"}), &claims()));
            assert_eq!(checked(&bare, &keys), Err(TokenFlaw::Algorithm), "{algorithm}");
        }
        for algorithm in ["RS256", "PS512", "ES384"] {
            let token = signer.sign(&json!({"alg": algorithm, "kid": "k"}), &claims());
            assert_eq!(checked(&token, std::slice::from_ref(&key)), Err(TokenFlaw::Signature), "{algorithm}");
        }
        let mut of_one_algorithm = rsa();
        of_one_algorithm["alg"] = "PS256".into();
        assert_eq!(checked(PS256, std::slice::from_ref(&of_one_algorithm)), Ok(()));
        assert_eq!(checked(RS256, &[of_one_algorithm]), Err(TokenFlaw::Signature));
        let mut for_encryption = rsa();
        for_encryption["use"] = "enc".into();
        assert_eq!(checked(RS256, &[for_encryption]), Err(TokenFlaw::Signature));
    }

    #[test]
    fn a_token_is_for_one_audience_and_for_a_time() {
        let signer = Signer::new("ES256");
        let keys = [signer.key("k")];
        let now = now().as_second();
        for (change, expected) in [
            (json!({"aud": ["a", "mainstay"]}), Ok(())),
            (json!({"aud": "mainstay2"}), Err(TokenFlaw::Audience)),
            (json!({"aud": []}), Err(TokenFlaw::Audience)),
            (json!({"aud": null}), Err(TokenFlaw::Malformed)),
            (json!({"aud": 7}), Err(TokenFlaw::Malformed)),
            (json!({"exp": now + 1, "nbf": now + 60}), Ok(())),
            (json!({"exp": 2e9}), Ok(())),
            (json!({"exp": now}), Err(TokenFlaw::Expired)),
            (json!({"exp": -1}), Err(TokenFlaw::Expired)),
            (json!({"nbf": now + 61}), Err(TokenFlaw::Early)),
            (json!({"exp": null}), Err(TokenFlaw::Malformed)),
            (json!({"exp": "2000000000"}), Err(TokenFlaw::Malformed)),
            (json!({"exp": 1e300}), Err(TokenFlaw::Malformed)),
            (json!({"nbf": u64::MAX}), Err(TokenFlaw::Malformed)),
        ] {
            let mut claims = claims();
            json_patch::merge(&mut claims, &change);
            assert_eq!(checked(&signer.token(&claims), &keys), expected, "{change}");
        }
    }

    #[test]
    fn a_malformed_or_large_token_is_refused() {
        let deep = format!("{}{}", "[".repeat(50), "]".repeat(50));
        let header = json!({"alg": "ES256", "kid": "k"});
        let (part, good) = (encoded(header.to_string()), encoded(claims().to_string()));
        for token in [
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            "a.b".to_owned(),
            format!("{part}.{good}"),
            format!("{part}.{good}.AA.AA"),
            format!("{part}=.{good}.AA"),
            format!("{part}.{}.AA", encoded("[]")),
            format!("{part}.{}.AA", encoded("{")),
            format!("{part}.{}.AA", encoded([0xff_u8, 0xfe])),
            format!("{part}.{}.AA", encoded(format!(r#"{{"iss": {deep}}}"#))),
            format!("{part}.{}.AA", encoded(format!("{{\"a\": [{}0]}}", "0,".repeat(5000)))),
            format!("{part}.{good}.{}", "A".repeat(1 << 20)),
            format!("{}.{good}.AA", encoded(r#"{"alg": "ES256", "crit": ["b64"], "b64": false}"#)),
            format!("{}.{good}.AA", encoded(r#"{"kid": "k"}"#)),
            format!("{}.{good}.AA", encoded(r#"{"alg": "ES256", "kid": 7}"#)),
        ] {
            let short: String = token.chars().take(100).collect();
            assert_eq!(Token::parse(&token).err(), Some(TokenFlaw::Malformed), "{short}");
        }
    }

    #[test]
    fn a_bearer_token_is_sent_once() {
        let check = |values: &[&str], expected: Result<&str, TokenFlaw>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            assert_eq!(bearer(&headers), expected, "{values:?}");
        };
        check(&["Bearer a.b.c"], Ok("a.b.c"));
        check(&["bearer  a.b.c "], Ok("a.b.c"));
        check(&[], Err(TokenFlaw::Missing));
        check(&["a.b.c"], Err(TokenFlaw::Malformed));
        check(&["Basic a.b.c"], Err(TokenFlaw::Malformed));
        check(&["Bearer a.b.c", "Bearer a.b.c"], Err(TokenFlaw::Malformed));
    }

    proptest! {
        /// Any text is parsed or refused.
        #[test]
        fn a_text_is_parsed_or_refused(text in ".{0,200}") {
            let _ = Token::parse(&text);
        }

        /// A token with a changed byte has no valid signature.
        #[test]
        fn a_damaged_token_is_refused(at in 0..RS256.len(), byte in any::<u8>()) {
            let keys: CoreJsonWebKeySet = serde_json::from_value(json!({"keys": [rsa()]})).unwrap();
            let mut text = RS256.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(text) = String::from_utf8(text) {
                let verified = Token::parse(&text).and_then(|token| token.verify(&keys));
                prop_assert_eq!(verified.is_ok(), text == RS256);
            }
        }
    }
}
