//! The authenticators of a Rule in order. The first that recognises credentials decides.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};
use serde_json::Value;

use super::decide::plain_check;
use super::jwt;
use super::rule::{Authenticator, Rule};

/// The result of the authenticators.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Allowed.
    Pass,
    /// Refused: 401, or 403 for a known user.
    Refuse(u16),
    /// The keys of the token's issuer decide.
    Token { config: Value, token: String },
    /// The issuer's introspection of the token decides.
    Introspect { config: Value, token: String },
}

/// Evaluates the authenticators without keys. `query` is the URL's query.
pub(super) fn step(rule: &Rule, headers: &HeaderMap, query: Option<&str>) -> Step {
    for authenticator in &rule.authenticators {
        match (authenticator, plain_check(authenticator, headers)) {
            (_, Some(true)) => return if rule.does_allow { Step::Pass } else { Step::Refuse(403) },
            (_, Some(false)) => return Step::Refuse(401),
            (Authenticator::Jwt(config), None) => {
                if let Some(token) = token(config, headers, query) {
                    return Step::Token { config: config.clone(), token };
                }
            }
            (Authenticator::Introspection(config), None) => {
                if let Some(token) = token(config, headers, query) {
                    return Step::Introspect { config: config.clone(), token };
                }
            }
            _ => {}
        }
    }
    Step::Refuse(401)
}

/// Returns the JWKS URLs of an authenticator; at most 8.
pub(super) fn key_addresses(config: &Value) -> Vec<String> {
    let all = config["jwks_urls"].as_array().into_iter().flatten();
    all.filter_map(Value::as_str).take(8).map(str::to_owned).collect()
}

/// Whether a token is valid with these keys.
pub(super) fn is_good(text: &str, config: &Value, keys: &[Value], now: i64) -> bool {
    jwt::read(text).is_some_and(|token| jwt::is_signed(&token, keys, config) && jwt::is_good(&token, config, now))
}

/// Reads the token of a request from the configured location.
fn token(config: &Value, headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    let from = &config["token_from"];
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(name) = from["header"].as_str().filter(|name| !name.eq_ignore_ascii_case("authorization")) {
        return header(name).map(str::to_owned);
    }
    if let Some(name) = from["query_parameter"].as_str() {
        let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
        return pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).next();
    }
    if let Some(name) = from["cookie"].as_str() {
        let pairs = header(COOKIE.as_str())?.split(';').filter_map(|pair| pair.trim().split_once('='));
        return pairs.filter(|(known, _)| *known == name).map(|(_, value)| value.to_owned()).next();
    }
    let (kind, token) = header(AUTHORIZATION.as_str())?.split_once(' ')?;
    kind.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::json;

    use super::super::rule::read;
    use super::*;

    fn check(authenticators: Value, headers: &[(&'static str, &str)], expected: Step) {
        let rule = read(&json!({"spec": {
            "upstream": {"url": "http://web.shop.svc:80"}, "authorizer": {"handler": "allow"},
            "match": {"url": "<http|https>://a</.*>", "methods": ["GET"]}, "authenticators": authenticators,
        }}));
        let all = headers.iter().map(|(name, value)| ((*name).parse().unwrap(), HeaderValue::from_str(value).unwrap()));
        assert_eq!(step(&rule.unwrap(), &all.collect(), Some("a=b&token=t")), expected);
    }

    #[test]
    fn the_first_check_that_knows_the_credentials_decides() {
        let bearer = ("authorization", "BEARER abc");
        check(json!([]), &[], Step::Refuse(401));
        check(json!([{"handler": "noop"}]), &[], Step::Pass);
        check(json!([{"handler": "unauthorized"}, {"handler": "noop"}]), &[], Step::Refuse(401));
        check(json!([{"handler": "anonymous"}]), &[], Step::Pass);
        check(json!([{"handler": "anonymous"}]), &[bearer], Step::Refuse(401));
        let introspection = json!([{"handler": "oauth2_introspection"}, {"handler": "noop"}]);
        check(introspection.clone(), &[], Step::Pass);
        check(introspection, &[bearer], Step::Introspect { config: Value::Null, token: "abc".to_owned() });
        let unknown = json!({"pre_authorization": {"enabled": true}});
        let disabled = json!([{"handler": "oauth2_introspection", "config": unknown}, {"handler": "noop"}]);
        check(disabled, &[], Step::Refuse(401));
        let jwt = |config: Value| json!([{"handler": "jwt", "config": config}]);
        let token = |config: Value, token: &str| Step::Token { config, token: token.to_owned() };
        check(jwt(json!({})), &[bearer], token(json!({}), "abc"));
        check(jwt(json!({})), &[("authorization", "Basic abc")], Step::Refuse(401));
        check(jwt(json!({})), &[], Step::Refuse(401));
        check(json!([{"handler": "jwt"}, {"handler": "noop"}]), &[], Step::Pass);
        let from = json!({"token_from": {"header": "X-Token"}});
        check(jwt(from.clone()), &[("x-token", "abc"), bearer], token(from.clone(), "abc"));
        check(jwt(from), &[bearer], Step::Refuse(401));
        let from = json!({"token_from": {"query_parameter": "token"}});
        check(jwt(from.clone()), &[], token(from, "t"));
        let from = json!({"token_from": {"cookie": "id"}});
        check(jwt(from.clone()), &[("cookie", "a=b; id=abc")], token(from, "abc"));
    }
}
