//! The order in which objects are applied. It depends on kinds, never on file names.
//!
//! Invariant: pruning uses exactly the reverse order.

use std::cmp::Reverse;

use super::Key;

/// A position in the order of applying. Stages follow each other; within a stage, lower ranks come first. Objects
/// with equal stage and rank do not depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stage {
    /// 1 Namespaces and CustomResourceDefinitions; 2 cluster-scoped definitions; 3 configuration, identity and limits;
    /// 4 workloads and custom resources; 5 webhook configurations, admission policies, APIServices.
    pub number: u8,
    /// 1 for objects that need objects of rank 0 which they reference (bindings), otherwise 0.
    pub rank: u8,
}

/// All kinds that do not belong to stage 4 by default: group, kind, stage, rank.
const ORDER: &[(&str, &str, u8, u8)] = &[
    ("", "Namespace", 1, 0),
    ("apiextensions.k8s.io", "CustomResourceDefinition", 1, 0),
    ("storage.k8s.io", "StorageClass", 2, 0),
    ("storage.k8s.io", "CSIDriver", 2, 0),
    ("storage.k8s.io", "VolumeAttributesClass", 2, 0),
    ("snapshot.storage.k8s.io", "VolumeSnapshotClass", 2, 0),
    ("scheduling.k8s.io", "PriorityClass", 2, 0),
    ("node.k8s.io", "RuntimeClass", 2, 0),
    ("networking.k8s.io", "IngressClass", 2, 0),
    ("gateway.networking.k8s.io", "GatewayClass", 2, 0),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", 2, 0),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", 2, 1),
    ("rbac.authorization.k8s.io", "ClusterRole", 2, 0),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", 2, 1),
    ("", "PersistentVolume", 2, 1),
    ("", "ServiceAccount", 3, 0),
    ("rbac.authorization.k8s.io", "Role", 3, 0),
    ("rbac.authorization.k8s.io", "RoleBinding", 3, 1),
    ("", "Secret", 3, 0),
    ("", "ConfigMap", 3, 0),
    ("", "PersistentVolumeClaim", 3, 0),
    ("", "Service", 3, 0),
    ("networking.k8s.io", "NetworkPolicy", 3, 0),
    ("", "ResourceQuota", 3, 0),
    ("", "LimitRange", 3, 0),
    ("policy", "PodDisruptionBudget", 3, 0),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", 5, 0),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", 5, 0),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", 5, 0),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy", 5, 0),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", 5, 1),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", 5, 1),
    ("apiregistration.k8s.io", "APIService", 5, 0),
];

/// Returns the stage in which an object is applied.
pub fn stage(key: &Key) -> Stage {
    ORDER
        .iter()
        .find(|(group, kind, ..)| key.is(group, kind))
        .map_or(Stage { number: 4, rank: 0 }, |&(_, _, number, rank)| Stage { number, rank })
}

/// Returns the sort key of pruning: the objects applied last are pruned first.
pub fn prune_order(key: &Key) -> Reverse<Stage> {
    Reverse(stage(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut keys: Vec<Key> = pairs.iter().map(|(group, kind)| Key::new(*group, *kind, None, "x")).collect();
        keys.sort_by_key(stage);
        keys.iter().map(|key| key.kind.to_string()).collect()
    }

    #[test]
    fn applies_what_others_need_first() {
        let order = sorted(&[
            ("apiregistration.k8s.io", "APIService"),
            ("example.com", "Widget"),
            ("apps", "Deployment"),
            ("rbac.authorization.k8s.io", "RoleBinding"),
            ("", "Secret"),
            ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("", "Namespace"),
        ]);
        assert_eq!(
            order,
            [
                "Namespace",
                "ClusterRole",
                "ClusterRoleBinding",
                "Secret",
                "RoleBinding",
                "Widget",
                "Deployment",
                "APIService"
            ]
        );
    }

    #[test]
    fn prunes_in_reverse() {
        let namespace = Key::new("", "Namespace", None, "x");
        let deployment = Key::new("apps", "Deployment", None, "x");
        assert!(prune_order(&deployment) < prune_order(&namespace));
    }

    #[test]
    fn a_kind_of_another_group_is_a_custom_resource() {
        assert_eq!(stage(&Key::new("serving.knative.dev", "Service", None, "x")).number, 4);
    }
}
