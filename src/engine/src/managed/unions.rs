//! The unions of built-in kinds: fields of one structure that exclude one another.
//!
//! Managed fields do not show which fields exclude each other, so this table does. If a pair is missing here, the
//! server's refusal shows that another manager's field excludes Mainstay's. This costs one request. A field without an
//! owner is removed only if it is in the table.

use serde_json::{Map, Value};

/// Whether an API version belongs to Kubernetes. In a custom resource, fields of the same names may have different
/// meanings.
pub(crate) fn is_builtin(api_version: &str) -> bool {
    api_version.split_once('/').is_none_or(|(group, _)| !group.contains('.') || GROUPS.contains(&group))
}

/// API groups of Kubernetes with a dot in their name.
const GROUPS: [&str; 16] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Fields of one structure that the server does not accept together.
#[derive(Clone, Copy, Debug)]
enum Union {
    /// The server accepts one of these.
    OneOf(&'static [&'static str]),
    /// The server accepts the first field only if the second one has this value.
    Only(&'static str, &'static str, &'static str),
    /// The server computes the first field if no manager sets it. It contains this item if the second field has items.
    Computed(&'static str, &'static str, &'static str),
}

/// All unions whose members may come from different writers. Lists that an apply replaces as a whole, such as the
/// metrics of a HorizontalPodAutoscaler, are omitted.
const UNIONS: [Union; 18] = [
    // Environment variables, and the sources of their values.
    Union::OneOf(&["value", "valueFrom"]),
    Union::OneOf(&["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"]),
    // Probes and lifecycle hooks.
    Union::OneOf(&["exec", "grpc", "httpGet", "sleep", "tcpSocket"]),
    // Update strategies of Deployments, StatefulSets and DaemonSets.
    Union::Only("rollingUpdate", "type", "RollingUpdate"),
    // Profiles of security contexts.
    Union::Only("localhostProfile", "type", "Localhost"),
    Union::Only("sessionAffinityConfig", "sessionAffinity", "ClientIP"),
    // NetworkPolicies: without `Egress` the rules in `egress` have no effect, and without rules it denies all egress.
    Union::Computed("policyTypes", "egress", "Egress"),
    // Ingress backends and their ports.
    Union::OneOf(&["resource", "service"]),
    Union::OneOf(&["name", "number"]),
    // Webhooks, and the conversion of CRDs.
    Union::OneOf(&["service", "url"]),
    Union::Only("webhook", "strategy", "Webhook"),
    // PodDisruptionBudgets.
    Union::OneOf(&["maxUnavailable", "minAvailable"]),
    // PriorityLevelConfigurations.
    Union::Only("limited", "type", "Limited"),
    Union::Only("exempt", "type", "Exempt"),
    Union::Only("queuing", "type", "Queue"),
    // Parameter references of admission policy bindings.
    Union::OneOf(&["name", "selector"]),
    Union::OneOf(VOLUME_SOURCES),
    Union::OneOf(PROJECTIONS),
];

/// Sources of projected volumes.
const PROJECTIONS: &[&str] =
    &["clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"];

/// Sources of volumes in pods, and of PersistentVolumes.
const VOLUME_SOURCES: &[&str] = &[
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "local",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

/// Whether the server does not accept the two fields together.
pub(crate) fn exclude(one: &str, other: &str) -> bool {
    one != other
        && UNIONS.iter().any(|union| match union {
            Union::OneOf(members) => members.contains(&one) && members.contains(&other),
            Union::Only(member, tag, _) => [(one, other), (other, one)].contains(&(*member, *tag)),
            Union::Computed(..) => false,
        })
}

/// Whether a live field that is not in `wanted` excludes a desired field, or was computed from other values.
pub(crate) fn gives_way(name: &str, live: &Value, wanted: &Map<String, Value>) -> bool {
    let is_wanted = |name: &str| wanted.get(name).is_some_and(|value| !value.is_null());
    UNIONS.iter().any(|union| match union {
        Union::OneOf(members) => members.contains(&name) && members.iter().any(|other| is_wanted(other)),
        Union::Only(member, tag, value) => {
            *member == name && is_wanted(tag) && wanted.get(*tag).is_some_and(|wanted| wanted != value)
        }
        Union::Computed(member, of, item) => {
            let has_items = wanted.get(*of).and_then(Value::as_array).is_some_and(|items| !items.is_empty());
            let is_listed = live.as_array().is_some_and(|items| items.iter().any(|one| one == item));
            *member == name && has_items != is_listed
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_is_removed_for_another_desired_one() {
        let cases = [
            ("rollingUpdate", json!({"maxSurge": "25%"}), json!({"type": "Recreate"}), true),
            ("rollingUpdate", json!({}), json!({"type": "OnDelete"}), true),
            ("rollingUpdate", json!({}), json!({"type": "RollingUpdate"}), false),
            ("rollingUpdate", json!({}), json!({}), false),
            ("rollingUpdate", json!({}), json!({"type": null}), false),
            ("emptyDir", json!({}), json!({"name": "v", "secret": {"secretName": "s"}}), true),
            ("emptyDir", json!({}), json!({"name": "v", "secret": null}), false),
            ("value", json!("1"), json!({"name": "A", "valueFrom": {}}), true),
            ("httpGet", json!({}), json!({"periodSeconds": 5, "exec": {}}), true),
            ("localhostProfile", json!("p"), json!({"type": "RuntimeDefault"}), true),
            ("sessionAffinityConfig", json!({}), json!({"sessionAffinity": "None"}), true),
            ("service", json!({}), json!({"resource": {}}), true),
            ("number", json!(80), json!({"name": "http"}), true),
            ("url", json!("u"), json!({"service": {}}), true),
            ("webhook", json!({}), json!({"strategy": "None"}), true),
            ("minAvailable", json!(1), json!({"maxUnavailable": 1}), true),
            ("limited", json!({}), json!({"type": "Exempt"}), true),
            ("policyTypes", json!(["Ingress"]), json!({"egress": [{}]}), true),
            ("policyTypes", json!(["Ingress", "Egress"]), json!({"egress": [{}]}), false),
            ("policyTypes", json!(["Ingress", "Egress"]), json!({"ingress": [{}]}), true),
            ("policyTypes", json!(["Ingress"]), json!({"egress": []}), false),
            ("type", json!("RollingUpdate"), json!({"rollingUpdate": {}}), false),
            ("replicas", json!(3), json!({"type": "Recreate"}), false),
        ];
        for (name, live, wanted, expected) in cases {
            assert_eq!(gives_way(name, &live, wanted.as_object().unwrap()), expected, "{name}: {live} beside {wanted}");
        }
    }

    #[test]
    fn members_exclude_each_other_and_a_tag_excludes_its_member() {
        for (one, other, expected) in [
            ("value", "valueFrom", true),
            ("rollingUpdate", "type", true),
            ("type", "rollingUpdate", true),
            ("exec", "exec", false),
            ("exec", "value", false),
            ("type", "localhostProfile", true),
            ("policyTypes", "egress", false),
        ] {
            assert_eq!(exclude(one, other), expected, "{one} {other}");
        }
    }
}
