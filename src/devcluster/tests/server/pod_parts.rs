//! The kubelet's handling of changes to a running pod.

use crate::machine::{HOST, Machine, PODS};
use serde_json::{Value, json};

fn resize(resources: Value) -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": resources}]}})
}

async fn strategic(machine: &Machine, path: &str, patch: Value) -> Value {
    let media = "application/strategic-merge-patch+json";
    machine.world.ask("PATCH", path, media, "", patch.to_string()).await.expect(200)
}

fn resources(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["resources"]
}

fn pending(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "PodResizePending")
}

/// Creates a running pod with this image and a container that requests one CPU.
async fn running(machine: &Machine, image: &str) -> Value {
    let container = json!({"image": image, "resources": {"requests": {"cpu": "1"}}});
    machine
        .pod(
            "p",
            "exec sleep 300",
            json!({"restartPolicy": "Always", "terminationGracePeriodSeconds": 0, "containers": [container]}),
        )
        .await;
    machine
        .until("p", "running with its resources", |pod| {
            pod["status"]["phase"] == "Running" && resources(pod).is_object()
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_shows_in_the_status() {
    for image in ["simulated:1", HOST] {
        let machine = Machine::new();
        let pod = running(&machine, image).await;
        assert_eq!(resources(&pod), &json!({"requests": {"cpu": "1"}}), "{image}");
        assert_eq!(pod["status"]["containerStatuses"][0]["allocatedResources"], json!({"cpu": "1"}));
        let path = format!("{PODS}/p/resize");
        let more = json!({"requests": {"cpu": "2"}, "limits": {"memory": "1Gi"}});
        let resized = strategic(&machine, &path, resize(more)).await;
        assert_eq!(resized["metadata"]["generation"], 2);
        let expected = json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}});
        let done = machine.until("p", "resized", |pod| resources(pod) == &expected).await;
        assert_eq!((&done["status"]["observedGeneration"], pending(&done)), (&json!(2), None));
        assert_eq!(done["status"]["containerStatuses"][0]["restartCount"], 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_stay_in_the_status() {
    for image in ["simulated:1", HOST] {
        let machine = Machine::new();
        running(&machine, image).await;
        let foreign = json!({"type": "example.com/Registered", "status": "True"});
        let status = json!({"status": {"conditions": [foreign]}});
        strategic(&machine, &format!("{PODS}/p/status"), status).await;
        strategic(&machine, &format!("{PODS}/p/resize"), resize(json!({"requests": {"cpu": "2"}}))).await;
        let resized = machine.until("p", "resized", |pod| resources(pod)["requests"]["cpu"] == "2").await;
        let list = resized["status"]["conditions"].as_array().unwrap();
        assert!(list.iter().any(|one| one["type"] == foreign["type"]), "{image}: {list:?}");
        assert_eq!(list.iter().filter(|one| one["type"] == "Ready").count(), 1, "{image}: {list:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resize_beyond_the_node_stays_pending() {
    let machine = Machine::new();
    running(&machine, "simulated:1").await;
    let path = format!("{PODS}/p/resize");
    strategic(&machine, &path, resize(json!({"requests": {"cpu": "65"}}))).await;
    let pod = machine.until("p", "pending", |pod| pending(pod).is_some()).await;
    let condition = pending(&pod).unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("Infeasible")));
    let message = "Node didn't have enough capacity: cpu, requested: 65000, capacity: 64000";
    assert_eq!((&condition["message"], &condition["observedGeneration"]), (&json!(message), &json!(2)));
    assert_eq!(resources(&pod), &json!({"requests": {"cpu": "1"}}), "the container keeps what it had");
    strategic(&machine, &path, resize(json!({"requests": {"cpu": "3"}}))).await;
    let expected = json!({"requests": {"cpu": "3"}});
    let pod = machine.until("p", "resized", |pod| resources(pod) == &expected).await;
    assert_eq!(pending(&pod), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_debug_adds_a_container_that_runs() {
    let machine = Machine::new();
    running(&machine, "simulated:1").await;
    let kubectl = machine.serve().await;
    kubectl
        .run(&[
            "debug",
            "p",
            "--image=busybox",
            "--container=look",
            "--target=main",
            "--profile=general",
            "--",
            "sleep",
            "60",
        ])
        .await;
    let running = |pod: &Value| pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object();
    let pod = machine.until("p", "looked into", running).await;
    let status = &pod["status"]["ephemeralContainerStatuses"][0];
    assert_eq!(
        (&status["name"], &status["ready"], &status["restartCount"]),
        (&json!("look"), &json!(false), &json!(0))
    );
    assert_eq!(kubectl.run(&["logs", "p", "-c", "look"]).await, "look of default/p\n");
    assert_eq!(kubectl.run(&["exec", "p", "-c", "look", "--", "echo", "hello"]).await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_processes_says_that_it_runs_no_ephemeral_containers() {
    let machine = Machine::new();
    running(&machine, HOST).await;
    let patch = json!({"spec": {"ephemeralContainers": [{"name": "look", "image": HOST}]}});
    strategic(&machine, &format!("{PODS}/p/ephemeralcontainers"), patch).await;
    let waiting = |pod: &Value| pod["status"]["ephemeralContainerStatuses"][0]["state"]["waiting"].is_object();
    let pod = machine.until("p", "told", waiting).await;
    let state = &pod["status"]["ephemeralContainerStatuses"][0]["state"]["waiting"];
    assert_eq!(state, &json!({"reason": "CreateContainerError", "message": "this node runs no ephemeral containers"}));
    assert_eq!(pod["status"]["phase"], "Running");
}
