//! Autoscaling of pods that a node runs, by the usage of their processes.

use crate::machine::{HOST, Machine};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Deadline of waiting.
const PATIENCE: Duration = Duration::from_secs(60);
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

/// Creates a Deployment whose pods use CPU while a file exists, and its autoscaler.
async fn scaled(machine: &Machine, requests: Value, down_window: u32) {
    let load = machine.directory.path().join("load");
    let script = format!("while :; do [ -e {} ] || sleep 0.2; done", load.display());
    let container = json!({
        "name": "main", "image": HOST, "command": ["sh", "-c", script], "resources": {"requests": requests},
    });
    let deployment = json!({
        "metadata": {"name": "busy"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "busy"}},
            "template": {
                "metadata": {"labels": {"app": "busy"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
        },
    });
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let autoscaler = json!({
        "metadata": {"name": "busy"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
            "minReplicas": 1, "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": down_window}},
        },
    });
    machine.world.post(DEPLOYMENTS, deployment).await.expect(201);
    machine.world.post(AUTOSCALERS, autoscaler).await.expect(201);
}

fn replicas(machine: &Machine) -> Value {
    machine.world.server.object("apps/v1", "deployments", "default", "busy").unwrap()["spec"]["replicas"].clone()
}

fn status(machine: &Machine) -> Value {
    let kind = ("autoscaling/v2", "horizontalpodautoscalers");
    machine.world.server.object(kind.0, kind.1, "default", "busy").unwrap()["status"].clone()
}

/// Waits until the autoscaler is as wanted.
async fn until(machine: &Machine, what: &str, wanted: impl Fn(&Machine) -> bool) {
    let begun = Instant::now();
    while !wanted(machine) {
        assert!(begun.elapsed() < PATIENCE, "{what}: {:#}", status(machine));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn says(machine: &Machine, kind: &str, reason: &str) -> bool {
    let conditions = status(machine)["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == kind && condition["reason"] == reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_deployments_are_scaled_up_and_idle_ones_down() {
    let machine = Machine::new();
    scaled(&machine, json!({"cpu": "50m"}), 2).await;
    until(&machine, "it is measured", |m| says(m, "ScalingActive", "ValidMetricFound")).await;
    assert_eq!(replicas(&machine), 1, "it is idle");
    std::fs::write(machine.directory.path().join("load"), "").unwrap();
    until(&machine, "it is scaled up", |m| replicas(m) == 3).await;
    until(&machine, "it is limited", |m| says(m, "ScalingLimited", "TooManyReplicas")).await;
    let current = status(&machine)["currentMetrics"][0]["resource"]["current"].clone();
    assert!(current["averageUtilization"].as_i64().unwrap() > 50, "{current}");
    let events = machine.world.server.objects("v1", "events", Some("default"));
    let messages: Vec<_> = events.iter().filter(|event| event["reason"] == "SuccessfulRescale").collect();
    let why = "reason: cpu resource utilization (percentage of request) above target";
    assert!(messages.iter().all(|event| event["message"].as_str().unwrap().ends_with(why)), "{messages:#?}");
    std::fs::remove_file(machine.directory.path().join("load")).unwrap();
    until(&machine, "it is scaled down", |m| replicas(m) == 1).await;
    let events = machine.world.server.objects("v1", "events", Some("default"));
    let down = "New size: 1; reason: All metrics below target";
    assert!(events.iter().any(|event| event["message"] == down), "it says why");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recent_recommendations_are_kept() {
    let machine = Machine::new();
    std::fs::write(machine.directory.path().join("load"), "").unwrap();
    scaled(&machine, json!({"cpu": "50m"}), 300).await;
    until(&machine, "it is scaled up", |m| replicas(m) == 3).await;
    std::fs::remove_file(machine.directory.path().join("load")).unwrap();
    until(&machine, "it waits", |m| says(m, "AbleToScale", "ScaleDownStabilized")).await;
    assert_eq!(replicas(&machine), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_without_a_request_are_not_scaled_by_utilization() {
    let machine = Machine::new();
    scaled(&machine, json!({"memory": "1Mi"}), 300).await;
    until(&machine, "it says why", |m| {
        let conditions = status(m)["conditions"].to_string();
        conditions.contains("failed to get cpu utilization: missing request for cpu in container main of Pod busy-")
    })
    .await;
    assert_eq!(replicas(&machine), 1);
}
