//! EndpointSlices and Endpoints.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, World, claim, condition};

async fn slice(w: &World, service: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let path = w
        .path("discovery.k8s.io/v1", &format!("endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{service}"));
    let list = w.until(&path, what, |a: &Answer| a.body["items"][0].is_object() && done(&a.body["items"][0])).await;
    list.body["items"][0].clone()
}

async fn twin(w: &World, service: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    w.until(&w.path("v1", &format!("endpoints/{service}")), what, |a: &Answer| a.code == 200 && done(&a.body))
        .await
        .body
}

async fn pods(w: &World) -> Value {
    let mut body = deployment("d");
    body["spec"]["replicas"] = 1.into();
    body["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
    let ready = |a: &Answer| condition(&a.body["items"][0], "Ready") == "True";
    w.until(&w.path("v1", "pods?labelSelector=app%3Dd"), "the pod is ready", ready).await.body["items"][0].clone()
}

#[test]
fn endpoints_are_the_twin_of_the_slices() {
    claim(async |w| {
        let pod = pods(w).await;
        let (ip, node) = (&pod["status"]["podIP"], &pod["spec"]["nodeName"]);
        let target =
            json!({"kind": "Pod", "namespace": w.ns, "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]});
        let service = json!({
            "metadata": {"name": "s", "labels": {"l": "v"}},
            "spec": {"selector": {"app": "d"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}]},
        });
        let made = w.post(&w.path("v1", "services"), service).await.code(201).body;
        let found = slice(w, "s", "the slice leads to the pod", |s| s["endpoints"][0].is_object()).await;
        assert_eq!(
            found["metadata"]["labels"],
            json!({"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io", "kubernetes.io/service-name": "s", "l": "v"})
        );
        assert_eq!(
            found["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Service", "name": "s", "uid": made["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
        );
        let conditions = json!({"ready": true, "serving": true, "terminating": false});
        assert_eq!(
            found["endpoints"],
            json!([{"addresses": [ip], "nodeName": node, "conditions": conditions, "targetRef": target}])
        );
        assert_eq!(found["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
        assert!(found["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"].is_string());
        let twin = twin(w, "s", "the Endpoints lead to the pod", |e| e["subsets"][0].is_object()).await;
        assert_eq!(
            twin["metadata"]["labels"],
            json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "l": "v"})
        );
        assert_eq!(
            twin["subsets"],
            json!([{
                "addresses": [{"ip": ip, "nodeName": node, "targetRef": target}],
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            }])
        );
    });
}

#[test]
fn endpoints_that_are_not_ready_are_listed_apart() {
    claim(async |w| {
        let pod = json!({
            "metadata": {"name": "p", "labels": {"app": "d"}, "annotations": {"devcluster.dev/outcome": "never-ready"}},
            "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
        });
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "d"}, "ports": [{"port": 80}]}});
        w.post(&w.path("v1", "services"), service).await.code(201);
        let found = slice(w, "s", "the slice has the pod", |s| s["endpoints"][0].is_object()).await;
        assert_eq!(
            found["endpoints"][0]["conditions"],
            json!({"ready": false, "serving": false, "terminating": false})
        );
        let twin = twin(w, "s", "the Endpoints have the pod", |e| e["subsets"][0].is_object()).await;
        assert_eq!(twin["subsets"][0]["addresses"], Value::Null);
        assert_eq!(twin["subsets"][0]["notReadyAddresses"][0]["targetRef"]["name"], "p");
        assert_eq!(twin["subsets"][0]["ports"], json!([{"port": 80, "protocol": "TCP"}]));
        w.merge(&w.path("v1", "services/s"), json!({"spec": {"publishNotReadyAddresses": true}})).await.code(200);
        let found =
            slice(w, "s", "the pod counts all the same", |s| s["endpoints"][0]["conditions"]["ready"] == true).await;
        assert_eq!(found["endpoints"][0]["conditions"], json!({"ready": true, "serving": false, "terminating": false}));
        self::twin(w, "s", "it counts there as well", |e| e["subsets"][0]["addresses"][0].is_object()).await;
    });
}

#[test]
fn a_service_without_pods_has_empty_endpoints() {
    claim(async |w| {
        let service = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"app": "none"}, "ports": [{"port": 80}]}});
        w.post(&w.path("v1", "services"), service).await.code(201);
        let found = slice(w, "h", "the slice is there", |_| true).await;
        assert_eq!((&found["endpoints"], &found["ports"]), (&Value::Null, &Value::Null));
        assert_eq!(found["metadata"]["labels"]["service.kubernetes.io/headless"], "");
        let twin = twin(w, "h", "the Endpoints are there", |_| true).await;
        assert_eq!(twin.get("subsets"), None);
        assert_eq!(
            twin["metadata"]["labels"],
            json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "service.kubernetes.io/headless": ""})
        );
        w.delete(&w.path("v1", "services/h"), json!({})).await.code(200);
        w.until(&w.path("v1", "endpoints/h"), "the Endpoints go with the Service", |a| a.code == 404).await;
    });
}

#[test]
fn endpoints_follow_the_labels_of_their_service() {
    claim(async |w| {
        let service = json!({"metadata": {"name": "s", "labels": {"a": "b"}}, "spec": {"selector": {"app": "none"}, "ports": [{"port": 80}]}});
        w.post(&w.path("v1", "services"), service).await.code(201);
        twin(w, "s", "the labels are there", |e| e["metadata"]["labels"]["a"] == "b").await;
        w.merge(&w.path("v1", "services/s"), json!({"metadata": {"labels": {"a": null, "c": "d"}}})).await.code(200);
        let changed = |o: &Value| o["metadata"]["labels"]["c"] == "d" && o["metadata"]["labels"].get("a").is_none();
        twin(w, "s", "the labels of the Endpoints are the new ones", changed).await;
        slice(w, "s", "the labels of the slice are the new ones", changed).await;
    });
}

#[test]
fn a_service_without_selector_has_the_endpoints_that_are_made_by_hand() {
    claim(async |w| {
        let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
        w.post(&w.path("v1", "services"), service).await.code(201);
        let made = json!({"metadata": {"name": "s"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]});
        let answer = w.post(&w.path("v1", "endpoints"), made).await.code(201);
        let warning = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
        assert!(answer.warnings().iter().any(|w| w == warning), "{:?}", answer.warnings());
        assert_eq!(answer.body["subsets"][0]["ports"][0]["protocol"], "TCP");
        let mirrored = slice(w, "s", "the Endpoints are mirrored", |s| s["endpoints"][0].is_object()).await;
        assert_eq!(mirrored["endpoints"][0], json!({"addresses": ["192.0.2.1"], "conditions": {"ready": true}}));
        assert_eq!(
            mirrored["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
            "endpointslicemirroring-controller.k8s.io"
        );
        assert_eq!(mirrored["metadata"]["ownerReferences"][0]["kind"], "Endpoints");
        w.delete(&w.path("v1", "endpoints/s"), json!({})).await.code(200);
        let path = w.path("discovery.k8s.io/v1", "endpointslices");
        w.until(&path, "the mirror goes with them", |a| a.body["items"] == json!([])).await;
    });
}
