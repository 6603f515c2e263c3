//! An Ingress is ready as soon as it is seen: the node leads requests by what it says.

use serde_json::{Value, json};

use super::conditions::Conditions;
use super::kinds::MANAGER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::is_terminating;

const BALANCER: &str = "LoadBalancerReady";
const NETWORK: &str = "NetworkConfigured";

/// Says that an Ingress is in force.
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
