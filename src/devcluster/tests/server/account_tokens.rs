//! The volume with the token of a pod's ServiceAccount.

use crate::machine::{HOST, Machine};
use serde_json::{Value, json};

const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_finds_the_token_of_its_account() {
    let machine = Machine::new();
    let env = json!([{"name": "HERE", "value": MOUNT}]);
    let script = "cat $HERE/token; echo; cat $HERE/namespace; echo; head -1 $HERE/ca.crt";
    machine.pod("reader", script, json!({"containers": [{"env": env}]})).await;
    let pod = machine.phase("reader", "Succeeded").await;
    let log = machine.log("reader", "").await;
    let mut lines = log.lines();
    let token = lines.next().unwrap_or_default();
    assert_eq!((lines.next(), lines.next()), (Some("default"), Some("-----BEGIN CERTIFICATE-----")), "{log}");
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = machine.world.post(reviews, json!({"spec": {"token": token}})).await;
    assert_eq!(review.code, 201, "{}", review.text);
    let review = review.json();
    let user = &review["status"]["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:default", "{review}");
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"], json!([pod["metadata"]["uid"]]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_wants_no_token_has_none() {
    let machine = Machine::new();
    machine.pod("plain", "true", json!({"automountServiceAccountToken": false})).await;
    let pod = machine.phase("plain", "Succeeded").await;
    assert_eq!((&pod["spec"]["volumes"], &pod["spec"]["containers"][0]["volumeMounts"]), (&Value::Null, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projected_volume_has_the_files_of_all_its_sources() {
    let machine = Machine::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    machine.world.post(maps, json!({"metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}})).await.expect(201);
    let secrets = "/api/v1/namespaces/default/secrets";
    machine.world.post(secrets, json!({"metadata": {"name": "s"}, "stringData": {"c": "3"}})).await.expect(201);
    let label = json!({"path": "deep/name", "fieldRef": {"fieldPath": "metadata.name"}});
    let sources = json!([
        {"configMap": {"name": "m", "items": [{"key": "b", "path": "renamed"}]}}, {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [label]}},
        {"serviceAccountToken": {"path": "token", "audience": "elsewhere", "expirationSeconds": 600}},
    ]);
    let spec = json!({
        "volumes": [{"name": "all", "projected": {"sources": sources}}],
        "containers": [{
            "image": HOST, "volumeMounts": [{"name": "all", "mountPath": "/all"}],
            "env": [{"name": "ALL", "value": "/all"}],
        }],
    });
    machine.pod("p", "cd $ALL; ls | tr '\\n' ' '; cat renamed c deep/name", spec).await;
    machine.phase("p", "Succeeded").await;
    assert_eq!(machine.log("p", "").await, "c deep renamed token 23p\n");
}
