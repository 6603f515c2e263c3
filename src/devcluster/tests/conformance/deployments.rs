//! Deployments: their ReplicaSets and pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{claim, condition, managers, rv};

#[test]
fn a_deployment_makes_a_replica_set_named_and_labelled_by_a_hash() {
    claim(async |w| {
        let path = w.path("apps/v1", "deployments");
        let made = w.post(&path, deployment("d")).await.code(201).body;
        let sets = w.path("apps/v1", "replicasets");
        let some = |a: &crate::world::Answer| !a.body["items"].as_array().unwrap().is_empty();
        let list = w.until(&sets, "the replica set", some).await.body;
        let set = &list["items"][0];
        let hash = set["metadata"]["labels"]["pod-template-hash"].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("d-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "d", "pod-template-hash": hash}));
        assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
        assert_eq!(set["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"], "0");
        assert_eq!(
            set["metadata"]["ownerReferences"],
            json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": made["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true}])
        );
        let revised =
            |a: &crate::world::Answer| a.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1";
        w.until(&format!("{path}/d"), "the revision", revised).await;
    });
}

fn settled(object: &Value, replicas: i64) -> bool {
    let status = &object["status"];
    status["observedGeneration"] == object["metadata"]["generation"]
        && status["updatedReplicas"] == replicas
        && status["replicas"] == replicas
        && status["availableReplicas"] == replicas
        && condition(object, "Available") == "True"
}

#[test]
fn a_deployment_becomes_ready_with_all_its_status() {
    claim(async |w| {
        let path = w.path("apps/v1", "deployments");
        let mut body = deployment("d");
        body["spec"]["replicas"] = 2.into();
        w.post(&path, body).await.code(201);
        let ready = w.until(&format!("{path}/d"), "the deployment is ready", |a| settled(&a.body, 2)).await.body;
        assert_eq!(ready["status"]["readyReplicas"], 2);
        assert_eq!(ready["status"]["unavailableReplicas"], Value::Null, "counts of zero are left out");
        let condition_of = |kind: &str| {
            let list = ready["status"]["conditions"].as_array().unwrap();
            list.iter().find(|c| c["type"] == kind).unwrap().clone()
        };
        assert_eq!(condition_of("Available")["reason"], "MinimumReplicasAvailable");
        assert_eq!(condition_of("Available")["message"], "Deployment has minimum availability.");
        assert!(condition_of("Progressing")["lastUpdateTime"].is_string());
        let progressed = |a: &crate::world::Answer| {
            let list = a.body["status"]["conditions"].as_array().unwrap();
            list.iter().any(|c| c["type"] == "Progressing" && c["reason"] == "NewReplicaSetAvailable")
        };
        w.until(&format!("{path}/d"), "the roll-out is complete", progressed).await;
        let pods = w.get(&w.path("v1", "pods?labelSelector=app%3Dd")).await.ok();
        let pods = pods["items"].as_array().unwrap();
        assert_eq!(pods.len(), 2);
        for pod in pods {
            assert_eq!(pod["status"]["phase"], "Running");
            assert_eq!(condition(pod, "Ready"), "True");
            assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
            assert!(pod["spec"]["nodeName"].is_string());
            assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
        }
    });
}

#[test]
fn observed_generation_lags_behind_a_change() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.post(&w.path("apps/v1", "deployments"), deployment("d")).await.code(201);
        let quiet =
            |a: &crate::world::Answer| a.body["status"]["observedGeneration"] == a.body["metadata"]["generation"];
        let before = w.until(&path, "the deployment is observed", quiet).await.body;
        let changed = w.merge(&path, json!({"spec": {"minReadySeconds": 1}})).await.ok();
        assert!(
            changed["status"]["observedGeneration"].as_i64() < changed["metadata"]["generation"].as_i64(),
            "the write's own answer shows the old status"
        );
        assert_eq!(
            changed["metadata"]["generation"].as_i64(),
            before["metadata"]["generation"].as_i64().map(|n| n + 1)
        );
        w.until(&path, "the change is observed", quiet).await;
    });
}

