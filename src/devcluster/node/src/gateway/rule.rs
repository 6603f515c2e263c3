//! Reads Oathkeeper's Rules.

use serde_json::Value;

use super::target::{Target, only};

/// A supported Rule.
#[derive(Debug, PartialEq)]
pub(super) struct Rule {
    /// The host in lower case.
    pub(super) host: String,
    /// A regular expression for the whole path.
    pub(super) path: String,
    pub(super) methods: Vec<String>,
    pub(super) target: Target,
    pub(super) authenticators: Vec<Authenticator>,
    pub(super) does_allow: bool,
}

/// A supported authenticator.
#[derive(Debug, PartialEq)]
pub(super) enum Authenticator {
    Noop,
    Anonymous,
    Unauthorized,
    Jwt(Value),
    Introspection(Value),
    /// A handler that is not enabled.
    Disabled,
}

/// Supported settings of an introspection.
const INTROSPECTION: &[&str] = &[
    "introspection_url",
    "required_scope",
    "target_audience",
    "trusted_issuers",
    "scope_strategy",
    "token_from",
    "cache",
];

/// Reads a Rule; `None` if a field is unsupported. The Rule is then ignored.
pub(super) fn read(object: &Value) -> Option<Rule> {
    let spec = object["spec"].as_object()?;
    only(spec, &["upstream", "match", "authenticators", "authorizer", "mutators", "errors", "version", "description"])?;
    let (host, path) = read_url(spec.get("match")?["url"].as_str()?)?;
    let methods = spec.get("match")?["methods"].as_array()?.iter().map(|method| Some(method.as_str()?.to_owned()));
    let upstream = spec.get("upstream")?;
    only(upstream.as_object()?, &["url"])?;
    let target = read_upstream(upstream["url"].as_str()?)?;
    // Without an authenticator every request is refused.
    let authenticators = spec.get("authenticators").and_then(Value::as_array).into_iter().flatten();
    let authenticators = authenticators.map(read_authenticator).collect::<Option<Vec<_>>>()?;
    let mut mutators = spec.get("mutators").and_then(Value::as_array).into_iter().flatten();
    if !mutators.all(|mutator| mutator["handler"] == "noop") {
        return None;
    }
    let does_allow = match spec.get("authorizer").map(|authorizer| &authorizer["handler"]) {
        Some(handler) if handler == "allow" => true,
        Some(handler) if handler == "deny" => false,
        None => false,
        Some(_) => return None,
    };
    Some(Rule { host, path, methods: methods.collect::<Option<_>>()?, target, authenticators, does_allow })
}

/// Splits `<http|https>://host<path>` or `http://host<path>` into host and path. Other forms are unsupported.
fn read_url(url: &str) -> Option<(String, String)> {
    let rest = url.strip_prefix("<http|https>://").or_else(|| url.strip_prefix("http://"))?;
    let (host, path) = rest.split_once('<')?;
    let path = path.strip_suffix('>')?;
    // Text in brackets is a regular expression. Only one pair is supported.
    (!path.contains(['<', '>'])).then(|| (host.to_ascii_lowercase(), path.to_owned()))
}

fn read_upstream(url: &str) -> Option<Target> {
    let rest = url.strip_prefix("http://")?.trim_end_matches('/');
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "80"));
    Target::named(host, port.parse().ok()?, "")
}

fn read_authenticator(authenticator: &Value) -> Option<Authenticator> {
    let config = &authenticator["config"];
    match authenticator["handler"].as_str()? {
        "noop" => Some(Authenticator::Noop),
        "anonymous" => Some(Authenticator::Anonymous),
        "unauthorized" => Some(Authenticator::Unauthorized),
        "jwt" => Some(Authenticator::Jwt(config.clone())),
        "oauth2_introspection" if config.as_object().is_none_or(|all| only(all, INTROSPECTION).is_some()) => {
            Some(Authenticator::Introspection(config.clone()))
        }
        "cookie_session" | "oauth2_introspection" | "oauth2_client_credentials" => Some(Authenticator::Disabled),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_without_handlers_admits_no_request_and_an_unknown_handler_is_absent() {
        let whole = json!({
            "upstream": {"url": "http://web.shop.svc.cluster.local:80"},
            "match": {"url": "<http|https>://Web.kyma.local</.*>", "methods": ["GET"]},
        });
        let with = |field: &str, value: Value| {
            let mut spec = whole.clone();
            spec[field] = value;
            read(&json!({"spec": spec}))
        };
        let bare = read(&json!({"spec": whole})).unwrap();
        assert_eq!((bare.host.as_str(), bare.path.as_str()), ("web.kyma.local", "/.*"));
        assert_eq!(bare.target, Target::new("shop", "web", 80));
        assert!(bare.authenticators.is_empty() && !bare.does_allow);
        assert!(with("authorizer", json!({"handler": "allow"})).unwrap().does_allow);
        assert_eq!(with("authenticators", json!([{"handler": "allow"}])), None);
        assert_eq!(with("mutators", json!([{"handler": "id_token"}])), None);
        assert_eq!(with("authorizer", json!({"handler": "remote"})), None);
        assert_eq!(with("upstream", json!({"url": "http://example.com"})), None);
        for url in ["<http|https>://<.*></.*>", "<.*>://web.kyma.local</.*>", "<http|https>://a</x>y<z>", "x"] {
            assert_eq!(with("match", json!({"url": url, "methods": ["GET"]})), None, "{url}");
        }
    }
}
