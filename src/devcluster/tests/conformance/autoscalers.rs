//! HorizontalPodAutoscalers: their actions and status without metrics.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, World, claim, reason, timeless};

/// The message if no API serves `metrics.k8s.io`.
const NO_METRICS: &str = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)";

fn autoscaler(name: &str, api_version: &str, kind: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "minReplicas": 2, "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name},
        },
    })
}

/// Creates a Deployment with these replicas and its autoscaler.
async fn scaled(w: &World, replicas: i64) {
    let mut body = deployment("d");
    body["spec"]["replicas"] = replicas.into();
    w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
    let path = w.path("autoscaling/v2", "horizontalpodautoscalers");
    w.post(&path, autoscaler("d", "apps/v1", "Deployment")).await.code(201);
}

/// Waits until a condition of an autoscaler has this reason. Returns the status without times.
async fn status(w: &World, name: &str, kind: &str, why: &str) -> Value {
    let path = w.path("autoscaling/v2", &format!("horizontalpodautoscalers/{name}"));
    let told = |a: &Answer| reason(&a.body, kind) == why;
    timeless(&w.until(&path, &format!("{kind} is {why}"), told).await.body["status"])
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "TIME"})
}

#[test]
fn an_autoscaler_says_that_it_has_no_metrics() {
    claim(async |w| {
        scaled(w, 2).await;
        let able = "the HPA controller was able to get the target's current scale";
        let why = format!("the HPA was unable to compute the replica count: {NO_METRICS}");
        assert_eq!(
            status(w, "d", "ScalingActive", "FailedGetResourceMetric").await,
            json!({
                "currentReplicas": 2, "desiredReplicas": 0, "currentMetrics": [{"type": ""}],
                "conditions": [
                    condition("AbleToScale", "True", "SucceededGetScale", able),
                    condition("ScalingActive", "False", "FailedGetResourceMetric", &why),
                ],
            })
        );
        let message = format!(
            "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {NO_METRICS}"
        );
        let events = w.event("HorizontalPodAutoscaler", "d", "FailedComputeMetricsReplicas").await;
        assert_eq!(events["message"], message);
        assert_eq!(
            (&events["type"], &events["source"]["component"]),
            (&json!("Warning"), &json!("horizontal-pod-autoscaler"))
        );
        assert_eq!(w.event("HorizontalPodAutoscaler", "d", "FailedGetResourceMetric").await["message"], NO_METRICS);
    });
}

