//! The identity and the permissions of each agent, so that the audit log shows which of them writes.

use std::path::Path;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use super::Error;
use crate::stand::{MANAGER, NAMESPACE};

/// Name of the role and of its binding.
const ROLE: &str = "mainstay-bench-agents";

/// Permits everything to the ServiceAccounts of the agents' namespace.
pub(super) async fn permit(client: &Client) -> Result<(), Error> {
    let how = PatchParams::apply(MANAGER).force();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": ROLE },
        "rules": [
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
            { "nonResourceURLs": ["*"], "verbs": ["*"] },
        ],
    });
    let roles = Api::<ClusterRole>::all(client.clone());
    roles.patch(ROLE, &how, &Patch::Apply(&role)).await.map_err(Error::Ask)?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": ROLE },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": format!("system:serviceaccounts:{NAMESPACE}"),
        }],
    });
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.patch(ROLE, &how, &Patch::Apply(&binding)).await.map(drop).map_err(Error::Ask)
}

/// Removes the permissions.
pub(super) async fn forbid(client: &Client) -> Result<(), Error> {
    let how = DeleteParams::default();
    Api::<ClusterRoleBinding>::all(client.clone()).delete(ROLE, &how).await.map_err(Error::Ask)?;
    Api::<ClusterRole>::all(client.clone()).delete(ROLE, &how).await.map(drop).map_err(Error::Ask)
}

/// Returns the current cluster of a kubeconfig.
pub(super) fn cluster_of(kubeconfig: &Path) -> Result<Value, Error> {
    let file = Kubeconfig::read_from(kubeconfig).map_err(Error::Kubeconfig)?;
    let named = file.contexts.iter().find(|context| Some(&context.name) == file.current_context.as_ref());
    let context = named.and_then(|context| context.context.as_ref()).ok_or(Error::NoCluster)?;
    let named = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let cluster = named.and_then(|cluster| cluster.cluster.as_ref()).ok_or(Error::NoCluster)?;
    serde_json::to_value(cluster).map_err(Error::Counts)
}

/// Returns a kubeconfig for a token.
pub(super) fn kubeconfig(cluster: &Value, token: &str) -> String {
    let file = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "clusters": [{ "name": "cluster", "cluster": cluster }],
        "users": [{ "name": "agent", "user": { "token": token } }],
        "contexts": [{ "name": "agent", "context": { "cluster": "cluster", "user": "agent" } }],
    });
    // JSON is YAML, too.
    file.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_the_cluster_of_another_and_its_own_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let clusters = "clusters:\n- {name: a, cluster: {server: https://a.test}}\n- {name: b, cluster: {server: https://b.test}}\n";
        let contexts =
            "contexts:\n- {name: one, context: {cluster: a, user: u}}\n- {name: two, context: {cluster: b, user: u}}\n";
        let head = "apiVersion: v1\nkind: Config\n";
        std::fs::write(&path, format!("{head}current-context: two\n{clusters}{contexts}users: []\n")).unwrap();
        let cluster = cluster_of(&path).unwrap();
        assert_eq!(cluster["server"], "https://b.test");
        std::fs::write(&path, kubeconfig(&cluster, "secret")).unwrap();
        let read = Kubeconfig::read_from(&path).unwrap();
        assert_eq!((read.auth_infos.len(), cluster_of(&path).unwrap()), (1, cluster));
        std::fs::write(&path, format!("{head}{clusters}{contexts}users: []\n")).unwrap();
        assert!(matches!(cluster_of(&path), Err(Error::NoCluster)));
    }
}
