//! Tokens of users: read from a form or a header, and their expiry.
//!
//! Not here: the validity of tokens, which the API server checks.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use serde_json::Value;

/// Maximum length of a token, in bytes.
const LONGEST: usize = 12 << 10;

/// Returns a string as a token, if it can be a token.
pub(crate) fn token(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_token = !text.is_empty() && text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_token.then_some(text)
}

/// Returns the token of a request: from its header `Authorization`, which must be the only one and have the scheme
/// `Bearer`.
pub(crate) fn of_headers(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, text) = only.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(text).and_then(token)
}

/// Returns the expiry that a token states, if the token is a JWT with an expiry. The expiry is not verified, because a
/// user who forges it only shortens their own session.
pub(crate) fn expiry(token: &str) -> Option<Timestamp> {
    let payload = token.split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_token_is_one_word_of_one_header() {
        assert_eq!(of_headers(&headers(&["Bearer abc"])), Some("abc"));
        assert_eq!(of_headers(&headers(&["bearer  abc "])), Some("abc"));
        for values in [&[][..], &["abc"], &["Basic abc"], &["Bearer "], &["Bearer a b"], &["Bearer a", "Bearer b"]] {
            assert_eq!(of_headers(&headers(values)), None, "{values:?}");
        }
        assert_eq!(token(&"a".repeat(LONGEST + 1)), None);
        assert_eq!(token("a\r\nb"), None);
        assert_eq!(token("ä"), None);
    }

    #[test]
    fn an_expiry_is_read_from_a_jwt_only() {
        let of = |claims: &str| expiry(&format!("e30.{}.x", BASE64_URL_SAFE_NO_PAD.encode(claims)));
        assert_eq!(of(r#"{"exp": 60}"#).map(Timestamp::as_second), Some(60));
        for claims in ["{}", r#"{"exp": "60"}"#, r#"{"exp": 9e99}"#, "[]", "x"] {
            assert_eq!(of(claims), None, "{claims}");
        }
        for token in ["", "a", "a.b", "a.!.c", "opaque"] {
            assert_eq!(expiry(token), None, "{token}");
        }
    }
}
