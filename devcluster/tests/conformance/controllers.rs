//! What controllers do: garbage collection, namespaces, Deployments.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{World, claim, condition, rv};

fn owned_by(owner: &Value, name: &str) -> Value {
    json!({
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": true,
        }]},
    })
}

async fn gone(w: &World, name: &str) {
    w.until(&w.maps(name), &format!("{name} is gone"), |a| a.code == 404).await;
}

#[test]
fn dependents_follow_their_owner() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let child = w.post(&w.maps(""), owned_by(&owner, "child")).await.code(201).body;
        w.post(&w.maps(""), owned_by(&child, "grandchild")).await.code(201);
        w.delete(&w.maps("owner"), json!({"propagationPolicy": "Background"})).await.code(200);
        w.get(&w.maps("owner")).await.code(404);
        gone(w, "child").await;
        gone(w, "grandchild").await;
    });
}

#[test]
fn an_orphaned_dependent_stays_without_its_reference() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        w.post(&w.maps(""), owned_by(&owner, "child")).await.code(201);
        let marked = w.delete(&w.maps("owner"), json!({"propagationPolicy": "Orphan"})).await.code(200).body;
        assert_eq!(marked["metadata"]["finalizers"], json!(["orphan"]));
        gone(w, "owner").await;
        let child = w.get(&w.maps("child")).await.ok();
        assert_eq!(child["metadata"]["ownerReferences"], Value::Null);
    });
}

#[test]
fn foreground_deletion_waits_for_dependents() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let mut child = owned_by(&owner, "child");
        child["metadata"]["finalizers"] = json!(["example.com/hold"]);
        w.post(&w.maps(""), child).await.code(201);
        let marked = w.delete(&w.maps("owner"), json!({"propagationPolicy": "Foreground"})).await.code(200).body;
        assert_eq!(marked["metadata"]["finalizers"], json!(["foregroundDeletion"]));
        let deleted = |a: &crate::world::Answer| a.body["metadata"]["deletionTimestamp"].is_string();
        w.until(&w.maps("child"), "the dependent is deleted first", deleted).await;
        w.get(&w.maps("owner")).await.code(200);
        w.merge(&w.maps("child"), json!({"metadata": {"finalizers": null}})).await.code(200);
        gone(w, "child").await;
        gone(w, "owner").await;
    });
}

#[test]
fn an_owner_is_known_by_uid_not_by_name() {
    claim(async |w| {
        let owner = w.map("owner", json!({})).await;
        let mut child = owned_by(&owner, "child");
        child["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-4000-8000-000000000000".into();
        w.post(&w.maps(""), child).await.code(201);
        gone(w, "child").await;
        w.get(&w.maps("owner")).await.code(200);
    });
}

#[test]
fn one_of_two_owners_leaving_only_removes_its_reference() {
    claim(async |w| {
        let one = w.map("one", json!({})).await;
        let two = w.map("two", json!({})).await;
        let mut child = owned_by(&one, "child");
        let second = owned_by(&two, "child")["metadata"]["ownerReferences"][0].clone();
        child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
        w.post(&w.maps(""), child).await.code(201);
        w.delete(&w.maps("one"), json!({"propagationPolicy": "Background"})).await.code(200);
        let left = |a: &crate::world::Answer| a.body["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1);
        let child = w.until(&w.maps("child"), "one reference is left", left).await.body;
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], two["metadata"]["uid"]);
    });
}

#[test]
fn a_new_namespace_gets_its_service_account_and_authority() {
    claim(async |w| {
        let account = format!("{}/default", w.path("v1", "serviceaccounts"));
        w.until(&account, "the default service account", |a| a.code == 200).await;
        let authority = w.until(&w.maps("kube-root-ca.crt"), "the authority", |a| a.code == 200).await.body;
        assert!(authority["data"]["ca.crt"].is_string());
    });
}

