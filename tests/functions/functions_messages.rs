//! The messages about a Function for each kind of change: exactly these, in this order, each once.

use std::time::Duration;

use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, DEPLOYMENTS, JOBS, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

/// Messages that may be missing, depending on the speed of pods.
const PASSING: [&str; 2] = ["DeploymentWaiting", "MinReplicasNotAvailable"];
/// The messages about a new build and its rollout.
const REBUILT: [&str; 6] =
    ["JobsDeleted", "JobCreated", "JobRunning", "JobFinished", "DeploymentUpdated", "DeploymentReady"];

/// Returns the reason of a message about `hello`, unless it may be missing.
fn lasting(message: Message) -> Option<String> {
    let Message::Stage { subject, reason, .. } = message else { return None };
    (subject == Owner::function(NAMESPACE, "hello") && !PASSING.contains(&reason.as_str())).then(|| reason.to_string())
}

/// Checks the reasons of the messages about `hello` since the last call.
async fn told(world: &mut World, expected: &[&str]) {
    let mut reasons = Vec::new();
    while reasons.len() < expected.len() {
        let heard = tokio::time::timeout(mainstay_testkit::PATIENCE, world.messages.recv()).await;
        let Ok(Ok(message)) = heard else { break };
        reasons.extend(lasting(message));
    }
    world.quiet().await;
    while let Ok(message) = world.messages.try_recv() {
        reasons.extend(lasting(message));
    }
    assert_eq!(reasons, expected, "{:#}", world.function_status("hello"));
}

/// Waits until a build of `hello` is running, and lets it succeed.
async fn build(world: &World) {
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    world.builds_succeed();
    world.runs("hello").await;
}

/// Returns the number of rollouts of `hello`.
fn roll_outs(world: &World) -> i64 {
    world.child("hello", DEPLOYMENTS)["metadata"]["generation"].as_i64().unwrap() - 1
}