#[test]
fn a_rolling_update_replaces_the_replica_set() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 2.into();
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 2)).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        w.strategic(&path, patch).await.code(200);
        let after = w.until(&path, "the update is rolled out", |a| settled(&a.body, 2)).await.body;
        assert_eq!(after["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
        let scaled = |a: &crate::world::Answer| {
            let counts: BTreeSet<i64> =
                a.body["items"].as_array().unwrap().iter().map(|s| s["spec"]["replicas"].as_i64().unwrap()).collect();
            counts == BTreeSet::from([0, 2])
        };
        w.until(&w.path("apps/v1", "replicasets"), "the old set is empty and stays", scaled).await;
    });
}

#[test]
fn scaling_follows_the_scale_endpoint() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.post(&w.path("apps/v1", "deployments"), deployment("d")).await.code(201);
        let scale = w.get(&format!("{path}/scale")).await.ok();
        assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        assert_eq!(scale["spec"]["replicas"].as_i64().unwrap_or(0), 0);
        w.merge(&format!("{path}/scale"), json!({"spec": {"replicas": 1}})).await.code(200);
        w.until(&path, "the pod runs", |a| settled(&a.body, 1)).await;
        let scale = w.get(&format!("{path}/scale")).await.ok();
        assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=d"}));
    });
}

#[test]
fn a_count_scaled_to_zero_has_no_manager_and_stays_so() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 2.into();
        w.post(&format!("{}?fieldManager=maker", w.path("apps/v1", "deployments")), body).await.code(201);
        let mut found = Vec::new();
        for (who, number) in [("", 2), ("a", 3), ("b", 4), ("b", 5), ("b", 0), ("b", 6), ("c", 0), ("c", 1)] {
            if !who.is_empty() {
                let at = format!("{path}/scale?fieldManager={who}");
                w.merge(&at, json!({"spec": {"replicas": number}})).await.code(200);
            }
            let live = w.get(&path).await.ok();
            assert_eq!(live["spec"]["replicas"], number);
            let entries = live["metadata"]["managedFields"].as_array().unwrap();
            found.push(entries.iter().find(|e| !e["fieldsV1"]["f:spec"]["f:replicas"].is_null()).map(|e| {
                (e["manager"].clone(), e["apiVersion"].clone(), e["subresource"].clone(), e["time"].is_string())
            }));
        }
        let of = |who: &str| Some((json!(who), json!("apps/v1"), json!("scale"), false));
        let maker = Some((json!("maker"), json!("apps/v1"), Value::Null, true));
        assert_eq!(found, [maker, of("a"), of("b"), of("b"), None, None, None, None]);
        // An update of the Deployment itself makes its manager the owner again.
        w.merge(&format!("{path}?fieldManager=d"), json!({"spec": {"replicas": 0}})).await.code(200);
        assert!(managers(&w.get(&path).await.ok()).contains(&"d/Update".to_owned()));
        w.delete(&path, json!({"propagationPolicy": "Background"})).await;
    });
}

#[test]
fn deleting_a_deployment_takes_sets_and_pods_along() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 1)).await;
        w.delete(&path, json!({"propagationPolicy": "Background"})).await.code(200);
        let empty = |a: &crate::world::Answer| a.body["items"] == json!([]);
        w.until(&w.path("apps/v1", "replicasets"), "the sets are gone", empty).await;
        w.until(&w.path("v1", "pods"), "the pods are gone", empty).await;
    });
}

#[test]
fn a_deleted_pod_is_replaced() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 1)).await;
        let pods = w.path("v1", "pods?labelSelector=app%3Dd");
        let first = w.get(&pods).await.ok()["items"][0].clone();
        let name = first["metadata"]["name"].as_str().unwrap();
        w.delete(&w.path("v1", &format!("pods/{name}")), json!({"gracePeriodSeconds": 0})).await.code(200);
        let other = |a: &crate::world::Answer| {
            let items = a.body["items"].as_array().unwrap();
            items.len() == 1 && items[0]["metadata"]["uid"] != first["metadata"]["uid"]
        };
        let list = w.until(&pods, "another pod takes its place", other).await.body;
        assert!(rv(&list) > rv(&first));
    });
}

