//! APIRules for tests.

use serde_json::{Value, json};

use super::checks::text;
use super::resolve::{Resolved, resolve};
use super::settings::Settings;
use mainstay_api::ApiRule;
use mainstay_object::names::DomainName;

/// Returns an APIRule in the namespace `shop`: the spec of the tutorial, overridden by `spec`.
pub(super) fn rule(spec: Value) -> ApiRule {
    let mut whole = json!({
        "gateway": "kyma-gateway.kyma-system.svc.cluster.local",
        "service": {"host": "web.kyma.local", "name": "web", "port": 80},
        "rules": [{
            "path": "/.*", "methods": ["GET", "POST", "PUT", "DELETE"],
            "accessStrategies": [{"handler": "noop", "config": {}}],
        }],
    });
    json_patch::merge(&mut whole, &spec);
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "0a1b2c3d-0000-4000-8000-000000000000"});
    serde_json::from_value(json!({
        "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "APIRule", "metadata": metadata, "spec": whole,
    }))
    .unwrap()
}

/// Returns the resolved form of such an APIRule.
pub(super) fn resolved(spec: Value) -> Resolved {
    let issuers = ["https://a", "https://b", "https://k", "https://keys"];
    let settings = Settings {
        default_domain: DomainName::parse("kyma.local").ok(),
        allowed_issuers: issuers.map(|issuer| issuer.parse().unwrap()).to_vec(),
        ..Settings::default()
    };
    resolve(&rule(spec), &settings, &|_| false, |_| false).unwrap_or_else(|failures| panic!("{}", text(&failures)))
}

/// Returns a rule with one path.
pub(super) fn path(path: &str, methods: &[&str], handler: &str) -> Value {
    let config = if handler == "jwt" { json!({"trusted_issuers": ["https://issuer.example.com"]}) } else { json!({}) };
    json!({"path": path, "methods": methods, "accessStrategies": [{"handler": handler, "config": config}]})
}
