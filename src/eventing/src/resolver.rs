//! Resolves the hosts of Services for deliveries.
//!
//! Invariant: the HTTP client connects only to addresses from this resolver, and this resolver returns addresses only
//! for valid targets. Invariant: link-local and metadata addresses are refused, whether a Service or a name server
//! returns them.

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::services::{Place, Services};
use mainstay_object::egress::{Egress, EgressPolicy};
use mainstay_object::names::ServiceHost;

/// The resolver of deliveries.
#[derive(Clone, Debug)]
pub(super) struct ServiceResolver(pub(super) Arc<Services>);

/// A host has no allowed address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoAddress(String);

impl Resolve for ServiceResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let services = Arc::clone(&self.0);
        Box::pin(async move {
            let found = addresses(&services, name.as_str()).await.map_err(NoAddress)?;
            Ok::<Addrs, _>(Box::new(found.into_iter()))
        })
    }
}

async fn addresses(services: &Services, host: &str) -> Result<Vec<SocketAddr>, String> {
    let service = ServiceHost::parse(host).map_err(|why| format!("{host}: {why}"))?;
    if let Some(flaw) = services.flaw(&service) {
        return Err(flaw);
    }
    match services.place(&service) {
        None => Err(format!("the Service {} does not exist in {}", service.service(), service.namespace())),
        Some(Place::At(all)) => judged(all.into_iter().map(|address| SocketAddr::new(address, 0)).collect()),
        Some(Place::Headless) => {
            // The trailing dot prevents search domains.
            let found = tokio::net::lookup_host((format!("{service}."), 0)).await;
            judged(found.map_err(|error| format!("{service} is not found ({error})"))?.collect())
        }
    }
}

/// Returns the allowed addresses. Fails if all addresses are refused.
pub(super) fn judged(found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    let policy = EgressPolicy::default();
    let refusal = |address: &SocketAddr| policy.refusal(Egress::Unrestricted, address.ip());
    let why = found.iter().find_map(refusal);
    let allowed: Vec<_> = found.into_iter().filter(|address| refusal(address).is_none()).collect();
    match why {
        Some(why) if allowed.is_empty() => Err(why.to_string()),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn only_services_that_are_targets_have_addresses() {
        let services = Services::default();
        let see = |name: &str, spec: serde_json::Value| {
            services.see(("team".to_owned(), name.to_owned()), &json!({"spec": spec}));
        };
        see("web", json!({"selector": {"a": "b"}, "clusterIP": "10.0.0.1"}));
        see("metadata", json!({"selector": {"a": "b"}, "clusterIPs": ["169.254.169.254", "168.63.129.16"]}));
        see("external", json!({"type": "ExternalName", "externalName": "kubernetes.default"}));
        see("written", json!({"clusterIP": "10.0.0.2"}));
        let check = async |host: &str, expected: &str| {
            let found = addresses(&services, host).await;
            let found = found.map_or_else(|why| why, |found| format!("{found:?}"));
            assert!(found.contains(expected), "{host}: {found}");
        };
        check("web.team.svc.cluster.local", "[10.0.0.1:0]").await;
        check("metadata.team.svc.cluster.local", "link-local").await;
        check("external.team.svc.cluster.local", "ExternalName").await;
        check("written.team.svc.cluster.local", "has no selector").await;
        check("web.other.svc.cluster.local", "does not exist").await;
        for host in ["localhost", "127.0.0.1", "169.254.169.254", "metadata.google.internal", "example.org"] {
            check(host, "must be the host of a Service").await;
        }
    }
}