/// Checks that the autoscaler scales from these replicas to those for this reason.
async fn brings(w: &World, from: i64, to: i64, why: &str) {
    scaled(w, from).await;
    let path = w.path("apps/v1", "deployments/d");
    let live = w.until(&path, "the target is scaled", |a| a.body["spec"]["replicas"] == to).await.body;
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["subresource"] == "scale").expect("the scale has a manager");
    assert_eq!(entry["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!((&entry["operation"], &entry["apiVersion"]), (&json!("Update"), &json!("apps/v1")));
    let event = w.event("HorizontalPodAutoscaler", "d", "SuccessfulRescale").await;
    assert_eq!(event["message"], format!("New size: {to}; reason: {why}"));
    let status = status(w, "d", "ScalingActive", "FailedGetResourceMetric").await;
    assert_eq!((&status["currentReplicas"], &status["desiredReplicas"]), (&json!(to), &json!(to)));
    assert_eq!(status["lastScaleTime"], "TIME");
}

#[test]
fn an_autoscaler_keeps_its_least_replicas() {
    claim(async |w| brings(w, 1, 2, "Current number of replicas below Spec.MinReplicas").await);
}

#[test]
fn an_autoscaler_keeps_its_most_replicas() {
    claim(async |w| brings(w, 5, 3, "Current number of replicas above Spec.MaxReplicas").await);
}

#[test]
fn an_autoscaler_leaves_a_target_without_replicas_alone() {
    claim(async |w| {
        scaled(w, 0).await;
        let status = status(w, "d", "ScalingActive", "ScalingDisabled").await;
        let why = "scaling is disabled since the replica count of the target is zero";
        assert_eq!(status["conditions"][1], condition("ScalingActive", "False", "ScalingDisabled", why));
        assert_eq!((&status["currentMetrics"], &status["currentReplicas"]), (&Value::Null, &Value::Null));
        assert_eq!(status["desiredReplicas"], 0);
        let live = w.get(&w.path("apps/v1", "deployments/d")).await.ok();
        assert_eq!(live["spec"]["replicas"], 0);
        w.merge(&w.path("apps/v1", "deployments/d/scale"), json!({"spec": {"replicas": 1}})).await.code(200);
        let back = |a: &Answer| a.body["spec"]["replicas"] == 2;
        w.until(&w.path("apps/v1", "deployments/d"), "the target is scaled again", back).await;
    });
}

#[test]
fn two_autoscalers_of_the_same_pods_are_both_refused() {
    claim(async |w| {
        scaled(w, 2).await;
        let path = w.path("apps/v1", "deployments/d");
        w.until(&path, "there are pods", |a| a.body["status"]["replicas"] == 2).await;
        let path = w.path("autoscaling/v2", "horizontalpodautoscalers");
        let mut second = autoscaler("d", "apps/v1", "Deployment");
        second["metadata"]["name"] = "second".into();
        w.post(&path, second).await.code(201);
        for name in ["d", "second"] {
            let status = status(w, name, "ScalingActive", "AmbiguousSelector").await;
            let conditions = status["conditions"].as_array().unwrap();
            let message =
                conditions.iter().find(|c| c["type"] == "ScalingActive").unwrap()["message"].as_str().unwrap();
            let event = w.event("HorizontalPodAutoscaler", name, "AmbiguousSelector").await;
            // The order of the names is random.
            for message in [message, event["message"].as_str().expect("an event has a message")] {
                let (selector, names) =
                    message.split_once(" are controlled by multiple HPAs: [").expect("it names them");
                assert_eq!(selector, "pods by selector app=d");
                let mut names: Vec<_> = names.trim_end_matches(']').split(' ').collect();
                names.sort_unstable();
                assert_eq!(names, [format!("{}/d", w.ns), format!("{}/second", w.ns)]);
            }
        }
    });
}

#[test]
fn an_autoscaler_says_that_it_has_no_target() {
    claim(async |w| {
        let path = w.path("autoscaling/v2", "horizontalpodautoscalers");
        for (name, api_version, kind, why) in [
            ("lost", "apps/v1", "Deployment", "deployments.apps \"lost\" not found"),
            ("odd", "example.com/v1", "Nothing", "no matches for kind \"Nothing\" in group \"example.com\""),
            ("daemon", "apps/v1", "DaemonSet", "the server could not find the requested resource"),
        ] {
            w.post(&path, autoscaler(name, api_version, kind)).await.code(201);
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            assert_eq!(
                status(w, name, "AbleToScale", "FailedGetScale").await,
                json!({
                    "currentMetrics": null, "desiredReplicas": 0,
                    "conditions": [condition("AbleToScale", "False", "FailedGetScale", &message)],
                })
            );
            assert_eq!(w.event("HorizontalPodAutoscaler", name, "FailedGetScale").await["message"], why);
        }
    });
}

#[test]
fn an_autoscaler_that_cannot_work_is_refused() {
    claim(async |w| {
        let path = w.path("autoscaling/v2", "horizontalpodautoscalers");
        let refused = |change: Value| {
            let mut body = autoscaler("d", "apps/v1", "Deployment");
            for (field, value) in change.as_object().unwrap() {
                body["spec"][field] = value.clone();
            }
            body
        };
        for (change, cause) in [
            (
                json!({"maxReplicas": 0, "minReplicas": null}),
                "FieldValueRequired spec.maxReplicas: Required value: must be set and greater than 0",
            ),
            (
                json!({"maxReplicas": -1}),
                "FieldValueInvalid spec.maxReplicas: Invalid value: -1: must be greater than or equal to 1",
            ),
            (
                json!({"maxReplicas": 1}),
                "FieldValueInvalid spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`",
            ),
            (
                json!({"minReplicas": -1}),
                "FieldValueInvalid spec.minReplicas: Invalid value: -1: must be greater than or equal to 1",
            ),
            (
                json!({"scaleTargetRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}),
                "FieldValueInvalid spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
            ),
            (
                json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "", "name": "c"}}),
                "FieldValueRequired spec.scaleTargetRef.kind: Required value",
            ),
            (
                json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment"}}),
                "FieldValueRequired spec.scaleTargetRef.name: Required value",
            ),
        ] {
            let answer = w.post(&path, refused(change.clone())).await.code(422);
            assert!(answer.causes().iter().any(|c| c == cause), "{change}: {:?}", answer.causes());
        }
    });
}
