//! Builds Istio's `RequestAuthentication`s and `AuthorizationPolicy`s for paths of an APIRule that require a token.
//!
//! The policies deny requests for the APIRule's host that lack the token. A policy that allows requests with a token
//! would deny all other requests to the pods, including those from the cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::child::{Child, ChildKind, Names};
use super::express::Guard;
use super::resolve::{Resolved, Rule};
use super::token::{From, Token, paths, token};
use super::workload::Workloads;

/// Returns the guards of the paths that require a token.
pub(super) fn build(resolved: &Resolved, guards: &[Option<Guard>], workloads: &Workloads) -> Vec<Child> {
    let mut issuers: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut policies = Vec::new();
    let mut names = Names::new(&resolved.identity);
    let guarded = resolved.rules.iter().zip(guards).filter(|(_, guard)| **guard == Some(Guard::Token));
    for (rule, _) in guarded {
        let (Ok(token), Some(labels)) = (token(rule), workloads.labels.get(rule.service())) else { continue };
        let of_service = issuers.entry(rule.service()).or_default();
        for issuer in jwt_rules(&token) {
            if !of_service.contains(&issuer) {
                of_service.push(issuer);
            }
        }
        let name = names.next(&format!("{} {}", rule.path, rule.methods.join(" ")));
        let spec = json!({
            "selector": {"matchLabels": labels}, "action": "DENY", "rules": denied(resolved.host.as_str(), rule, &token),
        });
        policies.push(Child::new(ChildKind::AuthorizationPolicy, name, &resolved.identity, spec));
    }
    let mut names = Names::new(&resolved.identity);
    let authentication = |(service, jwt_rules): (&str, Vec<Value>)| {
        let spec = json!({"selector": {"matchLabels": workloads.labels[service]}, "jwtRules": jwt_rules});
        Child::new(ChildKind::RequestAuthentication, names.next(service), &resolved.identity, spec)
    };
    let mut children: Vec<Child> = issuers.into_iter().map(authentication).collect();
    children.append(&mut policies);
    children
}

/// Returns the accepted issuers, and where their tokens are in a request.
fn jwt_rules(token: &Token) -> impl Iterator<Item = Value> {
    token.issuers.iter().map(|(issuer, keys)| {
        let mut rule = json!({"issuer": issuer, "forwardOriginalToken": true});
        if let Some(keys) = keys {
            rule["jwksUri"] = keys.clone().into();
        }
        match &token.from {
            From::Bearer => {}
            From::Header(name) => rule["fromHeaders"] = json!([{"name": name}]),
            From::Parameter(name) => rule["fromParams"] = json!([name]),
        }
        rule
    })
}

/// Returns the denied requests: requests without a token, with a token of a different issuer, or with a token that
/// lacks a claim.
fn denied(host: &str, rule: &Rule, token: &Token) -> Vec<Value> {
    let mut operation = json!({"hosts": [host, format!("{host}:*")], "methods": rule.methods});
    // The function `token` has already checked this path.
    if let Ok(Some(path)) = paths(&rule.path) {
        operation["paths"] = json!([path]);
    }
    let to = json!([{"operation": operation}]);
    let lacks = |key: &str, values: Value| json!({"to": to, "when": [{"key": key, "notValues": values}]});
    let issuers: Vec<&String> = token.issuers.iter().map(|(issuer, _)| issuer).collect();
    let mut all = vec![
        json!({"to": to, "from": [{"source": {"notRequestPrincipals": ["*"]}}]}),
        lacks("request.auth.claims[iss]", json!(issuers)),
    ];
    all.extend(token.scopes.iter().map(|scope| lacks("request.auth.claims[scope]", json!([scope]))));
    all.extend(token.audiences.iter().map(|audience| lacks("request.auth.audiences", json!([audience]))));
    all
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{path, resolved};
    use super::*;

    fn workloads() -> Workloads {
        Workloads { have_proxies: true, labels: [("web".to_owned(), json!({"app": "web"}))].into() }
    }

    #[test]
    fn deny_what_lacks_the_token_for_the_host_and_the_path() {
        let mut closed = path("/closed/.*", &["GET", "POST"], "jwt");
        closed["accessStrategies"][0]["config"] = json!({
            "trusted_issuers": ["https://a"], "jwks_urls": ["https://a/keys"], "required_scope": ["read"],
            "target_audience": ["us"],
        });
        let rules = [path("/open", &["GET"], "noop"), closed, path("/other", &["GET"], "jwt")];
        let guards = [Some(Guard::Methods), Some(Guard::Token), Some(Guard::Token)];
        let all = build(&resolved(json!({"rules": rules})), &guards, &workloads());
        let kinds: Vec<ChildKind> = all.iter().map(|child| child.kind).collect();
        let policy = ChildKind::AuthorizationPolicy;
        assert_eq!(kinds, [ChildKind::RequestAuthentication, policy, policy]);
        let selector = json!({"matchLabels": {"app": "web"}});
        let authentication = json!({"selector": selector, "jwtRules": [
            {"issuer": "https://a", "jwksUri": "https://a/keys", "forwardOriginalToken": true},
            {"issuer": "https://issuer.example.com", "forwardOriginalToken": true},
        ]});
        assert_eq!(all[0].body["spec"], authentication);
        let to = json!([{"operation": {
            "hosts": ["web.kyma.local", "web.kyma.local:*"], "methods": ["GET", "POST"], "paths": ["/closed/*"],
        }}]);
        let closed = json!({"selector": selector, "action": "DENY", "rules": [
            {"to": to, "from": [{"source": {"notRequestPrincipals": ["*"]}}]},
            {"to": to, "when": [{"key": "request.auth.claims[iss]", "notValues": ["https://a"]}]},
            {"to": to, "when": [{"key": "request.auth.claims[scope]", "notValues": ["read"]}]},
            {"to": to, "when": [{"key": "request.auth.audiences", "notValues": ["us"]}]},
        ]});
        assert_eq!(all[1].body["spec"], closed);
        assert_eq!(all[2].body["spec"]["rules"].as_array().unwrap().len(), 2);
        assert_ne!(all[1].name, all[2].name);
    }

    #[test]
    fn tokens_may_be_elsewhere() {
        let mut rule = path("/.*", &["GET"], "jwt");
        rule["accessStrategies"][0]["config"]["token_from"] = json!({"query_parameter": "token"});
        let all = build(&resolved(json!({"rules": [rule]})), &[Some(Guard::Token)], &workloads());
        assert_eq!(all[0].body["spec"]["jwtRules"][0]["fromParams"], json!(["token"]));
        assert_eq!(all[1].body["spec"]["rules"][0]["to"][0]["operation"].get("paths"), None, "all of them");
    }
}
