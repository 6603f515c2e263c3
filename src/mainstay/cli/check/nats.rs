//! Checks that the publishers and dispatchers of events are connected to NATS. Their pods are ready only while NATS
//! responds.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde_json::Value;

use super::repository::{Finding, wrong};
use crate::cli::Error;
use mainstay_api::names::EVENTING_NAMESPACE as NAMESPACE;
use mainstay_cluster::{Cluster, Kind, Scope, Selection};
use mainstay_object::printable;

/// The Deployments of `manifests/eventing/nats.yaml`.
const DEPLOYMENTS: [&str; 2] = ["mainstay-eventing-publisher", "mainstay-eventing-dispatcher"];
/// The label of their pods.
const LABEL: &str = "app.kubernetes.io/name";

/// Returns a finding for each Deployment of events on NATS. Without permission to read them, there is no finding.
pub(super) async fn findings(cluster: &Cluster) -> Result<Vec<Finding>, Error> {
    match read(cluster).await {
        Err(error) if error.is_forbidden() => Ok(Vec::new()),
        found => Ok(found?),
    }
}

async fn read(cluster: &Cluster) -> Result<Vec<Finding>, mainstay_cluster::Error> {
    let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
    let kind = Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    let mut findings = Vec::new();
    for name in DEPLOYMENTS {
        let Some(deployment) = cluster.get(&deployments, Some(NAMESPACE), name).await? else { continue };
        let selection = Selection::labelled(LABEL, name).within(NAMESPACE);
        let pods: Vec<Value> = cluster.list(&kind, selection).try_collect().await?;
        findings.push(finding(name, &deployment, &pods));
    }
    Ok(findings)
}

/// Returns the finding about a Deployment, from its pods.
fn finding(name: &str, deployment: &Value, pods: &[Value]) -> Finding {
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
    let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array();
    let url = variables.into_iter().flatten().find(|variable| variable["name"] == "MAINSTAY_NATS_URL");
    let url = printable(url.and_then(|url| url["value"].as_str()).unwrap_or("its address")).to_string();
    let containers = |pod: &Value| pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let is_ready = |pod: &&Value| containers(pod).iter().any(|one| one["ready"] == true);
    let is_running = |pod: &&Value| containers(pod).iter().any(|one| one["state"]["running"].is_object());
    let (ready, running) = (pods.iter().filter(is_ready).count(), pods.iter().filter(is_running).count());
    let what = format!("Deployment {NAMESPACE}/{name}");
    if ready > 0 {
        return Ok(format!("NATS at {url} responds to {ready} of {wanted} pods of {what}"));
    }
    if running > 0 {
        return wrong(
            format!("NATS at {url} does not respond to {what}, or refuses its login"),
            format!("kubectl -n {NAMESPACE} logs deployment/{name} shows the reason"),
        );
    }
    wrong(
        format!("no pod of {what} is running, so the connection to NATS at {url} is not checked"),
        format!("kubectl -n {NAMESPACE} describe deployment,pods -l {LABEL}={name}"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_that_run_without_being_ready_lack_nats() {
        let env = json!([{"name": "MAINSTAY_NATS_URL", "value": "tls://nats:4222"}]);
        let template = json!({"spec": {"containers": [{"name": "eventing", "env": env}]}});
        let deployment = json!({"spec": {"replicas": 2, "template": template}});
        let pod = |state: &str, ready: bool| {
            let status = json!({"name": "eventing", "ready": ready, "state": {state: {}}});
            json!({"status": {"containerStatuses": [status]}})
        };
        let judge = |pods: &[Value]| match finding("publishers", &deployment, pods) {
            Ok(text) => text,
            Err((text, hint)) => format!("wrong: {text}; {}", hint.unwrap()),
        };
        assert_eq!(
            judge(&[pod("running", true), pod("running", false)]),
            "NATS at tls://nats:4222 responds to 1 of 2 pods of Deployment kyma-system/publishers"
        );
        let said = judge(&[pod("running", false), pod("waiting", false)]);
        assert!(said.starts_with("wrong: NATS at tls://nats:4222 does not respond to Deployment "), "{said}");
        assert!(said.contains("logs deployment/publishers"), "{said}");
        for pods in [&[][..], &[pod("waiting", false)]] {
            let said = judge(pods);
            assert!(said.starts_with("wrong: no pod of Deployment kyma-system/publishers is running"), "{said}");
        }
    }
}
