//! Finds the objects that the running agent consists of, so that no commit deletes them accidentally.
//!
//! Invariant: if the agent's pod cannot be read, its installation is still found by labels.

use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_engine::managed::installation::Installation;
use mainstay_object::failure::chain;

/// Returns the installation of the agent in this namespace, from its pod if the pod's name is known.
pub(super) async fn find(cluster: &Cluster, namespace: &str, pod: Option<&str>) -> Installation {
    let Some(pod) = pod else { return Installation::in_namespace(namespace) };
    let kind = Kind::fixed("v1", "Pod", "pods", Scope::Namespaced);
    match cluster.get(&kind, Some(namespace), pod).await {
        Ok(Some(found)) => Installation::of_pod(namespace, &found),
        Ok(None) => Installation::in_namespace(namespace),
        Err(error) => {
            tracing::warn!(
                pod,
                why = chain(&error),
                "the agent's own pod cannot be read: objects of the installation are recognised by labels only"
            );
            Installation::in_namespace(namespace)
        }
    }
}
