//! Fuzz targets for untrusted input. Each accepts any bytes, terminates quickly, does not panic, and checks its
//! invariants.

use reqwest::Url;
use serde_json::Value;

use super::checks::text;
use super::child::{Child, ChildKind};
use super::no_target::NoTargets;
use super::resolve::{Resolved, resolve};
use super::routes::build;
use super::served::{Means, RouteFeatures};
use super::settings::Settings;
use super::workload::Workloads;
use mainstay_api::ApiRule;
use mainstay_object::names::{DomainName, ServiceHost};

/// Resolves an APIRule from JSON. Its objects route only to Services of its namespace, for allowed hosts and gateways.
pub fn api_rule(bytes: &[u8]) {
    let Ok(rule) = serde_json::from_slice::<ApiRule>(bytes) else { return };
    let settings = Settings { default_domain: DomainName::parse("kyma.local").ok(), ..Settings::default() };
    let resolved = match resolve(&rule, &settings, &|_| false, |_| false) {
        Ok(resolved) => resolved,
        Err(failures) => {
            assert!(text(&failures).contains("alidation error"), "a refusal says why");
            return;
        }
    };
    for means in [Means::Oathkeeper, Means::Istio, Means::IstioPolicies, Means::Gateway] {
        let workloads = Workloads { have_proxies: true, ..Workloads::default() };
        let routes = build(&resolved, means, RouteFeatures::default(), &workloads, &NoTargets::new());
        routes.children.iter().for_each(|child| leads_where_it_may(&resolved, child));
    }
}

fn leads_where_it_may(resolved: &Resolved, child: &Child) {
    let spec = &child.body["spec"];
    let host = resolved.host.as_str();
    let is_own = |host: &str| {
        ServiceHost::parse(host).is_ok_and(|host| host.namespace().as_str() == resolved.identity.namespace)
    };
    match child.kind {
        ChildKind::VirtualService => {
            assert!(host.ends_with(".kyma.local") && spec["hosts"][0] == host, "the host is permitted");
            let gateway = spec["gateways"][0].as_str().unwrap_or_default();
            assert!(gateway.contains("kyma-system") && gateway.contains("kyma-gateway"), "the gateway is permitted");
            for route in spec["http"].as_array().into_iter().flatten() {
                let to = route["route"][0]["destination"]["host"].as_str().unwrap_or_default();
                assert!(is_own(to) || to.starts_with("ory-oathkeeper-proxy.kyma-system."), "the Service is its own");
            }
        }
        ChildKind::HttpRoute => {
            assert!(spec["hostnames"][0] == host, "the host is permitted");
            assert!(spec["parentRefs"][0]["namespace"] == "kyma-system", "the gateway is permitted");
        }
        ChildKind::AccessRule => {
            let upstream = spec["upstream"]["url"].as_str().and_then(|url| Url::parse(url).ok());
            let is_plain = |url: &Url| url.path() == "/" && url.query().is_none() && url.username().is_empty();
            let is_right = |url: &Url| url.host_str().is_some_and(is_own) && is_plain(url);
            // A host with an invalid `xn--` label does not parse as a URL.
            assert!(upstream.is_none_or(|url| is_right(&url)), "the upstream is a Service of its own");
            for one in spec["authenticators"].as_array().into_iter().flatten() {
                let keys = one["config"]["jwks_urls"].as_array().into_iter().flatten().filter_map(Value::as_str);
                for url in keys.chain(one["config"]["introspection_url"].as_str()) {
                    let url = Url::parse(url).ok();
                    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
                    let is_inside = host == "localhost" || host.starts_with("127.") || host.starts_with("169.254.");
                    assert!(ServiceHost::parse(host).is_err() && !is_inside, "no caller asks inside");
                }
            }
        }
        ChildKind::RequestAuthentication | ChildKind::AuthorizationPolicy => {}
    }
}
