//! Reads fields of the providers' responses.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::Value;
use zeroize::Zeroizing;

/// Maximum length of a token, in bytes.
const TOKEN_BYTES: usize = 16 << 10;
/// Maximum length of an error code, in bytes.
const CODE_BYTES: usize = 64;

/// Returns a token if it can be part of a header.
pub(super) fn token(text: &str) -> Option<Zeroizing<String>> {
    let is_plain = !text.is_empty() && text.len() <= TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| Zeroizing::new(text.to_owned()))
}

/// Returns the code of an error if it is a plain word. All other text of a response is hidden.
pub(super) fn code(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (!text.is_empty() && text.len() <= CODE_BYTES && text.chars().all(is_plain)).then(|| text.to_owned())
}

/// Returns a number of seconds, which may be a number or a string.
pub(super) fn seconds(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).filter(|seconds| (0..=86_400 * 30).contains(seconds))
}

/// Returns the expiry in a JSON Web Token, in seconds since 1970. The signature is not checked, because the token is
/// used only with the server that has issued it.
pub(super) fn expiry(token: &str) -> Option<i64> {
    let claims = token.split('.').nth(1)?;
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    claims["exp"].as_f64().filter(|end| (0.0..1e11).contains(end)).map(whole)
}

/// Returns the whole seconds.
#[expect(clippy::cast_possible_truncation, reason = "the callers have checked the range")]
pub(super) fn whole(seconds: f64) -> i64 {
    seconds as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_expiry_of_a_token_and_refuses_everything_else() {
        let of = |claims: &str| expiry(&format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims)));
        assert_eq!(of(r#"{"exp":1700000000}"#), Some(1_700_000_000));
        assert_eq!(of(r#"{"exp":-1}"#), None);
        assert_eq!(of(r#"{"exp":1e300}"#), None);
        assert_eq!(of(r#"{"exp":"soon"}"#), None);
        assert_eq!(of("[]"), None);
        assert_eq!(expiry("one.two"), None);
        assert_eq!(expiry(""), None);
    }

    #[test]
    fn shows_plain_codes_only() {
        assert_eq!(code("AccessDenied").as_deref(), Some("AccessDenied"));
        assert_eq!(code("eyJ0 hunter2"), None);
        assert_eq!(code(&"a".repeat(65)), None);
        assert!(token("a b").is_none() && token("").is_none() && token("a\n").is_none());
        assert_eq!(seconds(&serde_json::json!("3599")), Some(3599));
        assert_eq!(seconds(&serde_json::json!(-5)), None);
    }
}
