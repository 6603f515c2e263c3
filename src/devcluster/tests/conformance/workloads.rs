//! Jobs, StatefulSets, DaemonSets, and Services of pods.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{claim, condition};

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
