//! The token that a path requires, as Istio's proxies check it.
//!
//! The strategy is Oathkeeper's `jwt`, and the check by Istio has to mean the same. Configuration that Istio does not
//! support, or interprets differently, is refused.
//!
//! Invariant: no message contains a value from the configuration.

use serde_json::{Map, Value};

use super::checks::is_empty;
use super::paths::{Shape, shape};
use super::resolve::Rule;

/// Fields that only affect how keys are fetched, so they are ignored.
const TUNING: [&str; 3] = ["jwks_max_wait", "jwks_ttl", "jwks_retry"];

/// The requirements for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The allowed issuers, and the URLs of their keys. Without a URL, the issuer's metadata contains it.
    pub(super) issuers: Vec<(String, Option<String>)>,
    /// Required scopes.
    pub(super) scopes: Vec<String>,
    /// Required audiences.
    pub(super) audiences: Vec<String>,
    /// The location of the token in the request.
    pub(super) from: From,
}

/// The location of a token in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum From {
    Bearer,
    /// The value of this header.
    Header(String),
    /// This query parameter.
    Parameter(String),
}

/// Whether a path requires a token and has no other checks.
pub(super) fn is_wanted(rule: &Rule) -> bool {
    let is_plain = rule.mutators.iter().all(|mutator| mutator.handler == "noop" && is_empty(mutator.config.as_ref()));
    is_plain && matches!(rule.strategies.as_slice(), [one] if one.handler == "jwt")
}

/// Returns the path of a policy for an expression: all paths (`None`), one path, or a prefix.
///
/// # Errors
/// Fails if a policy cannot match the same requests.
pub(super) fn paths(path: &str) -> Result<Option<String>, &'static str> {
    const WHY: &str = "its path must be all paths (/.*), one path, or all below one (/a/.*), without %";
    let of = match shape(path) {
        Shape::All => return Ok(None),
        Shape::Exact(path) => path.to_owned(),
        Shape::Expression(expression) => {
            let beginning =
                expression.strip_suffix("/.*").filter(|beginning| matches!(shape(beginning), Shape::Exact(_)));
            format!("{}/*", beginning.ok_or(WHY)?)
        }
    };
    // Proxies may normalise escapes and double slashes.
    if of.contains('%') || of.contains("//") { Err(WHY) } else { Ok(Some(of)) }
}

/// Returns the requirements for the token of a path.
///
/// # Errors
/// Fails if Istio cannot check a requirement.
pub(super) fn token(rule: &Rule) -> Result<Token, &'static str> {
    paths(&rule.path)?;
    let none = Map::new();
    let config = rule.strategies.first().and_then(|jwt| jwt.config.as_ref()?.as_object()).unwrap_or(&none);
    let known = ["trusted_issuers", "jwks_urls", "required_scope", "scope_strategy", "target_audience", "token_from"];
    let is_known = |(field, value): (&String, &Value)| {
        value.is_null() || known.contains(&field.as_str()) || TUNING.contains(&field.as_str())
    };
    if !config.iter().all(is_known) {
        return Err(
            "its config may contain only trusted_issuers, jwks_urls, required_scope, scope_strategy, target_audience \
             and token_from",
        );
    }
    let scopes = match config.get("scope_strategy").map_or(Some("exact"), Value::as_str) {
        Some("exact") => texts(config.get("required_scope"))?,
        Some("none") => Vec::new(),
        _ => return Err("scope_strategy must be exact or none"),
    };
    let (issuers, keys) = (texts(config.get("trusted_issuers"))?, texts(config.get("jwks_urls"))?);
    if issuers.is_empty() {
        return Err("it names no issuer (trusted_issuers)");
    }
    let issuers: Vec<(String, Option<String>)> = match keys.as_slice() {
        [] => issuers.into_iter().map(|issuer| (issuer, None)).collect(),
        [all] => issuers.into_iter().map(|issuer| (issuer, Some(all.clone()))).collect(),
        _ => {
            return Err("jwks_urls must have at most one URL, with the keys of all issuers; without it, each issuer \
                        announces its own");
        }
    };
    let from = from(config.get("token_from").unwrap_or(&Value::Null))?;
    Ok(Token { issuers, scopes, audiences: texts(config.get("target_audience"))?, from })
}

/// Whether two paths of one Service can require their tokens together. In Istio, the keys of an issuer apply to both
/// paths.
pub(super) fn go_together(one: &Token, other: &Token) -> bool {
    one.issuers.iter().all(|(issuer, keys)| {
        other.issuers.iter().all(|(known, others)| known != issuer || (others == keys && one.from == other.from))
    })
}

