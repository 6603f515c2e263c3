//! Token introspection (`oauth2_introspection`).
//!
//! Invariant: if the issuer does not answer, the request is refused with 500.
//! Invariant: responses are cached only if the authenticator enables the cache. The cache is bounded and holds no
//! token.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::jwt::does_grant;

/// Maximum number of cached responses.
const MOST: usize = 1024;
/// Default and maximum lifetime of a cached response.
const USUAL: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(600);

/// Returns the status if a response refuses the request. `now` is in seconds since 1970.
pub(super) fn refusal(answer: &Value, config: &Value, now: i64) -> Option<u16> {
    let is_over = answer["exp"].as_i64().is_some_and(|end| end <= now);
    if answer["active"] != true || is_over {
        return Some(401);
    }
    let is_for_access = answer["token_use"].as_str().is_none_or(|used| used.is_empty() || used == "access_token");
    (!is_for_access || !does_grant(answer, config, "exact")).then_some(403)
}

/// Encodes the form that introspects a token.
pub(super) fn form(token: &str) -> String {
    let mut form = "token=".to_owned();
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            form.push(char::from(byte));
        } else {
            form.push_str(&format!("%{byte:02X}"));
        }
    }
    form
}

/// The cache of responses.
#[derive(Debug, Default)]
pub(super) struct Answers(Mutex<HashMap<[u8; 32], (Instant, Value)>>);

impl Answers {
    /// Returns the cached response of an address for a token, if the response is still valid.
    pub(super) fn get(&self, config: &Value, address: &str, token: &str, now: Instant) -> Option<Value> {
        kept_for(config)?;
        let kept = self.0.lock();
        let (until, answer) = kept.get(&key(address, token))?;
        (*until > now).then(|| answer.clone())
    }

    /// Caches a response if the authenticator enables the cache.
    pub(super) fn keep(&self, config: &Value, address: &str, token: &str, answer: &Value, now: Instant) {
        let Some(kept_for) = kept_for(config).filter(|_| answer["active"] == true) else { return };
        let mut kept = self.0.lock();
        if kept.len() >= MOST {
            kept.retain(|_, (until, _)| *until > now);
        }
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(key(address, token), (now + kept_for, answer.clone()));
    }
}

fn key(address: &str, token: &str) -> [u8; 32] {
    Sha256::new().chain_update(address).chain_update([0]).chain_update(token).finalize().into()
}

/// Lifetime of an authenticator's cached responses; `None` if caching is off.
fn kept_for(config: &Value) -> Option<Duration> {
    let cache = &config["cache"];
    (cache["enabled"] == true).then(|| match &cache["ttl"] {
        Value::Null => USUAL,
        // An invalid duration disables caching.
        ttl => ttl.as_str().and_then(duration).unwrap_or_default().min(LONGEST),
    })
}

/// Parses a duration such as `90s` or `5m`.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(3600)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_answer_of_the_issuer_decides() {
        let config = json!({"required_scope": ["read"], "target_audience": ["web"], "trusted_issuers": ["https://a"]});
        let good = json!({"active": true, "scope": "read write", "aud": ["web"], "iss": "https://a", "exp": 20});
        let check = |change: Value, expected: Option<u16>| {
            let mut answer = good.clone();
            let changes = change.as_object().unwrap().clone();
            answer.as_object_mut().unwrap().extend(changes);
            assert_eq!(refusal(&answer, &config, 10), expected, "{answer}");
        };
        check(json!({}), None);
        check(json!({"token_use": "access_token"}), None);
        for none in [json!({"active": false}), json!({"active": null}), json!({"active": "true"}), json!({"exp": 10})] {
            check(none, Some(401));
        }
        for other in [
            json!({"scope": "write"}),
            json!({"scope": "read.all *"}),
            json!({"scope": null}),
            json!({"aud": "other"}),
            json!({"iss": "https://b"}),
            json!({"token_use": "refresh_token"}),
        ] {
            check(other, Some(403));
        }
        assert_eq!(refusal(&good, &json!({"required_scope": "read"}), 10), Some(403), "it is no list");
        assert_eq!(refusal(&json!({"active": true}), &Value::Null, 10), None);
    }

    #[test]
    fn an_answer_is_kept_as_long_as_the_check_says() {
        let (answers, begin, good) = (Answers::default(), Instant::now(), json!({"active": true}));
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let kept = |ttl: Value| json!({"cache": {"enabled": true, "ttl": ttl}});
        let check = |config: &Value, good_at: u64, bad_at: u64| {
            answers.keep(config, "http://a", "t", &good, begin);
            assert_eq!(answers.get(config, "http://a", "t", at(good_at)).is_some(), good_at < bad_at, "{config}");
            assert_eq!(answers.get(config, "http://a", "t", at(bad_at)), None, "{config}");
        };
        check(&kept(json!("90s")), 89, 90);
        check(&kept(json!("2m")), 119, 120);
        check(&kept(json!("9999999999999999h")), 0, 0);
        check(&kept(json!("24h")), 599, 600);
        check(&kept(Value::Null), 59, 60);
        check(&kept(json!("soon")), 0, 0);
        check(&json!({"cache": {"enabled": false, "ttl": "90s"}}), 0, 0);
        check(&Value::Null, 0, 0);
        let config = kept(json!("90s"));
        assert_eq!(answers.get(&config, "http://b", "t", begin), None, "another issuer has not been asked");
        answers.keep(&config, "http://a", "bad", &json!({"active": false}), begin);
        assert_eq!(answers.get(&config, "http://a", "bad", begin), None);
        for number in 0..3 * MOST {
            answers.keep(&config, "http://a", &number.to_string(), &good, begin);
        }
        assert!(answers.0.lock().len() <= MOST);
    }

    #[test]
    fn a_token_does_not_add_fields_to_the_form() {
        assert_eq!(form("a.b-c_d~1"), "token=a.b-c_d~1");
        assert_eq!(form("a&b=c +é"), "token=a%26b%3Dc%20%2B%C3%A9");
    }
}
