//! Checks that the publishers and dispatchers of events are connected to NATS. Their pods are ready only while NATS
//! responds. Also checks that the servers of the installed NATS are ready.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde_json::Value;

use super::repository::{Finding, wrong};
use crate::cli::Error;
use mainstay_api::names::{EVENTING_NAMESPACE as NAMESPACE, NATS};
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
    let sets = Kind::fixed("apps/v1", "StatefulSet", "statefulsets", Scope::Namespaced);
    findings.extend(cluster.get(&sets, Some(NAMESPACE), NATS).await?.map(|set| servers(&set)));
    for name in DEPLOYMENTS {
        let Some(deployment) = cluster.get(&deployments, Some(NAMESPACE), name).await? else { continue };
        let selection = Selection::labelled(LABEL, name).within(NAMESPACE);
        let pods: Vec<Value> = cluster.list(&kind, selection).try_collect().await?;
        findings.push(finding(name, &deployment, &pods));
    }
    Ok(findings)
}

/// Returns the finding about the servers of the installed NATS.
fn servers(set: &Value) -> Finding {
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = set["status"]["readyReplicas"].as_u64().unwrap_or(0);
    let what = format!("{ready} of {wanted} servers of NATS {NAMESPACE}/{NATS} are ready");
    let look = format!("kubectl -n {NAMESPACE} describe pods -l {LABEL}={NATS} shows the reason");
    match ready {
        // A majority stores events.
        _ if ready > wanted / 2 => Ok(what),
        0 => wrong(what, format!("{look}; a pod waits until the agent has stored a login in Secret {NATS}")),
        _ => wrong(format!("{what}, so no events are stored"), look),
    }
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
    fn a_majority_of_servers_stores_events() {
        let judge = |wanted: u64, ready: Value| {
            let set = json!({"spec": {"replicas": wanted}, "status": {"readyReplicas": ready}});
            servers(&set).map_err(|(text, hint)| format!("{text}; {}", hint.unwrap()))
        };
        let said = "2 of 3 servers of NATS kyma-system/mainstay-nats are ready";
        assert_eq!((judge(3, json!(2)), judge(1, json!(1)).is_ok()), (Ok(said.to_owned()), true));
        let said = judge(3, json!(1)).unwrap_err();
        assert!(said.contains("no events are stored") && said.contains("describe pods"), "{said}");
        let said = judge(1, Value::Null).unwrap_err();
        assert!(said.contains("until the agent has stored a login in Secret mainstay-nats"), "{said}");
    }

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
