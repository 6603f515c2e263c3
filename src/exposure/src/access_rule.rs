//! Builds Oathkeeper's `Rule` for each path of an APIRule that Oathkeeper guards.

use serde_json::{Value, json};

use super::child::{Child, ChildKind, Names};
use super::express::Guard;
use super::resolve::{Resolved, Rule};

/// Returns the Rules. Two rules for the same URL with different methods get different names.
pub(super) fn build(resolved: &Resolved, guards: &[Option<Guard>]) -> Vec<Child> {
    let mut names = Names::new(&resolved.identity);
    let guarded = resolved.rules.iter().zip(guards).filter(|(_, guard)| **guard == Some(Guard::Oathkeeper));
    let child = |(rule, _): (&Rule, &Option<Guard>)| {
        let spec = spec(resolved, rule);
        let name = names.next(spec["match"]["url"].as_str().unwrap_or_default());
        Child::new(ChildKind::AccessRule, name, &resolved.identity, spec)
    };
    guarded.map(child).collect()
}

fn spec(resolved: &Resolved, rule: &Rule) -> Value {
    let mut spec = json!({
        "upstream": {"url": rule.target.origin()},
        "match": {"url": format!("<http|https>://{}<{}>", resolved.host, rule.path), "methods": rule.methods},
        "authenticators": rule.strategies,
        "authorizer": {"handler": "allow"},
    });
    if !rule.mutators.is_empty() {
        spec["mutators"] = json!(rule.mutators);
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{path, resolved};
    use super::*;

    #[test]
    fn has_the_shape_of_kymas() {
        let mut mutated = path("/post", &["POST"], "jwt");
        mutated["mutators"] = json!([{"handler": "noop"}]);
        let rules = [path("/.*", &["GET"], "noop"), mutated, path("/open", &["GET"], "allow")];
        let guards = [Some(Guard::Oathkeeper), Some(Guard::Oathkeeper), Some(Guard::Open)];
        let all = build(&resolved(json!({"rules": rules})), &guards);
        let specs: Vec<&Value> = all.iter().map(|child| &child.body["spec"]).collect();
        let upstream = json!({"url": "http://web.shop.svc.cluster.local:80"});
        let first = json!({
            "upstream": upstream, "authorizer": {"handler": "allow"},
            "match": {"url": "<http|https>://web.kyma.local</.*>", "methods": ["GET"]},
            "authenticators": [{"handler": "noop", "config": {}}],
        });
        let jwt = json!([{"handler": "jwt", "config": {"trusted_issuers": ["https://issuer.example.com"]}}]);
        let second = json!({
            "upstream": upstream, "authorizer": {"handler": "allow"}, "authenticators": jwt,
            "match": {"url": "<http|https>://web.kyma.local</post>", "methods": ["POST"]},
            "mutators": [{"handler": "noop"}],
        });
        assert_eq!(specs, [&first, &second]);
        assert!(all[0].name.starts_with("web-") && all[0].name.len() == 9 && all[0].name != all[1].name);
    }

    #[test]
    fn nulls_of_a_configuration_are_kept_as_they_are() {
        let mut rule = path("/", &["GET"], "jwt");
        rule["accessStrategies"][0]["config"]["required_scope"] = Value::Null;
        let all = build(&resolved(json!({"rules": [rule]})), &[Some(Guard::Oathkeeper)]);
        let config = &all[0].body["spec"]["authenticators"][0]["config"];
        assert_eq!(config, &json!({"trusted_issuers": ["https://issuer.example.com"], "required_scope": null}));
    }
}
