//! Services that an APIRule names and that are no target of a route.
//!
//! Invariant: a Service is a target only if its type is one that leads to pods of its namespace; another type, or one that cannot be
//! read, is not.

use std::collections::BTreeMap;

use serde_json::Value;

/// The types of Services that lead to pods.
const TYPES: [&str; 3] = ["ClusterIP", "NodePort", "LoadBalancer"];

/// The reason why a Service is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTarget {
    /// It does not exist.
    NotFound,
    /// Its type is `ExternalName`, which leads to any host, or is not known.
    Type,
}

/// The Services that are no targets, by name.
pub(super) type NoTargets = BTreeMap<String, NoTarget>;

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