#[test]
fn a_namespace_takes_its_contents_along_and_waits_for_finalizers() {
    claim(async |w| {
        let name = format!("{}-inner", w.ns);
        let path = format!("/api/v1/namespaces/{name}");
        w.forget_later(&path);
        w.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.code(201);
        let maps = format!("{path}/configmaps");
        w.post(&maps, json!({"metadata": {"name": "plain"}})).await.code(201);
        w.post(&maps, json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}})).await.code(201);
        let marked = w.delete(&path, json!({})).await.code(200).body;
        assert_eq!(marked["status"]["phase"], "Terminating");
        assert!(marked["metadata"]["deletionTimestamp"].is_string());
        w.until(&format!("{maps}/plain"), "the contents are deleted", |a| a.code == 404).await;
        let waits = |a: &crate::world::Answer| condition(&a.body, "NamespaceFinalizersRemaining") == "True";
        let waiting = w.until(&path, "the namespace reports what holds it", waits).await.body;
        let found = waiting["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["type"] == "NamespaceFinalizersRemaining")
            .unwrap();
        assert_eq!(
            found["message"],
            "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
        );
        assert_eq!(condition(&waiting, "NamespaceContentRemaining"), "True");
        assert_eq!(condition(&waiting, "NamespaceDeletionContentFailure"), "False");
        w.merge(&format!("{maps}/held"), json!({"metadata": {"finalizers": null}})).await.code(200);
        w.until(&path, "the namespace is gone", |a| a.code == 404).await;
    });
}

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

fn job(name: &str, command: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": {"devcluster.dev/outcome": if command == "false" { "exit:1" } else { "" }}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1", "command": [command]}]},
            },
        },
    })
}

#[test]
fn a_job_completes() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j", "true")).await.code(201);
        let done = |a: &crate::world::Answer| condition(&a.body, "Complete") == "True";
        let done = w.until(&format!("{path}/j"), "the job is complete", done).await.body;
        assert_eq!(done["status"]["succeeded"], 1);
        assert_eq!(done["status"]["uncountedTerminatedPods"], json!({}));
        assert_eq!(done["status"]["active"], Value::Null);
        assert!(done["status"]["completionTime"].is_string() && done["status"]["startTime"].is_string());
        let list: Vec<(&Value, &Value)> =
            done["status"]["conditions"].as_array().unwrap().iter().map(|c| (&c["type"], &c["reason"])).collect();
        let (met, complete, reason) = (json!("SuccessCriteriaMet"), json!("Complete"), json!("CompletionsReached"));
        assert_eq!(list, [(&met, &reason), (&complete, &reason)]);
        let pods = w.get(&w.path("v1", "pods?labelSelector=job-name%3Dj")).await.ok();
        assert_eq!(pods["items"][0]["status"]["phase"], "Succeeded");
        w.delete(&format!("{path}/j"), json!({"propagationPolicy": "Foreground"})).await.code(200);
        w.until(&format!("{path}/j"), "the job is gone", |a| a.code == 404).await;
    });
}

#[test]
fn a_job_fails_at_its_backoff_limit() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j", "false")).await.code(201);
        let failed = |a: &crate::world::Answer| condition(&a.body, "Failed") == "True";
        let failed = w.until(&format!("{path}/j"), "the job has failed", failed).await.body;
        assert_eq!(failed["status"]["failed"], 1);
        assert_eq!(failed["status"]["completionTime"], Value::Null);
        let found = failed["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Failed").unwrap();
        assert_eq!(found["reason"], "BackoffLimitExceeded");
        assert_eq!(found["message"], "Job has reached the specified backoff limit");
        assert_eq!(condition(&failed, "FailureTarget"), "True");
    });
}

