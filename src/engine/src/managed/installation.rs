//! The objects of the running Mainstay. No commit deletes them without permission, whichever owner manages them.
//!
//! An object belongs to the installation if it carries the label of all installed objects and is in the agent's
//! namespace or cluster-scoped. Regardless of labels, the agent's pod identifies its workload, its ServiceAccount, and
//! the bindings of that account. Names are no evidence, because other objects may have them.
//!
//! Not here: reading the pod (`agent`). Deletions of Namespaces and CRDs are held for all owners (`deletion`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::deletion::{Deletion, Kept, Permission};
use mainstay_api::names::{INSTALLED, INSTALLED_AS};
use mainstay_object::Key;

/// Group of Roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The objects of the running Mainstay; by default none is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// The agent's namespace; empty if unknown.
    namespace: String,
    /// The workload of the agent's pod.
    workload: Option<Key>,
    /// The name of the pod's ServiceAccount.
    account: Option<String>,
}

impl Installation {
    /// Returns the installation of an agent in this namespace, without knowledge of its pod.
    pub fn in_namespace(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Returns the installation of the agent that runs in this pod.
    pub fn of_pod(namespace: &str, pod: &Value) -> Self {
        let account = pod.pointer("/spec/serviceAccountName").and_then(Value::as_str).map(str::to_owned);
        Self { namespace: namespace.to_owned(), workload: workload_of(namespace, pod), account }
    }

    /// Whether an object belongs to the installation, by its metadata.
    pub fn includes(&self, key: &Key, meta: &ObjectMeta) -> bool {
        let is_labelled =
            meta.labels.as_ref().and_then(|labels| labels.get(INSTALLED)).is_some_and(|v| v == INSTALLED_AS);
        let is_account = key.is("", "ServiceAccount") && self.account.as_deref() == Some(&*key.name);
        self.is_here(key) && (is_labelled || is_account || self.workload.as_ref() == Some(key))
    }

    /// Whether the decision about this object needs the whole object.
    pub(crate) fn asks_for(&self, key: &Key) -> bool {
        let is_binding = key.is(RBAC, "RoleBinding") || key.is(RBAC, "ClusterRoleBinding");
        is_binding && self.account.is_some() && self.is_here(key)
    }

    /// Whether a binding grants permissions to the agent.
    pub(crate) fn is_bound_by(&self, key: &Key, binding: &Value) -> bool {
        let Some(account) = self.account.as_deref().filter(|_| self.asks_for(key)) else { return false };
        let mut subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        subjects
            .any(|one| one["kind"] == "ServiceAccount" && one["name"] == account && one["namespace"] == *self.namespace)
    }

    /// Keeps an object of the installation, unless a user permitted its deletion.
    pub(crate) fn spare(&self, deletion: Deletion, key: &Key, live: Live<'_>, permission: Permission) -> Deletion {
        let belongs = || match live {
            Live::Metadata(meta) => self.includes(key, meta),
            Live::Whole(meta, object) => self.includes(key, meta) || self.is_bound_by(key, object),
        };
        if deletion == Deletion::Allowed && permission == Permission::Unasked && belongs() {
            return Deletion::Kept(Kept::Installed);
        }
        deletion
    }

    fn is_here(&self, key: &Key) -> bool {
        !self.namespace.is_empty() && key.namespace.as_deref().is_none_or(|namespace| namespace == self.namespace)
    }
}

/// The part of a live object that was read.
#[derive(Clone, Copy, Debug)]
pub enum Live<'a> {
    /// Only the metadata.
    Metadata(&'a ObjectMeta),
    /// The whole object.
    Whole(&'a ObjectMeta, &'a Value),
}

/// Returns the workload of a pod. A ReplicaSet is named after its Deployment and the hash in the labels of its pods.
fn workload_of(namespace: &str, pod: &Value) -> Option<Key> {
    let owners = pod.pointer("/metadata/ownerReferences")?.as_array()?;
    let controller = owners.iter().find(|owner| owner["controller"] == true)?;
    let text = |field: &str| controller[field].as_str();
    let (kind, name) = (text("kind")?, text("name")?);
    let group = text("apiVersion")?.split_once('/').map_or("", |(group, _)| group);
    let hash = pod.pointer("/metadata/labels/pod-template-hash").and_then(Value::as_str);
    let deployment = hash.and_then(|hash| name.strip_suffix(hash)?.strip_suffix('-'));
    Some(match deployment.filter(|_| group == "apps" && kind == "ReplicaSet") {
        Some(deployment) => Key::new("apps", "Deployment", Some(namespace), deployment),
        None => Key::new(group, kind, Some(namespace), name),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(labels: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"labels": labels})).unwrap()
    }

