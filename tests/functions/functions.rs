//! Functions in a simulated cluster: their children, and their messages in order.

use serde_json::json;

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

/// The messages about a new Function with one pod.
const BUILT: [&str; 8] = [
    "ConfigMapCreated",
    "JobCreated",
    "JobRunning",
    "JobFinished",
    "DeploymentCreated",
    "ServiceCreated",
    "DeploymentWaiting",
    "DeploymentReady",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inline_function_comes_to_run() {
    let mut world = World::running(inline("module.exports = { main: () => 'hi' }")).await;
    let status = world.function_status("hello");
    assert_eq!(status["observedGeneration"], 1);
    let image = status["image"].as_str().unwrap();
    assert!(image.contains("/mainstay-tests_hello:") && image.contains("@sha256:"), "{image}");
    world.told("hello", &BUILT).await;
    let order = status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap());
    assert_eq!(order.collect::<Vec<_>>(), ["Running", "BuildReady", "ConfigurationReady"]);
    assert_eq!(world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"], *image);
    let job = world.child_name("hello", JOBS);
    assert_eq!(world.said("hello", "BuildReady"), format!("True JobFinished: Job {job} finished (0.1 s: SOURCE)"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_change_of_the_source_builds_again_and_the_old_image_serves_meanwhile() {
    let mut world = World::running(inline("1")).await;
    world.told("hello", &BUILT).await;
    let job = world.child_name("hello", JOBS);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    world.told("hello", &["DeploymentUpdated", "DeploymentWaiting", "DeploymentReady"]).await;
    world.edit_function("hello", json!({"spec": {"labels": {"team": "a"}}}));
    world.runs("hello").await;
    world.told("hello", &["DeploymentUpdated", "DeploymentWaiting", "DeploymentReady"]).await;
    world.edit_function("hello", json!({"metadata": {"labels": {"app": "x"}}}));
    world.told("hello", &["ConfigMapUpdated", "DeploymentUpdated", "ServiceUpdated", "DeploymentReady"]).await;
    assert_eq!(world.child_name("hello", JOBS), job, "nothing was built again");
    let old = world.function_status("hello")["image"].clone();

    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    assert!(world.said("hello", "Running").starts_with("True DeploymentReady"), "the old image serves");
    assert_eq!(world.function_status("hello")["image"], old);
    let serving = &world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*serving, old, "the old image serves until the new one is there");
    assert_ne!(world.child_name("hello", JOBS), job);
    world.builds_succeed();
    world.runs("hello").await;
    world
        .told(
            "hello",
            &[
                "ConfigMapUpdated",
                "JobsDeleted",
                "JobCreated",
                "JobRunning",
                "JobFinished",
                "DeploymentUpdated",
                "DeploymentWaiting",
                "DeploymentReady",
            ],
        )
        .await;
    assert_ne!(world.function_status("hello")["image"], old);
}

/// Returns the image of a Function's Deployment, and the runtime in its variables.
fn deployed(world: &World) -> (String, String) {
    let container = world.child("hello", DEPLOYMENTS)["spec"]["template"]["spec"]["containers"][0].clone();
    let variables = container["env"].as_array().unwrap();
    let runtime = variables.iter().find(|variable| variable["name"] == "FUNC_RUNTIME").unwrap();
    (container["image"].to_string(), runtime["value"].as_str().unwrap().to_owned())
}

/// Changes the runtime of a running Function. The serving version is unchanged until the new image is built, once.
async fn another_runtime(world: &World) {
    let (before, job) = (deployed(world), world.child_name("hello", JOBS));
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"runtime": "python312"}}));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    assert_eq!(deployed(world), before, "the old image serves, with what belongs to it");
    assert_ne!(world.child_name("hello", JOBS), job);
    let job = world.child_name("hello", JOBS);
    world.builds_succeed();
    world.runs("hello").await;
    let after = deployed(world);
    assert_ne!(after.0, before.0);
    assert_eq!(after.1, "python312");
    assert_eq!(world.function_status("hello")["runtime"], "python312");
    assert!(world.said("hello", "BuildReady").contains("RUNTIME"), "{}", world.said("hello", "BuildReady"));
    assert_eq!(world.child_name("hello", JOBS), job, "built once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_runtime_is_rolled_out_with_the_image_that_was_built_for_it() {
    another_runtime(&World::running(inline("1")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_runtime_of_a_git_function_is_built_although_its_commit_is_the_same() {
    let mut world = World::with_functions().await;
    world.remote.file("hello/handler.js", "1").commit("one");
    world.start();
    world.git_function("hello", "/hello");
    world.runs("hello").await;
    let commit = world.function_status("hello")["commit"].clone();
    another_runtime(&world).await;
    assert_eq!(world.function_status("hello")["commit"], commit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_pods_never_falls_when_an_autoscaler_comes() {
    let mut world = World::with_functions().await;
    world.start();
    let mut spec = inline("1");
    spec["minReplicas"] = json!(3);
    spec["maxReplicas"] = json!(3);
    world.function("hello", spec);
    world.runs("hello").await;
    let lowest = world.lowest_replicas("hello");
    world.edit_function("hello", json!({"spec": {"minReplicas": 2, "maxReplicas": 5}}));
    world.until_function("an autoscaler", |w| w.children("hello", AUTOSCALERS).len() == 1).await;
    world.runs("hello").await;
    let autoscaler = world.child("hello", AUTOSCALERS);
    assert_eq!(autoscaler["spec"]["scaleTargetRef"]["name"], *world.child_name("hello", DEPLOYMENTS));
    assert_eq!((&autoscaler["spec"]["minReplicas"], &autoscaler["spec"]["maxReplicas"]), (&json!(2), &json!(5)));
    // The agent does not own the autoscaler's replicas any more.
    let name = world.child_name("hello", DEPLOYMENTS);
    world.edit("apps/v1", "deployments", &name, json!({"spec": {"replicas": 4}}));
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert_eq!(world.child("hello", DEPLOYMENTS)["spec"]["replicas"], 4);
    world.edit_function("hello", json!({"spec": {"minReplicas": 4, "maxReplicas": 4}}));
    world.until_function("no autoscaler", |w| w.children("hello", AUTOSCALERS).is_empty()).await;
    world.runs("hello").await;
    assert!(lowest() >= 3, "{} pods", lowest());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_function_is_reported_and_the_old_image_serves() {
    let world = World::running(inline("1")).await;
    world.edit_function("hello", json!({"spec": {"runtime": "cobol"}}));
    world
        .says("hello", "ConfigurationReady", "False RuntimeNotSupported: invalid value: cannot find runtime: cobol")
        .await;
    assert!(world.said("hello", "BuildReady").starts_with("Unknown Pending"), "{}", world.said("hello", "BuildReady"));
    assert!(world.said("hello", "Running").starts_with("True DeploymentReady"));
    assert_eq!(world.function_status("hello")["observedGeneration"], 2);
    world.edit_function("hello", json!({"spec": {"runtime": "nodejs22"}}));
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing was built again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_registry_nothing_is_built_until_there_is_one() {
    let mut world = World::new().await;
    world.builds_succeed();
    world.start();
    world.function("hello", inline("1"));
    world
        .says("hello", "ConfigurationReady", "False RegistryNotConfigured: Docker registry configuration not found")
        .await;
    assert_eq!(world.children("hello", JOBS).len(), 0);
    world.registry(NAMESPACE, "registry.example.org");
    world.runs("hello").await;
    let image = world.function_status("hello")["image"].as_str().unwrap().to_owned();
    assert!(image.starts_with("registry.example.org/mainstay-tests_hello:"), "{image}");
    // Another registry needs a new build.
    world.edit(
        "v1",
        "secrets",
        "serverless-registry-config-default",
        json!({"stringData": {"registryAddress": "other.example.org/x"}}),
    );
    world
        .until_function("it moves", |w| {
            w.function_status("hello")["image"]
                .as_str()
                .is_some_and(|i| i.starts_with("other.example.org/x/mainstay-tests_hello:"))
        })
        .await;
    assert!(world.said("hello", "BuildReady").contains("REGISTRY"), "{}", world.said("hello", "BuildReady"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_of_that_name_that_is_not_ours_is_left_alone() {
    let mut world = World::with_functions().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hello", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    });
    world.create("v1", "services", NAMESPACE, service);
    let uid = world.uid("v1", "services", "hello");
    world.start();
    world.function("hello", inline("1"));
    world
        .says("hello", "Running", "False ServiceFailed: Service mainstay-tests/hello exists already and belongs to")
        .await;
    let theirs = world.get("v1", "services", "hello").unwrap();
    assert_eq!(
        (theirs["metadata"]["uid"].as_str(), &theirs["spec"]["selector"]),
        (Some(&*uid), &json!({"app": "theirs"}))
    );
    world.delete_function("hello");
    world.until_function("the children are gone", |w| w.children("hello", DEPLOYMENTS).is_empty()).await;
    assert!(world.get("v1", "services", "hello").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_function_leaves_nothing_behind() {
    let world = World::running(scaled("1")).await;
    world.delete_function("hello");
    let kinds = [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, AUTOSCALERS];
    world.until_function("no child is left", |w| kinds.iter().all(|kind| w.children("hello", *kind).is_empty())).await;
    // A new Function of the same name starts from scratch.
    world.function("hello", inline("2"));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_function_costs_no_request() {
    let mut world = World::with_functions().await;
    world.start();
    // A namespace can build this many concurrently, so none is queued.
    for n in 0..3 {
        world.function(&format!("f{n}"), inline("1"));
    }
    for n in 0..3 {
        world.runs(&format!("f{n}")).await;
    }
    world.told("f0", &BUILT).await;
    world.quiet().await;
    // Events are written with a delay, and some may be pending.
    let requests = |w: &World| w.requests().into_iter().filter(|(of, _)| !of.contains("events")).collect::<Vec<_>>();
    let before = requests(&world);
    // A change of an unrelated object.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    world.create("v1", "configmaps", NAMESPACE, map);
    world.quiet().await;
    assert_eq!(requests(&world), before);
}
