//! The checks of an APIRule before it is written: those that depend neither on the settings of an agent nor on other objects.
//!
//! Not here: whether the operator permits its host, its gateway and its issuers, and whether the host is free. The agent
//! decides that, and reports it in the condition `Exposed`.

use serde_json::Value;

use super::checks::text;
use super::resolve::resolve;
use super::settings::Settings;
use super::urls::IssuerOrigin;
use mainstay_api::ApiRule;
use mainstay_object::names::{DomainName, GatewayRef};

/// A domain that completes a host without a dot. It is not shown.
const DOMAIN: &str = "example.com";

/// Checks an APIRule as an agent does whose operator permits its host, its gateway and its issuers.
///
/// # Errors
/// Fails with the message of the agent.
pub fn problems(rule: &ApiRule) -> Result<(), String> {
    let resolved = resolve(rule, &permissive(rule), &|_| false, |_| false);
    resolved.map(drop).map_err(|failures| text(&failures))
}

/// Returns settings that permit the host, the gateway and the issuers of an APIRule.
fn permissive(rule: &ApiRule) -> Settings {
    let spec = &rule.spec;
    let host = spec.host.as_deref().or_else(|| spec.service.as_ref()?.host.as_deref()).unwrap_or_default();
    let domain = host.trim_end_matches('.').split_once('.').map_or(DOMAIN, |(_, domain)| domain);
    let strategies = spec.rules.iter().flat_map(|rule| &rule.access_strategies);
    let configs = strategies.filter_map(|strategy| strategy.config.as_ref());
    Settings {
        default_domain: DomainName::parse(domain).ok(),
        allowed_gateways: GatewayRef::parse(&spec.gateway).into_iter().collect(),
        allowed_issuers: configs.flat_map(issuers).collect(),
        ..Settings::default()
    }
}

/// Returns the origins of the issuers and of their keys in a configuration.
fn issuers(config: &Value) -> Vec<IssuerOrigin> {
    let lists = ["trusted_issuers", "jwks_urls"].iter().filter_map(|field| config.get(*field)?.as_array());
    lists.flatten().filter_map(Value::as_str).filter_map(IssuerOrigin::of_url).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::rule;

    #[test]
    fn a_host_a_gateway_and_an_issuer_that_an_operator_may_permit_are_no_problems() {
        for host in ["web", "web.shop.example.org"] {
            let spec = json!({
                "host": host, "gateway": "other/gateway", "service": {"host": null},
                "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": [{"handler": "jwt", "config": {
                    "trusted_issuers": ["http://dex.kyma-system.svc.cluster.local:5556"],
                    "jwks_urls": ["http://dex.kyma-system.svc.cluster.local:5556/keys"],
                }}]}],
            });
            assert_eq!(problems(&rule(spec)), Ok(()), "{host}");
        }
    }

    #[test]
    fn other_problems_are_those_of_the_agent() {
        for (spec, expected) in [
            (json!({"host": "a b.example.com"}), ".spec.host"),
            (json!({"host": "web.example.com", "service": {"name": "a.b"}}), ".spec.service.name"),
            (json!({"host": "web.example.com", "rules": []}), "No rules defined"),
            (json!({"host": "kubernetes.default.svc"}), ".spec.host"),
        ] {
            let problem = problems(&rule(spec)).unwrap_err();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
