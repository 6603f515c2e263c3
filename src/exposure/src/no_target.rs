//! Services in an APIRule that are not valid targets of a route.
//!
//! Invariant: a Service is a valid target only if its type routes to pods of its namespace, and its endpoints follow
//! from its selector. Endpoints that a user wrote can contain any address; the operator allows them per namespace.

use std::collections::BTreeMap;

use serde_json::Value;

/// Types of Services that route to pods.
const TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// Why a Service is not a valid target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    /// The Service does not exist.
    NotFound,
    /// The type of the Service is `ExternalName`, which can refer to any host, or is unknown.
    Type,
    /// The Service has no selector.
    NoSelector,
    /// The Service has this EndpointSlice, which a user wrote.
    Written(String),
}

/// The Services that are not valid targets, by name.
pub(super) type NoTargets = BTreeMap<String, NoTarget>;

/// Label of an EndpointSlice that names its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// Label of an EndpointSlice that names its author.
pub(super) const WRITTEN_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The value of that label for the cluster's controller, whose EndpointSlices follow from selectors.
pub(super) const CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// Returns the Service of an EndpointSlice.
pub(super) fn service_of(slice: &Value) -> Option<&str> {
    slice["metadata"]["labels"][SERVICE].as_str()
}

/// Whether a Service has a selector.
pub(super) fn has_selector(service: &Value) -> bool {
    service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty())
}

/// Whether the type of a Service routes to pods.
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
