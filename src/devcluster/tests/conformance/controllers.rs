//! The complete status of workloads.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, claim, condition, reason, timeless};

#[test]
fn a_replica_set_counts_its_pods() {
    claim(async |w| {
        let mut body = deployment("r");
        body["kind"] = "ReplicaSet".into();
        body["spec"].as_object_mut().unwrap().remove("strategy");
        body["spec"]["replicas"] = 2.into();
        let path = w.path("apps/v1", "replicasets");
        w.post(&path, body).await.code(201);
        let ready = |a: &Answer| a.body["status"]["availableReplicas"] == 2;
        let set = w.until(&format!("{path}/r"), "the pods are available", ready).await.body;
        assert_eq!(
            set["status"],
            json!({
                "observedGeneration": 1, "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2,
                "availableReplicas": 2, "terminatingReplicas": 0,
            })
        );
        let pods = w.get(&w.path("v1", "pods")).await.ok();
        let pod = &pods["items"][0];
        assert_eq!(pod["metadata"]["generateName"], "r-");
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": set["metadata"]["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(pod["metadata"]["ownerReferences"], owner);
    });
}

#[test]
fn a_stateful_set_counts_its_pods() {
    claim(async |w| {
        let mut body = deployment("s");
        body["kind"] = "StatefulSet".into();
        body["spec"].as_object_mut().unwrap().remove("strategy");
        body["spec"]["replicas"] = 2.into();
        body["spec"]["serviceName"] = "s".into();
        let path = w.path("apps/v1", "statefulsets");
        w.post(&path, body).await.code(201);
        let ready = |a: &Answer| a.body["status"]["availableReplicas"] == 2;
        let set = w.until(&format!("{path}/s"), "the pods are available", ready).await.body;
        let revision = set["status"]["currentRevision"].as_str().unwrap();
        assert!(revision.starts_with("s-"), "{revision}");
        assert_eq!(
            set["status"],
            json!({
                "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2,
                "updatedReplicas": 2, "currentRevision": revision, "updateRevision": revision, "collisionCount": 0,
            })
        );
        let pod = w.get(&w.path("v1", "pods/s-1")).await.ok();
        assert_eq!(
            pod["metadata"]["labels"],
            json!({
                "app": "s", "apps.kubernetes.io/pod-index": "1", "controller-revision-hash": revision,
                "statefulset.kubernetes.io/pod-name": "s-1",
            })
        );
        assert_eq!(pod["spec"]["subdomain"], "s");
        let revisions = w.get(&w.path("apps/v1", &format!("controllerrevisions/{revision}"))).await.ok();
        assert_eq!(revisions["revision"], 1);
        let event = w.event("StatefulSet", "s", "SuccessfulCreate").await;
        assert_eq!(event["message"], "Create Pod s-0 in StatefulSet s successful");
        w.merge(&format!("{path}/s/scale"), json!({"spec": {"replicas": 1}})).await.code(200);
        w.until(&w.path("v1", "pods/s-1"), "the last pod goes first", |a| a.code == 404).await;
        let event = w.event("StatefulSet", "s", "SuccessfulDelete").await;
        assert_eq!(event["message"], "Delete Pod s-1 in StatefulSet s successful");
    });
}

#[test]
fn a_daemon_set_counts_nodes() {
    claim(async |w| {
        let mut body = deployment("d");
        body["kind"] = "DaemonSet".into();
        for field in ["replicas", "strategy"] {
            body["spec"].as_object_mut().unwrap().remove(field);
        }
        let path = w.path("apps/v1", "daemonsets");
        w.post(&path, body.clone()).await.code(201);
        let ready = |a: &Answer| a.body["status"]["numberAvailable"] == a.body["status"]["desiredNumberScheduled"];
        let set = w
            .until(&format!("{path}/d"), "the pods are available", |a| {
                ready(a) && a.body["status"]["numberAvailable"] != Value::Null
            })
            .await
            .body;
        let nodes = &set["status"]["desiredNumberScheduled"];
        assert_eq!(
            set["status"],
            json!({
                "observedGeneration": 1, "desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                "numberMisscheduled": 0, "numberReady": nodes, "numberAvailable": nodes, "updatedNumberScheduled": nodes,
            })
        );
        body["metadata"]["name"] = "nowhere".into();
        body["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such"});
        w.post(&path, body).await.code(201);
        let seen = |a: &Answer| a.body["status"]["observedGeneration"] == 1;
        let set = w.until(&format!("{path}/nowhere"), "no node is wanted", seen).await.body;
        assert_eq!(
            set["status"],
            json!({
                "observedGeneration": 1, "desiredNumberScheduled": 0, "currentNumberScheduled": 0, "numberMisscheduled": 0,
                "numberReady": 0,
            })
        );
    });
}

