//! Attempts to sign in with an issuer of OpenID Connect. An attempt begins when the browser leaves for the issuer, and
//! ends when it returns.
//!
//! The attempt is in a cookie of the browser. State, nonce and the verifier of PKCE are derived from this cookie with a
//! key of the process, so open attempts take no memory of the server.
//!
//! Invariant: only the browser that began an attempt can end it, within ten minutes, at the host at which it began.
//! Invariant: a URL contains neither the cookie nor the verifier.
//!
//! Not here: requests to the issuer (`serve::issuer`).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::{SignedDuration, Timestamp};
use ring::hmac;

use crate::address;

/// Maximum duration of an attempt.
const LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// Maximum length of the page to open afterwards, in bytes. Browsers limit the size of a cookie.
const NEXT: usize = 1 << 10;

/// An attempt to sign in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// The value of the cookie.
    pub(crate) cookie: String,
    /// The value that the issuer returns.
    pub(crate) state: String,
    /// The value that the ID token contains.
    pub(crate) nonce: String,
    /// The secret that the exchange of the code needs.
    pub(crate) verifier: String,
    /// The page to open afterwards.
    pub(crate) next: String,
}

impl Attempt {
    /// Begins an attempt at an origin. `random` is a new random token.
    pub(crate) fn begin(key: &hmac::Key, origin: &str, random: &str, next: &str, now: Timestamp) -> Self {
        let next = Some(address::within(next)).filter(|next| next.len() <= NEXT).unwrap_or("/");
        let cookie = format!("{}.{random}.{}", now.as_second(), BASE64_URL_SAFE_NO_PAD.encode(next));
        Self::derive(key, origin, &cookie, next)
    }

    /// Returns the attempt of a cookie, if it began in the last ten minutes.
    pub(crate) fn of_cookie(key: &hmac::Key, origin: &str, cookie: &str, now: Timestamp) -> Option<Self> {
        let mut parts = cookie.split('.');
        let (begun, _random, next) = (parts.next()?, parts.next()?, parts.next()?);
        let begun = Timestamp::from_second(begun.parse().ok()?).ok()?;
        let age = now.duration_since(begun);
        if parts.next().is_some() || age < SignedDuration::ZERO || age >= LONGEST {
            return None;
        }
        let next = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(next).ok()?).ok()?;
        Some(Self::derive(key, origin, cookie, address::within(&next)))
    }

    fn derive(key: &hmac::Key, origin: &str, cookie: &str, next: &str) -> Self {
        let of = |purpose: &str| hex::encode(hmac::sign(key, format!("{purpose} {origin} {cookie}").as_bytes()));
        Self {
            cookie: cookie.to_owned(),
            state: of("state"),
            nonce: of("nonce"),
            verifier: of("verifier"),
            next: next.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "https://console.example.com";

    fn key(secret: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn an_attempt_returns_with_its_cookie_and_has_three_different_secrets() {
        let begun = Attempt::begin(&key("k"), ORIGIN, "ab12", "/gitsync/a/b?c=d", at(1000));
        let again = Attempt::of_cookie(&key("k"), ORIGIN, &begun.cookie, at(1599));
        assert_eq!(again.as_ref(), Some(&begun));
        assert_eq!(begun.next, "/gitsync/a/b?c=d");
        assert!(begun.state != begun.nonce && begun.nonce != begun.verifier && begun.state != begun.verifier);
        // The specification of PKCE demands 43 to 128 characters.
        assert_eq!(begun.verifier.len(), 64);
    }

    #[test]
    fn an_attempt_ends_after_ten_minutes_and_is_bound_to_process_origin_and_cookie() {
        let begun = Attempt::begin(&key("k"), ORIGIN, "ab12", "/", at(1000));
        for now in [999, 1600, 100_000] {
            assert_eq!(Attempt::of_cookie(&key("k"), ORIGIN, &begun.cookie, at(now)), None, "{now}");
        }
        let state = |secret, origin, cookie: &str| {
            Attempt::of_cookie(&key(secret), origin, cookie, at(1001)).map(|attempt| attempt.state)
        };
        assert_ne!(state("other", ORIGIN, &begun.cookie), Some(begun.state.clone()));
        assert_ne!(state("k", "https://other.example.com", &begun.cookie), Some(begun.state.clone()));
        let later = begun.cookie.replacen("1000", "1001", 1);
        assert!(state("k", ORIGIN, &later).is_some_and(|state| state != begun.state));
    }

    #[test]
    fn a_cookie_of_another_form_is_no_attempt_and_no_page_of_another_site_is_opened() {
        for cookie in ["", ".", "..", "1000.a", "1000.a.!", "1000.a.Lw.b", "x.a.Lw", "99999999999999999999.a.Lw"] {
            assert_eq!(Attempt::of_cookie(&key("k"), ORIGIN, cookie, at(1000)), None, "{cookie}");
        }
        for next in ["//evil.example/", "https://evil.example", "/\\evil.example", &format!("/{}", "a".repeat(NEXT))] {
            assert_eq!(Attempt::begin(&key("k"), ORIGIN, "ab12", next, at(1000)).next, "/", "{next}");
        }
        let forged = format!("1000.a.{}", BASE64_URL_SAFE_NO_PAD.encode("//evil.example"));
        assert_eq!(Attempt::of_cookie(&key("k"), ORIGIN, &forged, at(1000)).unwrap().next, "/");
    }
}