#[test]
fn a_suspended_job_says_so_and_has_no_pods() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        let mut body = job("j", "true");
        body["spec"]["suspend"] = true.into();
        w.post(&path, body).await.code(201);
        let suspended = |a: &crate::world::Answer| condition(&a.body, "Suspended") == "True";
        w.until(&format!("{path}/j"), "the job is suspended", suspended).await;
        assert_eq!(w.get(&w.path("v1", "pods")).await.ok()["items"], json!([]));
        w.merge(&format!("{path}/j"), json!({"spec": {"suspend": false}})).await.code(200);
        let done = |a: &crate::world::Answer| condition(&a.body, "Complete") == "True";
        w.until(&format!("{path}/j"), "the resumed job completes", done).await;
    });
}

#[test]
fn a_stateful_set_makes_numbered_pods_with_claims() {
    claim(async |w| {
        let path = w.path("apps/v1", "statefulsets");
        let mut body = deployment("s");
        body["kind"] = "StatefulSet".into();
        body["spec"]["replicas"] = 2.into();
        body["spec"]["serviceName"] = "s".into();
        body["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]);
        w.post(&path, body.clone()).await.code(201);
        let ready = |a: &crate::world::Answer| {
            let status = &a.body["status"];
            status["readyReplicas"] == 2
                && status["updatedReplicas"] == 2
                && status["currentRevision"] == status["updateRevision"]
                && status["observedGeneration"] == a.body["metadata"]["generation"]
        };
        let set = w.until(&format!("{path}/s"), "the pods are ready", ready).await.body;
        for name in ["s-0", "s-1"] {
            let pod = w.get(&w.path("v1", &format!("pods/{name}"))).await.ok();
            assert_eq!(pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"], name);
            assert_eq!(pod["spec"]["hostname"], name);
            w.get(&w.path("v1", &format!("persistentvolumeclaims/data-{name}"))).await.code(200);
        }
        let answer = w.merge(&format!("{path}/s"), json!({"spec": {"serviceName": "other"}})).await.code(422);
        assert!(answer.causes()[0].starts_with(
            "FieldValueForbidden spec: Forbidden: updates to statefulset spec for fields other than 'replicas'"
        ));
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "busybox:2".into();
        w.apply(&format!("{path}/s?force=true"), "m", body).await.code(200);
        let renewed = |a: &crate::world::Answer| {
            ready(a) && a.body["status"]["updateRevision"] != set["status"]["updateRevision"]
        };
        w.until(&format!("{path}/s"), "the pods are renewed", renewed).await;
    });
}

#[test]
fn a_daemon_set_runs_on_every_node() {
    claim(async |w| {
        let path = w.path("apps/v1", "daemonsets");
        let mut body = deployment("d");
        body["kind"] = "DaemonSet".into();
        body["spec"].as_object_mut().unwrap().remove("replicas");
        w.post(&path, body).await.code(201);
        let ready = |a: &crate::world::Answer| {
            let status = &a.body["status"];
            status["desiredNumberScheduled"].as_i64().unwrap_or(0) > 0
                && status["numberReady"] == status["desiredNumberScheduled"]
                && status["numberAvailable"] == status["desiredNumberScheduled"]
                && status["updatedNumberScheduled"] == status["desiredNumberScheduled"]
        };
        let set = w.until(&format!("{path}/d"), "the pods are ready", ready).await.body;
        assert_eq!(set["status"]["numberMisscheduled"], 0);
        assert_eq!(set["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "1");
    });
}

#[test]
fn a_service_leads_to_its_ready_pods() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        let service = json!({"metadata": {"name": "s"}, "spec": {"selector": {"app": "d"}, "ports": [{"port": 80, "targetPort": 8080}]}});
        w.post(&w.path("v1", "services"), service).await.code(201);
        let slices = w.path("discovery.k8s.io/v1", "endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Ds");
        let ready = |a: &crate::world::Answer| a.body["items"][0]["endpoints"][0]["conditions"]["ready"] == true;
        let list = w.until(&slices, "the slice leads to the pod", ready).await.body;
        let slice = &list["items"][0];
        assert_eq!(slice["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
        assert_eq!(slice["endpoints"][0]["targetRef"]["kind"], "Pod");
        assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], "s");
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