#[test]
fn a_recreated_deployment_adopts_its_orphaned_sets() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        w.post(&w.path("apps/v1", "deployments"), body.clone()).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 1)).await;
        let pods = w.path("v1", "pods?labelSelector=app%3Dd");
        let before = w.get(&pods).await.ok()["items"][0]["metadata"]["uid"].clone();
        w.delete(&path, json!({"propagationPolicy": "Orphan"})).await.code(200);
        w.until(&path, "the deployment is gone", |a| a.code == 404).await;
        let sets = w.get(&w.path("apps/v1", "replicasets")).await.ok();
        assert_eq!(sets["items"][0]["metadata"]["ownerReferences"], Value::Null);
        let made = w.post(&w.path("apps/v1", "deployments"), body).await.code(201).body;
        w.until(&path, "the deployment is ready again", |a| settled(&a.body, 1)).await;
        let sets = w.get(&w.path("apps/v1", "replicasets")).await.ok();
        assert_eq!(sets["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(sets["items"][0]["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
        assert_eq!(w.get(&pods).await.ok()["items"][0]["metadata"]["uid"], before, "the pod lived on");
    });
}

#[test]
fn recreate_lets_the_old_pods_go_first() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        body["spec"]["strategy"] = json!({"type": "Recreate"});
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 1)).await;
        let list = w.get(&w.path("v1", "pods")).await.ok();
        let watch = w.path("v1", &format!("pods?watch=1&resourceVersion={}", rv(&list)));
        let mut watch = w.watch(&watch).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        w.strategic(&path, patch).await.code(200);
        let old = list["items"][0]["metadata"]["uid"].clone();
        let mut gone = false;
        loop {
            let (kind, _, pod) = watch.event().await;
            gone |= kind == "DELETED" && pod["metadata"]["uid"] == old;
            if kind == "ADDED" {
                assert!(gone, "the new pod came before the old one was gone");
                break;
            }
        }
        w.until(&path, "the update is rolled out", |a| settled(&a.body, 1)).await;
    });
}

#[test]
fn a_paused_deployment_keeps_its_set_until_it_is_resumed() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        w.post(&w.path("apps/v1", "deployments"), deployment("d")).await.code(201);
        w.until(&path, "the deployment is observed", |a| {
            settled(&a.body, 0) || a.body["status"]["observedGeneration"] == 1
        })
        .await;
        w.merge(&path, json!({"spec": {"paused": true}})).await.code(200);
        let paused = |a: &crate::world::Answer| {
            let list = a.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
            list.iter()
                .any(|c| c["type"] == "Progressing" && c["reason"] == "DeploymentPaused" && c["status"] == "Unknown")
        };
        w.until(&path, "the pause is told", paused).await;
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}}});
        w.strategic(&path, patch).await.code(200);
        let observed =
            |a: &crate::world::Answer| a.body["status"]["observedGeneration"] == a.body["metadata"]["generation"];
        w.until(&path, "the change is observed", observed).await;
        assert_eq!(w.get(&w.path("apps/v1", "replicasets")).await.ok()["items"].as_array().map(Vec::len), Some(1));
        w.merge(&path, json!({"spec": {"paused": null}})).await.code(200);
        let two = |a: &crate::world::Answer| a.body["items"].as_array().map(Vec::len) == Some(2);
        w.until(&w.path("apps/v1", "replicasets"), "the second set", two).await;
    });
}

#[test]
fn controllers_tell_what_they_do_in_events() {
    claim(async |w| {
        let path = format!("{}/d", w.path("apps/v1", "deployments"));
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        w.until(&path, "the deployment is ready", |a| settled(&a.body, 1)).await;
        let about = w.path("v1", "events?fieldSelector=involvedObject.kind%3DDeployment,reason%3DScalingReplicaSet");
        let some = |a: &crate::world::Answer| !a.body["items"].as_array().unwrap().is_empty();
        let event = w.until(&about, "the event", some).await.body["items"][0].clone();
        let set = w.get(&w.path("apps/v1", "replicasets")).await.ok()["items"][0]["metadata"]["name"].clone();
        assert_eq!(event["message"], format!("Scaled up replica set {} from 0 to 1", set.as_str().unwrap()));
        assert_eq!(event["source"], json!({"component": "deployment-controller"}));
        assert_eq!(event["reportingComponent"], "deployment-controller");
        assert_eq!((&event["type"], &event["count"]), (&json!("Normal"), &json!(1)));
    });
}
