//! Services that an APIRule names and that are no target of a route.
//!
//! Invariant: a Service is a target only if its type is one that leads to pods of its namespace and its endpoints follow from its
//! selector. Another type, one that cannot be read, a Service without a selector, and one with an EndpointSlice that somebody wrote
//! are not: they lead wherever their author says. The operator permits the last two by namespace.

use std::collections::BTreeMap;

use serde_json::Value;

/// The types of Services that lead to pods.
const TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// The reason why a Service is no target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    /// It does not exist.
    NotFound,
    /// Its type is `ExternalName`, which leads to any host, or is not known.
    Type,
    /// It has no selector.
    NoSelector,
    /// It has this EndpointSlice, which does not follow from its selector.
    Written(String),
}

/// The Services that are no targets, by name.
pub(super) type NoTargets = BTreeMap<String, NoTarget>;

/// The label of an EndpointSlice that names its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// The label of an EndpointSlice that names its author.
pub(super) const WRITTEN_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The controller of the cluster, whose EndpointSlices follow from selectors.
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// The Service of an EndpointSlice.
pub(super) fn service_of(slice: &Value) -> Option<&str> {
    slice["metadata"]["labels"][SERVICE].as_str()
}

/// Whether a Service has a selector.
pub(super) fn has_selector(service: &Value) -> bool {
    service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty())
}

/// Whether a Service leads to pods.
pub(super) fn leads_to_pods(service: &Value) -> bool {
    service["spec"]["type"].as_str().is_some_and(|of| TYPES.contains(&of))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_a_target_by_its_type_only() {
        for of in TYPES {
            assert!(leads_to_pods(&json!({"spec": {"type": of}})), "{of}");
        }
        for other in [
            json!({"spec": {"type": "ExternalName", "externalName": "kubernetes.default.svc"}}),
            json!({"spec": {"type": "Unheard", "selector": {"app": "web"}}}),
            json!({"spec": {"externalName": "kubernetes.default.svc"}}),
            json!({"metadata": {"name": "unreadable"}}),
        ] {
            assert!(!leads_to_pods(&other), "{other}");
        }
    }
}
