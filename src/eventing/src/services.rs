//! The known Services: whether events may be delivered to a Service, and its addresses.
//!
//! Invariant: the endpoints of a valid target come from its selector, so they are pods of its own namespace. Services
//! of type ExternalName, without a selector, or with an EndpointSlice from another writer are not valid targets,
//! because they can point to any address. Invariant: only Services in the cluster have an address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::RwLock;
use serde_json::Value;

use mainstay_object::names::ServiceHost;

/// Namespace and name.
pub(super) type Name = (String, String);

/// Label of an EndpointSlice with the name of its Service.
const SERVICE: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice with the name of its manager.
pub(super) const WRITTEN_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The cluster's own controller. This controller removes endpoints that other clients add to its EndpointSlices.
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// All known Services.
#[derive(Debug, Default)]
pub(super) struct Services {
    known: RwLock<Known>,
    /// Namespaces in which the operator allows targets without a selector; `*` matches all.
    written_in: Vec<String>,
}

#[derive(Debug, Default)]
struct Known {
    services: BTreeMap<Name, Service>,
    /// EndpointSlices from other writers, and their Services.
    written: BTreeMap<Name, String>,
}

/// The needed fields of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Service {
    is_external: bool,
    has_selector: bool,
    addresses: Vec<IpAddr>,
}

/// The addresses of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The Service's cluster IPs.
    At(Vec<IpAddr>),
    /// The Service is headless: the addresses of its pods, which the cluster's DNS returns.
    Headless,
}

impl Services {
    pub(super) fn new(written_in: Vec<String>) -> Self {
        Self { known: RwLock::default(), written_in }
    }

    /// Adds or updates a Service. Returns whether it changed.
    pub(super) fn see(&self, name: Name, object: &Value) -> bool {
        let service = read(object);
        self.known.write().services.insert(name, service.clone()) != Some(service)
    }

    /// Adds or updates an EndpointSlice from another writer. Returns whether it changed.
    pub(super) fn see_written(&self, name: Name, object: &Value) -> bool {
        let of = object["metadata"]["labels"][SERVICE].as_str().unwrap_or_default().to_owned();
        self.known.write().written.insert(name, of.clone()) != Some(of)
    }

    pub(super) fn gone(&self, name: &Name) {
        self.known.write().services.remove(name);
    }

    pub(super) fn gone_written(&self, name: &Name) {
        self.known.write().written.remove(name);
    }

    pub(super) fn names(&self) -> Vec<Name> {
        self.known.read().services.keys().cloned().collect()
    }

    pub(super) fn names_written(&self) -> Vec<Name> {
        self.known.read().written.keys().cloned().collect()
    }

    /// Returns why a Service is not a valid target. A missing Service is not an error, because its events wait for it.
    pub(super) fn flaw(&self, host: &ServiceHost) -> Option<String> {
        let (namespace, service) = (host.namespace().as_str(), host.service().as_str());
        let known = self.known.read();
        let found = known.services.get(&(namespace.to_owned(), service.to_owned()))?;
        let why = if found.is_external {
            "is of type ExternalName, so events would leave its namespace; name a Service with a selector".to_owned()
        } else if self.written_in.iter().any(|one| one == "*" || one == namespace) {
            return None;
        } else if !found.has_selector {
            "has no selector, so its endpoints may be anywhere; name a Service with a selector, or have the operator allow it \
             (--allow-written-endpoints)"
                .to_owned()
        } else {
            let mut slices = known.written.iter().filter(|((of, _), name)| of == namespace && **name == service);
            let ((_, slice), _) = slices.next()?;
            format!("has the EndpointSlice {slice}, which does not result from its selector; delete the EndpointSlice")
        };
        Some(format!("the Service {service} in {namespace} {why}"))
    }

    /// Returns the addresses of a Service; `None` if the Service is missing.
    pub(super) fn place(&self, host: &ServiceHost) -> Option<Place> {
        let name = (host.namespace().as_str().to_owned(), host.service().as_str().to_owned());
        let known = self.known.read();
        let service = known.services.get(&name).filter(|service| !service.is_external)?;
        let addresses = service.addresses.clone();
        Some(if addresses.is_empty() { Place::Headless } else { Place::At(addresses) })
    }
}

fn read(object: &Value) -> Service {
    let spec = &object["spec"];
    let all = spec["clusterIPs"].as_array().into_iter().flatten().chain([&spec["clusterIP"]]);
    let mut addresses: Vec<IpAddr> = all.filter_map(|address| address.as_str()?.parse().ok()).collect();
    addresses.dedup();
    Service {
        is_external: spec["type"] == "ExternalName" || spec["externalName"].is_string(),
        has_selector: spec["selector"].as_object().is_some_and(|selector| !selector.is_empty()),
        addresses,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(name: &str) -> Name {
        ("team".to_owned(), name.to_owned())
    }

    fn host(name: &str) -> ServiceHost {
        ServiceHost::parse(&format!("{name}.team.svc")).unwrap()
    }

    #[test]
    fn events_lead_to_services_whose_endpoints_follow_from_a_selector() {
        let (services, free) = (Services::default(), Services::new(vec!["team".to_owned()]));
        let check = |spec: Value, expected: Option<&str>, where_written: Option<&str>| {
            for (services, expected) in [(&services, expected), (&free, where_written)] {
                services.see(name("web"), &json!({"spec": spec}));
                let flaw = services.flaw(&host("web")).unwrap_or_default();
                assert_eq!(flaw.is_empty(), expected.is_none(), "{spec}: {flaw}");
                assert!(flaw.contains(expected.unwrap_or_default()), "{flaw}");
            }
        };
        check(json!({"selector": {"app": "web"}, "clusterIP": "10.0.0.1"}), None, None);
        let external = Some("the Service web in team is of type ExternalName");
        check(json!({"type": "ExternalName", "externalName": "kubernetes.default"}), external, external);
        check(json!({"externalName": "a.org", "selector": {"app": "web"}}), external, external);
        for selector in [json!(null), json!({})] {
            check(json!({"selector": selector, "clusterIP": "10.0.0.1"}), Some("has no selector"), None);
        }
        assert_eq!(services.flaw(&host("absent")), None, "its events wait");
    }

    #[test]
    fn an_endpoint_slice_that_somebody_wrote_is_a_flaw_of_its_service() {
        let services = Services::default();
        services.see(name("web"), &json!({"spec": {"selector": {"app": "web"}}}));
        let slice = json!({"metadata": {"labels": {SERVICE: "web"}}});
        assert!(services.see_written(name("mine"), &slice) && !services.see_written(name("mine"), &slice));
        assert!(services.flaw(&host("web")).unwrap().contains("has the EndpointSlice mine"));
        services.gone_written(&name("mine"));
        assert_eq!(services.flaw(&host("web")), None);
        services.see_written(("other".to_owned(), "theirs".to_owned()), &slice);
        assert_eq!(services.flaw(&host("web")), None, "that of another namespace");
    }

    #[test]
    fn a_service_is_at_its_own_addresses() {
        let services = Services::default();
        let at = |spec: Value| {
            services.see(name("web"), &json!({"spec": spec}));
            services.place(&host("web"))
        };
        let both = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let spec = json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"]});
        assert!(matches!(at(spec), Some(Place::At(found)) if found.starts_with(&both)));
        assert_eq!(at(json!({"clusterIP": "None", "clusterIPs": ["None"]})), Some(Place::Headless));
        assert_eq!(at(json!({"type": "ExternalName", "externalName": "a.org", "clusterIP": "10.0.0.1"})), None);
        assert_eq!(services.place(&host("absent")), None);
    }
}
