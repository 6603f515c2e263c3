//! Verifies JSON Web Tokens by the issuer's keys and the authenticator's configuration.
//!
//! Invariant: only public-key signatures are accepted. `none` and HMAC are rejected regardless of the configuration.
//! Invariant: the key restricts the algorithm, not the token alone.
//!
//! Not here: encrypted tokens, `crit`, ES512, keys in tokens.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{self, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

/// Maximum size of a token in bytes.
const LONGEST: usize = 16 << 10;
/// Default algorithm.
const DEFAULT: &str = "RS256";

/// A parsed token.
#[derive(Debug)]
pub(super) struct Token<'t> {
    algorithm: String,
    pub(super) key: String,
    signed: &'t str,
    signature: Vec<u8>,
    pub(super) claims: Value,
}

/// Parses a token; `None` if it is malformed.
pub(super) fn read(text: &str) -> Option<Token<'_>> {
    if text.len() > LONGEST {
        return None;
    }
    let (signed, signature) = text.rsplit_once('.')?;
    let (head, claims) = signed.split_once('.')?;
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
    let json = |text: &str| serde_json::from_slice::<Value>(&decode(text)?).ok();
    let (head, claims) = (json(head)?, json(claims)?);
    // A critical extension must be understood, so the token is rejected.
    if head.get("crit").is_some() || !claims.is_object() {
        return None;
    }
    let word = |field: &str| head[field].as_str().map(str::to_owned);
    Some(Token { algorithm: word("alg")?, key: word("kid")?, signed, signature: decode(signature)?, claims })
}

/// Whether one of the keys signed the token with an allowed algorithm.
pub(super) fn is_signed(token: &Token<'_>, keys: &[Value], config: &Value) -> bool {
    let allowed = config["allowed_algorithms"].as_array().filter(|all| !all.is_empty());
    let is_allowed = allowed.map_or(token.algorithm == DEFAULT, |all| all.iter().any(|one| *one == *token.algorithm));
    let is_key = |key: &&Value| {
        let uses = key["use"].as_str().is_none_or(|used| used == "sig");
        let algorithm = key["alg"].as_str().is_none_or(|algorithm| algorithm == token.algorithm);
        key["kid"] == *token.key && uses && algorithm
    };
    is_allowed && keys.iter().filter(is_key).any(|key| verify(token, key).is_some())
}

