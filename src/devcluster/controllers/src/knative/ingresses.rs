//! Ingresses: marks them ready immediately, because the node routes by them directly.

use serde_json::{Value, json};

use super::conditions::Conditions;
use super::kinds::MANAGER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::is_terminating;

const BALANCER: &str = "LoadBalancerReady";
const NETWORK: &str = "NetworkConfigured";

/// Marks an Ingress as ready.
pub(super) fn reconcile(client: &Client, subject: &Subject, ingress: &Value) {
    if is_terminating(ingress) {
        return;
    }
    let mut conditions = Conditions::of(ingress, &[BALANCER, NETWORK], client.stamp());
    conditions.is_true(NETWORK);
    conditions.is_true(BALANCER);
    let mesh = json!({"ingress": [{"meshOnly": true}]});
    let status = json!({
        "observedGeneration": ingress["metadata"]["generation"], "conditions": conditions.list(),
        "publicLoadBalancer": mesh, "privateLoadBalancer": mesh,
    });
    client.set_status(MANAGER, subject, ingress, status);
}