#[test]
fn a_roll_out_that_takes_too_long_says_so() {
    claim(async |w| {
        let mut body = deployment("d");
        body["spec"]["replicas"] = 1.into();
        body["spec"]["progressDeadlineSeconds"] = 1.into();
        body["spec"]["template"]["metadata"]["annotations"] = json!({"devcluster.dev/outcome": "never-ready"});
        let path = w.path("apps/v1", "deployments/d");
        w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
        let late = |a: &Answer| reason(&a.body, "Progressing") == "ProgressDeadlineExceeded";
        let live = w.until(&path, "it takes too long", late).await.body;
        assert_eq!((condition(&live, "Progressing"), condition(&live, "Available")), ("False", "False"));
        let conditions = timeless(&live["status"]["conditions"]);
        let late = conditions.as_array().unwrap().iter().find(|c| c["type"] == "Progressing").unwrap().clone();
        let message = late["message"].as_str().unwrap();
        assert!(
            message.starts_with("ReplicaSet \"d-") && message.ends_with("\" has timed out progressing."),
            "{message}"
        );
        assert_eq!(
            (&live["status"]["unavailableReplicas"], &live["status"]["readyReplicas"]),
            (&json!(1), &Value::Null)
        );
    });
}

fn job(name: &str, spec: Value) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}});
    let mut body = json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        body["spec"][field] = value.clone();
    }
    body
}

#[test]
fn a_job_says_in_full_how_it_ended() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j", json!({"completions": 2, "parallelism": 2}))).await.code(201);
        let done = |a: &Answer| condition(&a.body, "Complete") == "True";
        let done = w.until(&format!("{path}/j"), "the Job is complete", done).await.body;
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "CompletionsReached", "lastProbeTime": "TIME",
                "lastTransitionTime": "TIME", "message": "Reached expected number of succeeded pods",
            })
        };
        assert_eq!(
            timeless(&done["status"]),
            json!({
                "startTime": "TIME", "completionTime": "TIME", "succeeded": 2, "ready": 0, "terminating": 0,
                "uncountedTerminatedPods": {}, "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            })
        );
        assert_eq!(w.event("Job", "j", "Completed").await["message"], "Job completed");
    });
}

#[test]
fn a_job_that_runs_too_long_fails() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        let mut body = job("j", json!({"activeDeadlineSeconds": 1}));
        body["spec"]["template"]["metadata"] = json!({"annotations": {"devcluster.dev/outcome": "never-ready"}});
        w.post(&path, body).await.code(201);
        let failed = |a: &Answer| condition(&a.body, "Failed") == "True";
        let failed = w.until(&format!("{path}/j"), "the Job has failed", failed).await.body;
        assert_eq!(reason(&failed, "Failed"), "DeadlineExceeded");
        assert_eq!(reason(&failed, "FailureTarget"), "DeadlineExceeded");
        assert_eq!(
            w.event("Job", "j", "DeadlineExceeded").await["message"],
            "Job was active longer than specified deadline"
        );
    });
}

#[test]
fn a_finished_job_goes_after_its_time() {
    claim(async |w| {
        let path = w.path("batch/v1", "jobs");
        w.post(&path, job("j", json!({"ttlSecondsAfterFinished": 0}))).await.code(201);
        w.until(&format!("{path}/j"), "the Job is gone", |a| a.code == 404).await;
        w.until(&w.path("v1", "pods"), "its pods are gone", |a| a.body["items"] == json!([])).await;
    });
}
