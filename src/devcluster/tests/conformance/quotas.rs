//! ResourceQuotas: usage and refusals.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, World, claim};

/// Creates a quota, and waits until it is counted and admission observes it. An object that is created before is not
/// charged until the next count, minutes later. Returns the status.
async fn quota(w: &World, name: &str, spec: Value) -> Value {
    let status = counted(w, name, spec).await;
    // Admission observes quotas in the order of their creation.
    counted(w, "probe", json!({"hard": {"count/roles.rbac.authorization.k8s.io": "0"}})).await;
    let roles = w.path("rbac.authorization.k8s.io/v1", "roles?dryRun=All");
    heard(403, async || w.post(&roles, json!({"metadata": {"name": "probe"}, "rules": []})).await).await;
    w.delete(&w.path("v1", "resourcequotas/probe"), json!({})).await.code(200);
    status
}

/// Creates a quota and waits until it is counted. Returns the status.
async fn counted(w: &World, name: &str, spec: Value) -> Value {
    let path = w.path("v1", "resourcequotas");
    w.post(&path, json!({"metadata": {"name": name}, "spec": spec})).await.code(201);
    let path = format!("{path}/{name}");
    w.until(&path, "the quota is counted", |a| a.body["status"]["used"].is_object()).await.body["status"].clone()
}

async fn used(w: &World, resource: &str, wanted: &str) {
    let done = |a: &Answer| a.body["status"]["used"][resource] == wanted;
    w.until(&w.path("v1", "resourcequotas/q"), &format!("{resource} is {wanted}"), done).await;
}

/// Repeats a request until its response has this code, because admission observes a quota with a delay.
async fn heard(code: u16, ask: impl AsyncFn() -> Answer) -> Answer {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let answer = ask().await;
        if answer.code == code || tokio::time::Instant::now() > deadline {
            return answer.code(code);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn pod(name: &str, resources: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox:1", "resources": resources}]}})
}

#[test]
fn a_quota_says_what_is_allowed_and_used() {
    claim(async |w| {
        w.until(&w.maps("kube-root-ca.crt"), "the namespace is furnished", |a| a.code == 200).await;
        w.map("a", json!({})).await;
        w.post(&w.path("v1", "services"), json!({"metadata": {"name": "n"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}})).await.code(201);
        let hard = json!({
            "pods": "3", "count/pods": "4", "requests.memory": "1Gi", "limits.cpu": "2", "cpu": "1500m", "configmaps": "5", "count/configmaps": "6",
            "services": "3", "services.nodeports": "4", "services.loadbalancers": "0", "secrets": "7", "persistentvolumeclaims": "2",
            "requests.storage": "10Gi", "count/deployments.apps": "2", "resourcequotas": "1", "count/unknown.example.com": "1",
        });
        // It admits no second quota.
        let status = counted(w, "q", json!({"hard": hard})).await;
        assert_eq!(
            status,
            json!({
                "hard": hard,
                "used": {
                    "pods": "0", "count/pods": "0", "requests.memory": "0", "limits.cpu": "0", "cpu": "0", "configmaps": "2", "count/configmaps": "2",
                    "services": "1", "services.nodeports": "2", "services.loadbalancers": "0", "secrets": "0", "persistentvolumeclaims": "0",
                    "requests.storage": "0", "count/deployments.apps": "0", "resourcequotas": "1",
                },
            })
        );
    });
}

#[test]
fn a_quota_counts_what_pods_and_claims_ask_for() {
    claim(async |w| {
        let hard = json!({"pods": "3", "requests.cpu": "1", "limits.memory": "2Gi", "requests.storage": "3Gi", "persistentvolumeclaims": "5", "count/pods": "5"});
        quota(w, "q", json!({"hard": hard})).await;
        let resources = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "512Mi"}});
        w.post(&w.path("v1", "pods"), pod("a", resources)).await.code(201);
        let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        w.post(&w.path("v1", "persistentvolumeclaims"), claim).await.code(201);
        let live = w.get(&w.path("v1", "resourcequotas/q")).await.ok();
        assert_eq!(
            live["status"]["used"],
            json!({"pods": "1", "count/pods": "1", "requests.cpu": "250m", "limits.memory": "512Mi", "requests.storage": "1Gi", "persistentvolumeclaims": "1"}),
            "what a write takes is taken with the write"
        );
        w.delete(&w.path("v1", "pods/a"), json!({"gracePeriodSeconds": 0})).await.code(200);
        used(w, "pods", "0").await;
        used(w, "requests.cpu", "0").await;
    });
}

