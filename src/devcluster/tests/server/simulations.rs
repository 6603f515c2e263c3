//! Containers with a simulated outcome.

use crate::world::World;
use devcluster::{Options, Simulation};
use serde_json::{Value, json};
use std::time::Duration;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn job() -> Value {
    let container = |name: &str, args: Value| json!({"name": name, "image": "builder:1", "args": args});
    json!({
        "metadata": {"name": "build"},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "initContainers": [container("fetch", json!(["x"])), container("install", json!([]))],
            "containers": [container("push", json!(["a", "b"]))],
        }}},
    })
}

/// Returns the pod of a finished Job.
async fn ended(world: &World) -> Value {
    let mut changes = world.server.subscribe();
    let finished = async {
        loop {
            let job = world.server.object("batch/v1", "jobs", "default", "build").unwrap();
            let conditions = job["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|c| c["type"] == "Complete" || c["type"] == "Failed") {
                return;
            }
            changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), finished).await.expect("the Job ends");
    (*world.server.objects("v1", "pods", Some("default"))[0]).clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_reports_the_simulated_outcome() {
    let world = World::with(Options::default());
    drop(world.server.start_controllers());
    let simulation = json!({
        "image": "builder:1", "container": "push", "afterMillis": 20,
        "terminationMessage": r#"{"digest":"{digest}"}"#,
    });
    world.post("/devcluster/simulate", simulation).await.expect(200);
    world.post(JOBS, job()).await.expect(201);
    let pod = ended(&world).await;
    assert_eq!(pod["status"]["phase"], "Succeeded");
    // printf 'a\0b' | sha256sum
    let digest = "sha256:59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138";
    let message = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap();
    assert_eq!(message, format!(r#"{{"digest":"{digest}"}}"#));
    assert_eq!(pod["status"]["initContainerStatuses"][1]["state"]["terminated"]["exitCode"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_with_an_injected_failure_ends_the_build() {
    let world = World::with(Options::default());
    drop(world.server.start_controllers());
    let told = Simulation { exit_code: 2, termination_message: Some("moved".into()), after: Duration::ZERO };
    world.server.simulate_container("builder:1", "fetch", told);
    world.server.simulate("builder:1", Simulation::default());
    world.post(JOBS, job()).await.expect(201);
    let pod = ended(&world).await;
    assert_eq!(pod["status"]["phase"], "Failed");
    let init = &pod["status"]["initContainerStatuses"];
    assert_eq!(init[0]["state"]["terminated"]["message"], "moved");
    assert_eq!(init[1]["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_simulation_applies_to_a_running_container() {
    let world = World::with(Options::default());
    drop(world.server.start_controllers());
    let told = |after| Simulation { after, ..Simulation::default() };
    world.server.simulate("builder:1", told(Duration::from_hours(24)));
    world.post(JOBS, job()).await.expect(201);
    let mut changes = world.server.subscribe();
    let runs = async {
        while !world.server.objects("v1", "pods", None).iter().any(|pod| pod["status"]["phase"] == "Running") {
            changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), runs).await.expect("the pod runs");
    world.server.simulate("builder:1", told(Duration::ZERO));
    assert_eq!(ended(&world).await["status"]["phase"], "Succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_forget_nothing_when_there_is_much_to_do() {
    let world = World::with(Options::default());
    let pods = "/api/v1/namespaces/default/pods";
    for number in 0..300 {
        let spec = json!({"containers": [{"name": "main", "image": "x:1"}]});
        world.post(pods, json!({"metadata": {"name": format!("p{number}")}, "spec": spec})).await.expect(201);
    }
    drop(world.server.start_controllers());
    let mut changes = world.server.subscribe();
    let all = async {
        loop {
            let pods = world.server.objects("v1", "pods", Some("default"));
            if pods.iter().all(|pod| pod["status"]["phase"] == "Running") {
                return;
            }
            changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("all pods run");
}

/// Waits until pods are as wanted. Returns the cells of their table, sorted by name.
async fn table(world: &World, wanted: impl Fn(&Value) -> bool) -> Vec<(String, String, String)> {
    let mut changes = world.server.subscribe();
    let reached = async {
        while !world.server.objects("v1", "pods", Some("default")).iter().all(|pod| wanted(pod)) {
            changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("the pods are as wanted");
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = world.ask("GET", "/api/v1/namespaces/default/pods", "", accept, String::new()).await.expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = table["rows"].as_array().unwrap().iter().map(|row| &row["cells"]);
    rows.map(|cells| (text(&cells[0]), text(&cells[1]), text(&cells[2]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_only_seem_to_run_say_so_and_invalid_ones_fail_as_on_a_node() {
    let world = World::with(Options { mark_simulated: true, ..Options::default() });
    let container = |image: &str, fields: Value| {
        let mut container = json!({"name": "main", "image": image, "ports": [{"containerPort": 80}]});
        container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        container
    };
    let probe = |port: u16| json!({"readinessProbe": {"httpGet": {"port": port}}});
    for (name, container) in [
        ("dead-liveness", container("nginx:1", json!({"livenessProbe": {"tcpSocket": {"port": 81}}}))),
        ("dead-readiness", container("nginx:1", probe(81))),
        ("invalid-name", container("Nginx:1", json!({}))),
        ("no-host", container("registry.invalid/app:1", json!({}))),
        ("ready", container("nginx:1", probe(80))),
    ] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [container]}});
        world.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    }
    drop(world.server.start_controllers());
    let rows = table(&world, |pod| pod["status"]["containerStatuses"].is_array()).await;
    let shown: Vec<[&str; 3]> = rows.iter().map(|(name, ready, status)| [&**name, &**ready, &**status]).collect();
    assert_eq!(
        shown,
        [
            ["dead-liveness", "0/1", "CrashLoopBackOff (simulated)"],
            ["dead-readiness", "0/1", "Running (simulated)"],
            ["invalid-name", "0/1", "InvalidImageName"],
            ["no-host", "0/1", "ImagePullBackOff"],
            ["ready", "1/1", "Running (simulated)"],
        ]
    );
    let mut changes = world.server.subscribe();
    let reported = async {
        let wanted = ["InspectFailed", "Failed", "Unhealthy", "Simulated"];
        loop {
            let events = world.server.objects("v1", "events", Some("default"));
            if wanted.iter().all(|reason| events.iter().any(|event| event["reason"] == *reason)) {
                return;
            }
            changes.next().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reported).await.expect("Events name the reasons");
    let pod = world.server.object("v1", "pods", "default", "invalid-name").unwrap();
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
    let why = "invalid reference format: repository name must be lowercase";
    let said = format!("Failed to apply default image tag \"Nginx:1\": couldn't parse image name \"Nginx:1\": {why}");
    assert_eq!(*waiting, said);
    assert_eq!(pod["status"]["phase"], "Pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_cluster_that_marks_none_look_as_on_a_real_one() {
    let world = World::with(Options::default());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x:1"}]}});
    world.post("/api/v1/namespaces/default/pods", pod).await.expect(201);
    drop(world.server.start_controllers());
    let rows = table(&world, |pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(rows, [("p".to_owned(), "1/1".to_owned(), "Running".to_owned())]);
}