/// Returns a list of strings. A `*` is refused, because it is a wildcard in policies.
fn texts(list: Option<&Value>) -> Result<Vec<String>, &'static str> {
    const WHY: &str = "issuers, jwks_urls, scopes and audiences must be lists of strings without *";
    let items = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(list) => list.as_array().ok_or(WHY)?,
    };
    let text = |item: &Value| item.as_str().filter(|text| !text.is_empty() && !text.contains('*')).map(str::to_owned);
    items.iter().map(|item| text(item).ok_or(WHY)).collect()
}

fn from(value: &Value) -> Result<From, &'static str> {
    const WHY: &str = "a token must be in one header or in one parameter of the query (token_from)";
    let Some(fields) = value.as_object() else { return if value.is_null() { Ok(From::Bearer) } else { Err(WHY) } };
    let mut all = fields.iter().filter(|(_, value)| !value.is_null());
    let (first, second) = (all.next(), all.next());
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned).ok_or(WHY);
    match (first, second) {
        (None, _) => Ok(From::Bearer),
        (Some((field, value)), None) if field == "header" => {
            let name = text(value)?;
            Ok(if name.eq_ignore_ascii_case("authorization") { From::Bearer } else { From::Header(name) })
        }
        (Some((field, value)), None) if field == "query_parameter" => Ok(From::Parameter(text(value)?)),
        _ => Err(WHY),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{path, resolved};
    use super::*;

    fn of(config: Value) -> Result<Token, &'static str> {
        let mut rule = path("/a", &["GET"], "jwt");
        rule["accessStrategies"][0]["config"] = config;
        token(&resolved(json!({"rules": [rule]})).rules[0])
    }

    #[test]
    fn says_what_a_token_must_have() {
        let whole = of(json!({
            "trusted_issuers": ["https://a", "https://b"], "jwks_urls": ["https://keys"], "required_scope": ["read", "write"],
            "target_audience": ["us"], "token_from": {"header": "X-Token", "cookie": null}, "jwks_ttl": "1h",
        }));
        let issuers = ["https://a", "https://b"].map(|issuer| (issuer.to_owned(), Some("https://keys".to_owned())));
        let expected = Token {
            issuers: issuers.to_vec(),
            scopes: vec!["read".into(), "write".into()],
            audiences: vec!["us".into()],
            from: From::Header("X-Token".into()),
        };
        assert_eq!(whole, Ok(expected));
        let plain = of(json!({"trusted_issuers": ["https://a"], "token_from": {"header": "authorization"}})).unwrap();
        assert_eq!((plain.issuers, plain.from), (vec![("https://a".into(), None)], From::Bearer));
        let unchecked = json!({"trusted_issuers": ["https://a"], "required_scope": ["a"], "scope_strategy": "none"});
        assert_eq!(of(unchecked).unwrap().scopes, Vec::<String>::new());
    }

    #[test]
    fn token_settings_with_another_meaning_are_refused() {
        for (more, why) in [
            (json!({"trusted_issuers": []}), "trusted_issuers"),
            (json!({"trusted_issuers": ["https://a/*"]}), "without *"),
            (json!({"jwks_urls": ["https://a", "https://b"]}), "jwks_urls"),
            (json!({"required_scope": "read"}), "lists of strings"),
            (json!({"required_scope": ["*"]}), "without *"),
            (json!({"scope_strategy": "wildcard"}), "scope_strategy"),
            (json!({"scope_strategy": 7}), "scope_strategy"),
            (json!({"allowed_algorithms": ["RS256"]}), "may contain only"),
            (json!({"token_from": {"cookie": "a"}}), "token_from"),
            (json!({"token_from": {"header": "a", "query_parameter": "b"}}), "token_from"),
            (json!({"token_from": "header"}), "token_from"),
        ] {
            let mut config = json!({"trusted_issuers": ["https://a"]});
            json_patch::merge(&mut config, &more);
            let said = of(config).unwrap_err();
            assert!(said.contains(why), "{more}: {said}");
        }
    }

    #[test]
    fn an_issuer_has_its_keys_and_its_tokens_at_one_place() {
        let from = |issuer: &str, keys: &str| of(json!({"trusted_issuers": [issuer], "jwks_urls": [keys]})).unwrap();
        assert!(go_together(&from("https://a", "https://k/1"), &from("https://b", "https://k/2")));
        assert!(go_together(&from("https://a", "https://k/1"), &from("https://a", "https://k/1")));
        assert!(!go_together(&from("https://a", "https://k/1"), &from("https://a", "https://k/2")));
    }

    #[test]
    fn paths_are_all_one_or_those_below_one() {
        assert_eq!(paths("/.*"), Ok(None));
        assert_eq!(paths("/a/b"), Ok(Some("/a/b".into())));
        assert_eq!(paths("/a/.*"), Ok(Some("/a/*".into())));
        for path in ["/a.*", "/a+/.*", "/(a|b)", "/a/.*/b", "/a%2Fb", "//a/.*", "/a.b"] {
            assert!(paths(path).is_err(), "{path}");
        }
    }
}