#[test]
fn an_object_that_exceeds_a_quota_is_refused() {
    claim(async |w| {
        w.until(&w.maps("kube-root-ca.crt"), "the namespace is furnished", |a| a.code == 200).await;
        quota(w, "q", json!({"hard": {"count/configmaps": "2", "secrets": "0", "services.nodeports": "1", "count/jobs.batch": "0"}})).await;
        let map = |name: &str| json!({"metadata": {"name": name}});
        w.map("a", json!({})).await;
        let full = w.maps("?dryRun=All");
        heard(403, async || w.post(&full, map("b")).await).await;
        let message = "configmaps \"b\" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2";
        let answer = w.post(&w.maps(""), map("b")).await.refused(403, "Forbidden", message);
        assert_eq!(answer.body["details"], json!({"name": "b", "kind": "configmaps"}));
        w.apply(&w.maps("b"), "m", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}}))
            .await
            .refused(403, "Forbidden", message);
        w.post(&w.maps("?dryRun=All"), map("b")).await.refused(403, "Forbidden", message);
        w.merge(&w.maps("a"), json!({"data": {"k": "v"}})).await.code(200);
        let message =
            "secrets \"s\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=0, limited: secrets=0";
        w.post(&w.path("v1", "secrets"), map("s")).await.refused(403, "Forbidden", message);
        let message = "services \"n\" is forbidden: exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1";
        let service = json!({"metadata": {"name": "n"}, "spec": {"type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}});
        w.post(&w.path("v1", "services"), service.clone()).await.refused(403, "Forbidden", message);
        let mut plain = service;
        plain["spec"]["type"] = "ClusterIP".into();
        w.post(&w.path("v1", "services"), plain).await.code(201);
        w.merge(&w.path("v1", "services/n"), json!({"spec": {"type": "NodePort"}})).await.refused(
            403,
            "Forbidden",
            message,
        );
        let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}}});
        let message = "jobs.batch \"j\" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0";
        let answer = w.post(&w.path("batch/v1", "jobs"), job).await.refused(403, "Forbidden", message);
        assert_eq!(answer.body["details"], json!({"name": "j", "group": "batch", "kind": "jobs"}));
    });
}

#[test]
fn a_deleted_object_leaves_room_in_the_quota() {
    claim(async |w| {
        w.until(&w.maps("kube-root-ca.crt"), "the namespace is furnished", |a| a.code == 200).await;
        quota(w, "q", json!({"hard": {"configmaps": "2"}})).await;
        w.map("a", json!({})).await;
        heard(403, async || w.post(&w.maps("?dryRun=All"), json!({"metadata": {"name": "b"}})).await).await;
        w.delete(&w.maps("a"), json!({})).await.code(200);
        used(w, "configmaps", "1").await;
        heard(201, async || w.post(&w.maps(""), json!({"metadata": {"name": "b"}})).await).await;
        w.merge(&w.path("v1", "resourcequotas/q"), json!({"spec": {"hard": {"configmaps": "3"}}})).await.code(200);
        let raised = |a: &Answer| a.body["status"]["hard"]["configmaps"] == "3";
        w.until(&w.path("v1", "resourcequotas/q"), "the quota is raised", raised).await;
        heard(201, async || w.post(&w.maps(""), json!({"metadata": {"name": "c"}})).await).await;
    });
}

#[test]
fn a_quota_on_resources_wants_them_of_every_container() {
    claim(async |w| {
        quota(w, "q", json!({"hard": {"requests.memory": "1Gi", "limits.cpu": "1"}})).await;
        let pods = w.path("v1", "pods");
        let message =
            "pods \"a\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c";
        w.post(&pods, pod("a", json!({}))).await.refused(403, "Forbidden", message);
        let message = "pods \"a\" is forbidden: exceeded quota: q, requested: limits.cpu=2,requests.memory=2Gi, used: limits.cpu=0,requests.memory=0, limited: limits.cpu=1,requests.memory=1Gi";
        let much = json!({"requests": {"memory": "2Gi"}, "limits": {"cpu": "2"}});
        w.post(&pods, pod("a", much)).await.refused(403, "Forbidden", message);
    });
}

#[test]
fn a_quota_can_be_for_some_pods_only() {
    claim(async |w| {
        quota(w, "q", json!({"hard": {"pods": "0"}, "scopes": ["Terminating"]})).await;
        w.post(&w.path("v1", "pods"), pod("a", json!({}))).await.code(201);
        let mut ending = pod("b", json!({}));
        ending["spec"]["activeDeadlineSeconds"] = 60.into();
        let message = "pods \"b\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0";
        w.post(&w.path("v1", "pods"), ending).await.refused(403, "Forbidden", message);
    });
}

#[test]
fn controllers_say_that_a_quota_refuses_their_pods() {
    claim(async |w| {
        quota(w, "q", json!({"hard": {"pods": "1"}})).await;
        let mut body = deployment("d");
        body["spec"]["replicas"] = 2.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        let sets = w.path("apps/v1", "replicasets?labelSelector=app%3Dd");
        let failed = |a: &Answer| crate::world::reason(&a.body["items"][0], "ReplicaFailure") == "FailedCreate";
        let set = w.until(&sets, "the set says that a pod was refused", failed).await.body["items"][0].clone();
        let name = set["metadata"]["name"].as_str().unwrap();
        let condition = &set["status"]["conditions"][0];
        let message = condition["message"].as_str().unwrap();
        let end = "\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        assert!(message.starts_with(&format!("pods \"{name}-")) && message.ends_with(end), "{message}");
        assert_eq!(condition["status"], "True");
        let event = w.event("ReplicaSet", name, "FailedCreate").await;
        let message = event["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("Error creating: pods \"{name}-")) && message.ends_with(end), "{message}");
        let failed = |a: &Answer| crate::world::reason(&a.body, "ReplicaFailure") == "FailedCreate";
        w.until(&w.path("apps/v1", "deployments/d"), "the Deployment says so as well", failed).await;
        w.merge(&w.path("v1", "resourcequotas/q"), json!({"spec": {"hard": {"pods": "2"}}})).await.code(200);
        let full = |a: &Answer| {
            a.body["status"]["readyReplicas"] == 2 && crate::world::reason(&a.body, "ReplicaFailure").is_empty()
        };
        w.until(&w.path("apps/v1", "deployments/d"), "the pods are there after all", full).await;
    });
}
