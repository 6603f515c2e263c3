//! The unions of Kubernetes' own kinds: fields of one structure of which the server takes only one.
//!
//! Managed fields do not say what excludes what, so it is written down here. What is missing here is found out by the
//! server's refusal, which costs one request.

/// Whether the kinds of an API version are Kubernetes' own. What fields of the same names mean in a custom resource is not
/// known.
pub(crate) fn is_builtin(api_version: &str) -> bool {
    api_version.split_once('/').is_none_or(|(group, _)| !group.contains('.') || GROUPS.contains(&group))
}

/// API groups of Kubernetes' own kinds with a dot in their name.
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

/// Fields of one structure that exclude each other: the server takes one of them, or the second only with a certain value
/// of the first.
pub(crate) const EXCLUSIVE: [&[&str]; 11] = [
    // Environment variables, and where their value comes from.
    &["value", "valueFrom"],
    &["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"],
    // Probes and lifecycle hooks.
    &["exec", "grpc", "httpGet", "sleep", "tcpSocket"],
    // Update strategies of Deployments, StatefulSets and DaemonSets.
    &["type", "rollingUpdate"],
    // Profiles of security contexts.
    &["type", "localhostProfile"],
    &["sessionAffinity", "sessionAffinityConfig"],
    // Ingress backends and their ports.
    &["resource", "service"],
    &["name", "number"],
    // Webhooks.
    &["service", "url"],
    // PodDisruptionBudgets.
    &["maxUnavailable", "minAvailable"],
    VOLUME_SOURCES,
];

/// Sources of volumes, in pods and of PersistentVolumes.
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

/// The fields that the server does not take beside this one.
pub(crate) fn partners(name: &str) -> impl Iterator<Item = &'static str> {
    let groups = EXCLUSIVE.iter().filter(move |group| group.contains(&name));
    groups.flat_map(|group| group.iter().copied()).filter(move |other| *other != name)
}