    fn agent() -> Installation {
        let pod = json!({
            "metadata": {
                "labels": {"pod-template-hash": "5d4f"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "x"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "flux-5d4f", "controller": true}],
            },
            "spec": {"serviceAccountName": "syncer"},
        });
        Installation::of_pod("home", &pod)
    }

    #[test]
    fn labelled_objects_of_its_namespace_and_of_the_cluster_belong_to_it() {
        let (ours, others) = (meta(&json!({INSTALLED: INSTALLED_AS})), meta(&json!({INSTALLED: "web"})));
        let here = Installation::in_namespace("home");
        let service = |namespace| Key::new("", "Service", Some(namespace), "mainstay-receivers");
        assert!(here.includes(&service("home"), &ours) && !here.includes(&service("home"), &others));
        assert!(!here.includes(&service("elsewhere"), &ours), "another one's");
        assert!(here.includes(&Key::new(RBAC, "ClusterRole", None, "mainstay-agent"), &ours));
        assert!(!here.includes(&service("home"), &ObjectMeta::default()), "a name says nothing");
        assert!(!Installation::default().includes(&Key::new(RBAC, "ClusterRole", None, "x"), &ours), "it is not known");
    }

    #[test]
    fn the_owners_of_its_pod_and_their_account_belong_to_it_with_any_labels() {
        let (agent, none) = (agent(), ObjectMeta::default());
        let includes =
            |group, kind, namespace, name| agent.includes(&Key::new(group, kind, Some(namespace), name), &none);
        assert!(includes("apps", "Deployment", "home", "flux") && includes("", "ServiceAccount", "home", "syncer"));
        assert!(!includes("apps", "Deployment", "home", "other") && !includes("apps", "Deployment", "shop", "flux"));
        assert!(!includes("", "ServiceAccount", "home", "other") && !includes("", "ServiceAccount", "shop", "syncer"));
    }

    #[test]
    fn bindings_of_its_account_belong_to_it() {
        let agent = agent();
        let binding = |name: &str, namespace: &str| json!({"subjects": [{"kind": "User", "name": "ada"}, {"kind": "ServiceAccount", "name": name, "namespace": namespace}]});
        let cluster = Key::new(RBAC, "ClusterRoleBinding", None, "x");
        assert!(agent.asks_for(&cluster) && agent.is_bound_by(&cluster, &binding("syncer", "home")));
        assert!(!agent.is_bound_by(&cluster, &binding("syncer", "shop")));
        assert!(!agent.is_bound_by(&cluster, &json!({})));
        let elsewhere = Key::new(RBAC, "RoleBinding", Some("shop"), "x");
        assert!(!agent.is_bound_by(&elsewhere, &binding("syncer", "home")), "a right in somebody else's namespace");
        assert!(!agent.asks_for(&Key::new(RBAC, "ClusterRole", None, "x")));
    }

    #[test]
    fn it_is_deleted_only_with_permission() {
        let (agent, key) = (agent(), Key::new("apps", "Deployment", Some("home"), "flux"));
        let meta = ObjectMeta::default();
        let spare = |deletion, permission| agent.spare(deletion, &key, Live::Metadata(&meta), permission);
        assert_eq!(spare(Deletion::Allowed, Permission::Unasked), Deletion::Kept(Kept::Installed));
        assert_eq!(spare(Deletion::Allowed, Permission::Allowed), Deletion::Allowed);
        assert_eq!(spare(Deletion::NotOurs, Permission::Unasked), Deletion::NotOurs);
    }
}