fn verify(token: &Token<'_>, key: &Value) -> Option<()> {
    let part = |field: &str| BASE64_URL_SAFE_NO_PAD.decode(key[field].as_str()?).ok();
    let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
    let rsa: Option<&RsaParameters> = match token.algorithm.as_str() {
        "RS256" => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        "RS384" => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        "RS512" => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        "PS256" => Some(&signature::RSA_PSS_2048_8192_SHA256),
        "PS384" => Some(&signature::RSA_PSS_2048_8192_SHA384),
        "PS512" => Some(&signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    };
    let curve: Option<(&EcdsaVerificationAlgorithm, &str, usize)> = match token.algorithm.as_str() {
        "ES256" => Some((&signature::ECDSA_P256_SHA256_FIXED, "P-256", 32)),
        "ES384" => Some((&signature::ECDSA_P384_SHA384_FIXED, "P-384", 48)),
        _ => None,
    };
    match (key["kty"].as_str()?, rsa, curve) {
        ("RSA", Some(parameters), _) => {
            let key = RsaPublicKeyComponents { n: part("n")?, e: part("e")? };
            key.verify(parameters, message, signature).ok()
        }
        ("EC", _, Some((algorithm, name, size))) if key["crv"] == name => {
            let (x, y) = (part("x")?, part("y")?);
            let point = (x.len() == size && y.len() == size).then(|| [&[4][..], &x, &y].concat())?;
            UnparsedPublicKey::new(algorithm, point).verify(message, signature).ok()
        }
        ("OKP", ..) if token.algorithm == "EdDSA" && key["crv"] == "Ed25519" => {
            UnparsedPublicKey::new(&signature::ED25519, part("x")?).verify(message, signature).ok()
        }
        _ => None,
    }
}

/// Whether the claims are valid at `now`, in seconds since 1970.
pub(super) fn is_good(token: &Token<'_>, config: &Value, now: i64) -> bool {
    let claims = &token.claims;
    let time = |field: &str| match &claims[field] {
        Value::Null => Ok(None),
        value => value.as_f64().map(Some).ok_or(()),
    };
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact for a long time")]
    let now = now as f64;
    let (Ok(end), Ok(begin), Ok(issued)) = (time("exp"), time("nbf"), time("iat")) else { return false };
    // A token without expiry would be valid forever, so it is rejected.
    if end.is_none_or(|end| end <= now) || begin.is_some_and(|begin| begin > now) || issued.is_some_and(|at| at > now) {
        return false;
    }
    does_grant(claims, config, "wildcard")
}

/// Whether issuer, audience and scopes match the authenticator's configuration.
pub(super) fn does_grant(claims: &Value, config: &Value, strategy: &str) -> bool {
    let listed = |field: &str| -> Option<Vec<&str>> {
        match &config[field] {
            Value::Null => Some(Vec::new()),
            value => value.as_array()?.iter().map(Value::as_str).collect(),
        }
    };
    let (Some(issuers), Some(audiences), Some(scopes)) =
        (listed("trusted_issuers"), listed("target_audience"), listed("required_scope"))
    else {
        return false;
    };
    let issuer = claims["iss"].as_str();
    let is_trusted = issuers.is_empty() || issuer.is_some_and(|issuer| issuers.contains(&issuer));
    let audience = words(&claims["aud"], false);
    let granted = ["scp", "scope", "scopes"].into_iter().map(|field| &claims[field]).find(|value| !value.is_null());
    let granted = granted.map(|value| words(value, true)).unwrap_or_default();
    let covers = config["scope_strategy"].as_str().unwrap_or(strategy);
    is_trusted
        && audiences.iter().all(|wanted| audience.contains(wanted))
        && scopes.iter().all(|wanted| granted.iter().any(|scope| does_cover(covers, scope, wanted)))
}

/// Returns the words of a list or string. `has_blanks` splits a string at whitespace.
fn words(value: &Value, has_blanks: bool) -> Vec<&str> {
    match value {
        Value::String(text) if has_blanks => text.split_ascii_whitespace().collect(),
        Value::String(text) => vec![text],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether a granted scope covers a required one.
fn does_cover(strategy: &str, granted: &str, wanted: &str) -> bool {
    if granted == wanted {
        return true;
    }
    match strategy {
        "hierarchic" => wanted.strip_prefix(granted).is_some_and(|rest| rest.starts_with('.')),
        "wildcard" => {
            let (mut granted, mut wanted) = (granted.split('.').peekable(), wanted.split('.'));
            while let Some(part) = granted.next() {
                let Some(other) = wanted.next() else { return false };
                if other.is_empty() || (part != "*" && part != other) {
                    return false;
                }
                // A final star covers all remaining parts.
                if part == "*" && granted.peek().is_none() {
                    return true;
                }
            }
            wanted.next().is_none()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    fn encode(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Generates a P-256 key pair and its JWK.
    fn curve() -> (EcdsaKeyPair, Value) {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let key =
            json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": encode(&point[1..33]), "y": encode(&point[33..])});
        (pair, key)
    }

    fn signed(pair: &EcdsaKeyPair, head: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", encode(head.to_string()), encode(claims.to_string()));
        let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", encode(signature))
    }

    #[test]
    fn a_signature_by_a_known_key_and_an_allowed_algorithm_counts() {
        let (pair, key) = curve();
        let config = json!({"allowed_algorithms": ["ES256", "none", "HS256", "EdDSA"]});
        let check = |text: &str, config: &Value, expected: bool| {
            let is = read(text).is_some_and(|token| is_signed(&token, std::slice::from_ref(&key), config));
            assert_eq!(is, expected, "{text}");
        };
        let claims = json!({"exp": 10});
        let good = signed(&pair, &json!({"alg": "ES256", "kid": "one"}), &claims);
        check(&good, &config, true);
        check(&good, &json!({}), false);
        check(&signed(&pair, &json!({"alg": "ES256", "kid": "two"}), &claims), &config, false);
        check(&signed(&pair, &json!({"alg": "ES256"}), &claims), &config, false);
        check(&signed(&pair, &json!({"alg": "ES256", "kid": "one", "crit": ["exp"]}), &claims), &config, false);
        let (other, _) = curve();
        check(&signed(&other, &json!({"alg": "ES256", "kid": "one"}), &claims), &config, false);
        for algorithm in ["none", "None", "HS256", "EdDSA", "ES384", "RS256"] {
            check(&signed(&pair, &json!({"alg": algorithm, "kid": "one"}), &claims), &config, false);
        }
        let (text, _) = good.rsplit_once('.').unwrap();
        check(&format!("{text}."), &config, false);
        let unsigned = format!("{}.{}.", encode(r#"{"alg":"none","kid":"one"}"#), encode("{}"));
        check(&unsigned, &config, false);
        // A public key is not an HMAC secret.
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key["x"].as_str().unwrap().as_bytes());
        let text = format!("{}.{}", encode(r#"{"alg":"HS256","kid":"one"}"#), encode("{}"));
        let tag = ring::hmac::sign(&secret, text.as_bytes());
        check(&format!("{text}.{}", encode(tag)), &config, false);
        for bad in ["", "a", "a.b", "a.b.c", "....", &"x".repeat(100_000)] {
            check(bad, &config, false);
        }
    }

    #[test]
    fn a_key_of_ed25519_signs_too() {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let key = json!({"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": encode(pair.public_key().as_ref())});
        let text = format!("{}.{}", encode(r#"{"alg":"EdDSA","kid":"one"}"#), encode("{}"));
        let whole = format!("{text}.{}", encode(pair.sign(text.as_bytes())));
        let token = read(&whole).unwrap();
        assert!(is_signed(&token, &[key], &json!({"allowed_algorithms": ["EdDSA"]})));
    }

    #[test]
    fn claims_have_to_be_those_that_are_asked_for() {
        let check = |claims: Value, config: Value, expected: bool| {
            let text = format!("{}.{}.", encode(r#"{"alg":"ES256","kid":"one"}"#), encode(claims.to_string()));
            assert_eq!(is_good(&read(&text).unwrap(), &config, 100), expected, "{claims} {config}");
        };
        let none = json!({});
        check(json!({"exp": 101}), none.clone(), true);
        check(json!({"exp": 100}), none.clone(), false);
        check(json!({}), none.clone(), false);
        check(json!({"exp": "soon"}), none.clone(), false);
        check(json!({"exp": 101, "nbf": 101}), none.clone(), false);
        check(json!({"exp": 101, "iat": 101}), none, false);
        let issuers = json!({"trusted_issuers": ["https://a"]});
        check(json!({"exp": 101, "iss": "https://a"}), issuers.clone(), true);
        check(json!({"exp": 101, "iss": "https://b"}), issuers.clone(), false);
        check(json!({"exp": 101}), issuers, false);
        let audience = json!({"target_audience": ["x", "y"]});
        check(json!({"exp": 101, "aud": ["y", "x"]}), audience.clone(), true);
        check(json!({"exp": 101, "aud": "x"}), audience, false);
        let scope = json!({"required_scope": ["read"]});
        check(json!({"exp": 101, "scope": "write read"}), scope.clone(), true);
        check(json!({"exp": 101, "scp": ["read"]}), scope.clone(), true);
        check(json!({"exp": 101, "scp": ["write"], "scope": "read"}), scope.clone(), false);
        check(json!({"exp": 101}), scope.clone(), false);
        check(json!({"exp": 101, "scp": ["*"]}), scope, true);
        check(json!({"exp": 101, "scp": ["read"]}), json!({"required_scope": "read"}), false);
        let nested = |strategy: &str| json!({"required_scope": ["a.b.c"], "scope_strategy": strategy});
        check(json!({"exp": 101, "scp": ["a.*"]}), nested("wildcard"), true);
        check(json!({"exp": 101, "scp": ["a"]}), nested("wildcard"), false);
        check(json!({"exp": 101, "scp": ["a"]}), nested("hierarchic"), true);
        check(json!({"exp": 101, "scp": ["a.*"]}), nested("exact"), false);
        check(json!({"exp": 101, "scp": ["a.*"]}), nested("foo"), false);
    }
}
