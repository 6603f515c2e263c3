//! The kinds of `--kinds` as RBAC resources. `install` contacts no cluster, so the kinds of Kubernetes are listed here.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Value, json};

use mainstay_cluster::Scope;
use mainstay_object::syntax;

/// A resource that a repository may contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resource {
    group: String,
    plural: String,
    pub(super) scope: Scope,
}

/// The kinds of Kubernetes that a repository may contain: group, kind and plural.
const NAMESPACED: [(&str, &str, &str); 27] = [
    ("", "ConfigMap", "configmaps"),
    ("", "Endpoints", "endpoints"),
    ("", "LimitRange", "limitranges"),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("", "Pod", "pods"),
    ("", "PodTemplate", "podtemplates"),
    ("", "ReplicationController", "replicationcontrollers"),
    ("", "ResourceQuota", "resourcequotas"),
    ("", "Secret", "secrets"),
    ("", "Service", "services"),
    ("", "ServiceAccount", "serviceaccounts"),
    ("apps", "ControllerRevision", "controllerrevisions"),
    ("apps", "DaemonSet", "daemonsets"),
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
    ("apps", "StatefulSet", "statefulsets"),
    ("autoscaling", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("batch", "CronJob", "cronjobs"),
    ("batch", "Job", "jobs"),
    ("coordination.k8s.io", "Lease", "leases"),
    ("discovery.k8s.io", "EndpointSlice", "endpointslices"),
    ("networking.k8s.io", "Ingress", "ingresses"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "Role", "roles"),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    ("storage.k8s.io", "CSIStorageCapacity", "csistoragecapacities"),
];
const CLUSTER_SCOPED: [(&str, &str, &str); 13] = [
    ("", "Namespace", "namespaces"),
    ("", "PersistentVolume", "persistentvolumes"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "APIService", "apiservices"),
    ("networking.k8s.io", "IngressClass", "ingressclasses"),
    ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings"),
    ("scheduling.k8s.io", "PriorityClass", "priorityclasses"),
    ("storage.k8s.io", "StorageClass", "storageclasses"),
];

impl FromStr for Resource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (group, name) = text.rsplit_once('/').unwrap_or(("", text));
        let known = [(&NAMESPACED[..], Scope::Namespaced), (&CLUSTER_SCOPED[..], Scope::Cluster)];
        let found = known.into_iter().find_map(|(rows, scope)| {
            let row = rows.iter().find(|row| row.0 == group && (row.1 == name || row.2 == name))?;
            Some(Self { group: group.to_owned(), plural: row.2.to_owned(), scope })
        });
        if let Some(found) = found {
            return Ok(found);
        }
        // Groups of custom kinds are domains.
        if group.contains('.') && syntax::subdomain(group).is_none() && is_plural(name) {
            return Ok(Self { group: group.to_owned(), plural: name.to_owned(), scope: Scope::Namespaced });
        }
        let hint = "write kinds of Kubernetes as apps/Deployment or Service, and a custom kind by its plural, as in \
                    example.com/widgets";
        Err(format!("{text:?} is not a known kind; {hint}"))
    }
}

fn is_plural(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

impl Resource {
    /// Returns whether the resource is Secrets. A user who may list them can read them.
    pub(super) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.plural == "secrets"
    }
}

/// Returns RBAC rules with these verbs, one per group.
pub(super) fn rules<'a>(resources: impl IntoIterator<Item = &'a Resource>, verbs: &[&str]) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for resource in resources {
        let plurals = groups.entry(&resource.group).or_default();
        if !plurals.contains(&&*resource.plural) {
            plurals.push(&resource.plural);
        }
    }
    let rule = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    groups.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kinds_of_kubernetes_and_plurals_of_custom_kinds() {
        for (text, group, plural, scope) in [
            ("apps/Deployment", "apps", "deployments", Scope::Namespaced),
            ("Service", "", "services", Scope::Namespaced),
            ("services", "", "services", Scope::Namespaced),
            ("Namespace", "", "namespaces", Scope::Cluster),
            ("example.com/widgets", "example.com", "widgets", Scope::Namespaced),
        ] {
            let expected = Resource { group: group.to_owned(), plural: plural.to_owned(), scope };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn refuses_wildcards_subresources_and_unknown_kinds() {
        for text in [
            "",
            "*",
            "*/*",
            "apps/*",
            "pods/exec",
            "Pod/exec",
            "serviceaccounts/token",
            "Deployment",
            "apps/Deploymnt",
            "example.com/Widget",
            "example.com/widgets/status",
            "example.com/",
            "/",
            "User",
            "users",
            "groups",
            "nodes",
        ] {
            assert!(text.parse::<Resource>().unwrap_err().contains("is not a known kind"), "{text}");
        }
    }

    #[test]
    fn rules_name_each_resource_once() {
        let resources = ["Service", "apps/Deployment", "services"].map(|text| text.parse::<Resource>().unwrap());
        let expected = [
            json!({"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}),
            json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}),
        ];
        assert_eq!(rules(&resources, &["get"]), expected);
    }
}