/// Returns the Events about `hello` in the order of their writes: type, reason and count.
fn events(world: &World) -> Vec<(String, String, u64)> {
    let uid = world.function_now("hello").unwrap()["metadata"]["uid"].clone();
    let mut all = world.server.objects("events.k8s.io/v1", "events", Some(NAMESPACE));
    all.retain(|event| event["regarding"]["kind"] == "Function" && event["regarding"]["uid"] == uid);
    let written = |event: &Value| event["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    all.sort_by_key(|event| written(event));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let shown = |event: &Value| {
        assert_eq!(
            (&event["regarding"]["name"], &event["regarding"]["namespace"]),
            (&json!("hello"), &json!(NAMESPACE))
        );
        (text(&event["type"]), text(&event["reason"]), event["series"]["count"].as_u64().unwrap_or(1))
    };
    all.iter().map(|event| shown(event)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_step_of_a_new_function_is_one_event() {
    let mut world = World::with_functions().await;
    world.builds_wait();
    world.start();
    world.function("hello", scaled("1"));
    build(&world).await;
    let steps = [
        "ConfigMapCreated",
        "JobCreated",
        "JobRunning",
        "JobFinished",
        "DeploymentCreated",
        "ServiceCreated",
        "HorizontalPodAutoscalerCreated",
        "DeploymentReady",
    ];
    told(&mut world, &steps).await;
    let last = |w: &World| events(w).iter().any(|(_, reason, _)| reason == "DeploymentReady");
    world.until_function("all are Events", last).await;
    let mut written = events(&world);
    written.retain(|(_, reason, _)| !PASSING.contains(&&**reason));
    written.sort();
    let mut all = steps.map(|step| ("Normal".to_owned(), step.to_owned(), 1));
    all.sort();
    assert_eq!(written, all, "in whichever order: news about states come before routine ones");
    // Older clients see the same Events.
    let core = world.server.objects("v1", "events", Some(NAMESPACE));
    for step in steps {
        let of = |event: &Value| event["reason"] == step && event["involvedObject"]["name"] == "hello";
        let seen = core.iter().filter(|event| of(event) && event["involvedObject"]["kind"] == "Function").count();
        assert_eq!(seen, 1, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_dependencies_and_another_registry_are_built_before_the_one_roll_out() {
    let mut world = World::running(inline("1")).await;
    world.quiet().await;
    while world.messages.try_recv().is_ok() {}
    let cause = |w: &World| w.child("hello", JOBS)["metadata"]["annotations"]["mainstay.dev/build-cause"].clone();

    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"deps": r#"{"dependencies": {"left-pad": "1.3.0"}}"#}}));
    build(&world).await;
    told(&mut world, &[&["ConfigMapUpdated"], &REBUILT[..]].concat()).await;
    assert_eq!((cause(&world), roll_outs(&world)), (json!("DEPS"), 1));

    let address = json!({"stringData": {"registryAddress": "other.example.org/x"}});
    world.builds_wait();
    world.edit("v1", "secrets", "serverless-registry-config-default", address);
    build(&world).await;
    told(&mut world, &REBUILT).await;
    assert_eq!((cause(&world), roll_outs(&world)), (json!("REGISTRY"), 2));

    let resources = json!({"limits": {"memory": "200Mi"}, "requests": {"memory": "100Mi"}});
    for spec in [json!({"resources": resources}), json!({"env": [{"name": "A", "value": "1"}]})] {
        world.edit_function("hello", json!({"spec": spec}));
        world.runs("hello").await;
        told(&mut world, &["DeploymentUpdated", "DeploymentReady"]).await;
    }
    assert_eq!((cause(&world), roll_outs(&world)), (json!("REGISTRY"), 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_runtime_is_built_first_and_rolled_out_once() {
    let mut world = World::running(inline("1")).await;
    world.quiet().await;
    while world.messages.try_recv().is_ok() {}
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"runtime": "python312"}}));
    build(&world).await;
    // A Python Function has no package.json, not even an empty one.
    told(&mut world, &[&["ConfigMapUpdated"], &REBUILT[..]].concat()).await;
    assert_eq!(roll_outs(&world), 1, "the old image never has what belongs to the new one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_and_added_autoscaler_is_reported_without_a_rollout() {
    let mut spec = scaled("1");
    spec["maxReplicas"] = json!(2);
    let mut world = World::running(spec).await;
    world.quiet().await;
    while world.messages.try_recv().is_ok() {}
    let template = world.child("hello", DEPLOYMENTS)["spec"]["template"].clone();
    let pods = |w: &World| w.child("hello", DEPLOYMENTS)["spec"]["replicas"].clone();
    let ready = |w: &World| w.child("hello", DEPLOYMENTS)["status"]["readyReplicas"].clone();

    world.edit_function("hello", json!({"spec": {"minReplicas": 2}}));
    world.until_function("no autoscaler", |w| w.children("hello", AUTOSCALERS).is_empty()).await;
    world.until_function("the pods are two", |w| pods(w) == 2 && ready(w) == 2).await;
    world.runs("hello").await;
    world.quiet().await;
    // The deletion causes no message. Which loop writes the replicas, and whether the second pod is reported missing,
    // depends on timing.
    let messages = std::iter::from_fn(|| world.messages.try_recv().ok());
    let reasons = messages.filter_map(lasting).collect::<Vec<_>>();
    let all: [&[&str]; 3] = [&[], &["DeploymentReady"], &["DeploymentUpdated", "DeploymentReady"]];
    assert!(all.iter().any(|possible| reasons == *possible), "{reasons:?}");

    let lowest = world.lowest_replicas("hello");
    world.edit_function("hello", json!({"spec": {"minReplicas": 1, "maxReplicas": 3}}));
    world.until_function("an autoscaler", |w| w.children("hello", AUTOSCALERS).len() == 1).await;
    world.runs("hello").await;
    // The Deployment changes too: it no longer sets the replicas, although the number is the same.
    told(&mut world, &["DeploymentUpdated", "HorizontalPodAutoscalerCreated", "DeploymentReady"]).await;
    assert_eq!(pods(&world), 2);
    assert!(lowest() >= 2, "{} pods", lowest());
    assert_eq!(world.child("hello", DEPLOYMENTS)["spec"]["template"], template);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_waited_in_the_build_queue_becomes_ready() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 1;
    world.builds_wait();
    world.start();
    world.function("first", inline("1"));
    world.says("first", "BuildReady", "Unknown JobRunning").await;
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobQueued").await;
    assert_eq!(world.function_status("hello")["queue"], 1);
    assert_eq!(world.children("hello", JOBS).len(), 0);
    told(&mut world, &["ConfigMapCreated", "JobQueued"]).await;
    world.delete_function("first");
    build(&world).await;
    let steps = ["JobCreated", "JobRunning", "JobFinished", "DeploymentCreated", "ServiceCreated", "DeploymentReady"];
    told(&mut world, &steps).await;
    assert_eq!(world.function_status("hello")["queue"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_build_is_reported_once_and_its_retry_once() {
    let mut world = World::with_functions().await;
    world.functions.requeue = Duration::from_secs(3600);
    world.builds_wait();
    world.start();
    world.function("hello", inline("1"));
    world.says("hello", "BuildReady", "Unknown JobRunning").await;
    let report = r#"{"reason":"Registry","message":"no","retry":true}"#;
    world.builds_end("push", 1, report, Duration::ZERO);
    world.says("hello", "BuildReady", "False JobFailed").await;
    let job = world.child_name("hello", JOBS);
    for n in ["1", "2", "3"] {
        world.edit(JOBS.0, JOBS.1, &job, json!({"metadata": {"labels": {"looked": n}}}));
        world.quiet().await;
    }
    told(&mut world, &["ConfigMapCreated", "JobCreated", "JobRunning", "JobFailed"]).await;
    assert_eq!(world.function_status("hello")["builds"], 1);
    // A corrected registry Secret causes an immediate retry.
    world.builds_wait();
    let password = json!({"stringData": {"password": "right"}});
    world.edit("v1", "secrets", "serverless-registry-config-default", password);
    build(&world).await;
    let steps = ["JobCreated", "JobRunning", "JobFinished", "DeploymentCreated", "ServiceCreated", "DeploymentReady"];
    told(&mut world, &steps).await;
    let failed = events(&world).into_iter().filter(|(_, reason, _)| reason == "JobFailed");
    assert_eq!(failed.collect::<Vec<_>>(), [("Warning".to_owned(), "JobFailed".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_service_is_restored_without_an_event_of_the_function() {
    let mut world = World::running(inline("1")).await;
    world.quiet().await;
    let reverted = |world: &mut World| {
        let messages = std::iter::from_fn(|| world.messages.try_recv().ok()).collect::<Vec<_>>();
        let stages = messages.iter().filter_map(|message| lasting(message.clone())).collect::<Vec<_>>();
        let reverts = messages.iter().filter(|message| matches!(message, Message::Reverted { .. })).count();
        (stages, reverts)
    };
    reverted(&mut world);
    let before = world.function_now("hello").unwrap()["metadata"]["resourceVersion"].clone();
    let uid = world.uid(SERVICES.0, SERVICES.1, "hello");
    world.delete(SERVICES.0, SERVICES.1, "hello");
    let back = |w: &World| w.get(SERVICES.0, SERVICES.1, "hello").is_some_and(|now| now["metadata"]["uid"] != *uid);
    world.until_function("it is back", back).await;
    world.quiet().await;
    // Neither ServiceCreated nor DeploymentReady is reported again. Drift has its own message, and the revert comes
    // before a condition changes.
    assert_eq!(reverted(&mut world), (vec![], 1));
    assert_eq!(world.function_now("hello").unwrap()["metadata"]["resourceVersion"], before);
    assert!(world.is_running("hello"));
}
