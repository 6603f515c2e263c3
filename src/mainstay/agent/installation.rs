//! Looks up what the agent that runs here is made of, so that no commit deletes it unasked.
//!
//! Invariant: an agent whose pod cannot be read knows its installation by its labels all the same.

use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_engine::managed::installation::Installation;
use mainstay_object::failure::chain;

/// What the agent in this namespace is made of, by the pod that it runs in, if it knows that.
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
