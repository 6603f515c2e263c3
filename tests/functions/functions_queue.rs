//! Builds whose pods cannot start. The cause is reported, and no other build waits for them.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{JOBS, inline},
    listener::metrics,
    world::{NAMESPACE, World, condition_of, free_address},
};

const NEVER: Duration = Duration::from_secs(3600);
/// The error of a quota when a controller creates a pod.
const QUOTA: &str = "pods \"hello-build-x7k2p\" is forbidden: exceeded quota: compute, requested: \
                     limits.cpu=700m,limits.memory=1100Mi, used: limits.cpu=2,limits.memory=2Gi, limited: \
                     limits.cpu=2,limits.memory=2Gi";
/// The error of a LimitRange when a controller creates a pod.
const RANGE: &str = "pods \"small-build-q9d4s\" is forbidden: [maximum cpu usage per Container is 500m, but limit is \
                     700m, maximum memory usage per Container is 512Mi, but limit is 1100Mi]";

/// Returns a Function whose build needs more than the node has.
fn too_large() -> Value {
    let mut spec = inline("1");
    spec["buildResources"] = json!({"requests": {"memory": "1Ti"}, "limits": {"memory": "1Ti"}});
    spec
}

fn namespace(world: &World, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.create("v1", "namespaces", "", namespace);
    world.registry(name, "registry.example.org");
}

/// Returns the status of a Function in any namespace.
fn status(world: &World, namespace: &str, name: &str) -> Value {
    let function = world.server.object("serverless.kyma-project.io/v1alpha1", "functions", namespace, name);
    function.map(|function| function["status"].clone()).unwrap_or_default()
}

async fn says(world: &World, namespace: &str, name: &str, text: &str) {
    let what = format!("{namespace}/{name} to say {text:?}");
    world.until_function(&what, |w| condition_of(&status(w, namespace, name), "BuildReady").contains(text)).await;
}

/// Returns the metrics for running builds, held-up builds, and queued Functions.
async fn numbers(world: &World) -> Vec<String> {
    let page = metrics(world).await;
    let value = |name: &str| {
        let begin = format!("mainstay_function_builds_{name} ");
        page.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default().to_owned()
    };
    ["running", "held_up", "waiting"].map(value).to_vec()
}

async fn numbers_are(world: &World, expected: [&str; 3]) {
    let waiting = async {
        while numbers(world).await != expected {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let reached = tokio::time::timeout(mainstay_testkit::PATIENCE, waiting).await;
    assert!(reached.is_ok(), "{expected:?} expected, not {:?}", numbers(world).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unschedulable_builds_do_not_block_other_namespaces() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 2;
    world.listen = Some(free_address());
    namespace(&world, "other");
    world.builds_wait();
    world.start();
    let large = ["f1", "f2", "f3", "f4", "f5"];
    for name in large {
        world.function(name, too_large());
    }
    let saying = |w: &World, text: &str| large.iter().filter(|name| w.said(name, "BuildReady").contains(text)).count();
    world.until_function("all are held up", |w| saying(w, "Unschedulable: 0/1 nodes are available") == 5).await;
    assert_eq!(saying(&world, "1 Insufficient memory. preemption: 0/1 nodes are available"), 5);
    // Only one of the builds keeps its pod.
    world.until_function("four are suspended", |w| saying(w, "is suspended, because its pod cannot start") == 4).await;
    numbers_are(&world, ["0", "1", "0"]).await;
    for name in ["a", "b"] {
        world.function_in("other", name, inline("1"));
        says(&world, "other", name, "is still in progress").await;
    }
    world.function_in("other", "c", inline("1"));
    says(&world, "other", "c", "builds run at the same time").await;
    world.builds_succeed();
    let image = |w: &World, name: &str| status(w, "other", name)["image"].is_string();
    world.until_function("the others run", |w| ["a", "b", "c"].iter().all(|name| image(w, name))).await;
    for name in large {
        world.edit_function(name, json!({"spec": {"source": "2", "buildResources": null}}));
    }
    for name in large {
        world.runs(name).await;
    }
    numbers_are(&world, ["0", "0", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_whose_image_is_missing_leaves_the_node_to_others_and_is_tried_again() {
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    namespace(&world, "other");
    let image = std::mem::replace(&mut world.functions.builder_image, "registry.invalid/builder:1".to_owned());
    world.start();
    world.function("hello", inline("1"));
    world.until_function("it is held up", |w| w.said("hello", "BuildReady").contains("ImagePullBackOff")).await;
    let job = |w: &World| w.child("hello", JOBS);
    world.quiet().await;
    assert_eq!(job(&world)["spec"]["suspend"], false, "nobody waits for its place");
    // Another build does not fit on the node.
    world.function_in("other", "large", too_large());
    says(&world, "other", "large", "Unschedulable").await;
    let suspended = "is suspended, because its pod cannot start";
    world.until_function("it is suspended", |w| w.said("hello", "BuildReady").contains(suspended)).await;
    assert!(world.said("hello", "BuildReady").starts_with("Unknown JobQueued"));
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("other builds wait for its place: ImagePullBackOff: container install: "), "{said}");
    let name = job(&world)["metadata"]["name"].clone();
    let pods = |w: &World| {
        let pods = w.server.objects("v1", "pods", Some(NAMESPACE));
        pods.iter().filter(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name).count()
    };
    world.until_function("its pod is gone", |w| job(w)["spec"]["suspend"] == true && pods(w) == 0).await;
    // A new agent knows the cause, and the suspension is not reverted.
    world.kill().await;
    world.listen = Some(free_address());
    world.start();
    let suspensions = |w: &World| job(w)["metadata"]["annotations"]["mainstay.dev/build-suspensions"].clone();
    let before = suspensions(&world);
    world.until_function("it is tried again", |w| job(w)["spec"]["suspend"] == false).await;
    world.until_function("it is suspended again", |w| suspensions(w) != before).await;
    world.until_function("it says so again", |w| w.said("hello", "BuildReady").contains(suspended)).await;
    // Other inputs get another build.
    world.kill().await;
    world.listen = Some(free_address());
    world.functions.builder_image = image;
    world.start();
    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.runs("hello").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_whose_pod_is_refused_is_reported_and_counts_again_once_it_has_one() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 1;
    world.listen = Some(free_address());
    for name in ["other", "third"] {
        namespace(&world, name);
    }
    world.builds_wait();
    for (namespace, message) in [(NAMESPACE, QUOTA), ("other", RANGE)] {
        world.server.embedded().faults().fail_next(Fault {
            verb: "create".into(),
            resource: "pods".into(),
            namespace: namespace.into(),
            code: 403,
            reason: "Forbidden".into(),
            message: message.into(),
            times: 10_000,
            ..Fault::default()
        });
    }
    world.start();
    for (namespace, name, message) in [(NAMESPACE, "hello", QUOTA), ("other", "small", RANGE)] {
        world.function_in(namespace, name, inline("1"));
        says(&world, namespace, name, &format!("FailedCreate: Error creating: {message}")).await;
        assert!(condition_of(&status(&world, namespace, name), "BuildReady").starts_with("Unknown JobRunning"));
    }
    world.function_in("third", "last", inline("1"));
    says(&world, "third", "last", "is still in progress").await;
    world.function_in("third", "next", inline("1"));
    says(&world, "third", "next", "position 1").await;
    numbers_are(&world, ["1", "2", "1"]).await;
    world.server.embedded().faults().clear_faults();
    numbers_are(&world, ["3", "0", "1"]).await;
    let told_no_more = |w: &World| !w.said("hello", "BuildReady").contains("FailedCreate");
    world.until_function("its trouble is over", told_no_more).await;
    assert_eq!(status(&world, "third", "next")["queue"], 1, "nothing begins until there is room");
    world.builds_succeed();
    world.runs("hello").await;
    let all = [("other", "small"), ("third", "last"), ("third", "next")];
    let image = |w: &World, (namespace, name): &(&str, &str)| status(w, namespace, name)["image"].is_string();
    world.until_function("all run", |w| all.iter().all(|one| image(w, one))).await;
    numbers_are(&world, ["0", "0", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_recognises_builds_without_a_running_pod() {
    let mut world = World::with_functions().await;
    world.functions.max_simultaneous_jobs = 1;
    world.listen = Some(free_address());
    namespace(&world, "other");
    world.start();
    world.function("large", too_large());
    world.until_function("it is held up", |w| w.said("large", "BuildReady").contains("Unschedulable")).await;
    world.kill().await;
    world.listen = Some(free_address());
    world.start();
    numbers_are(&world, ["0", "1", "0"]).await;
    world.function_in("other", "hello", inline("1"));
    world.until_function("it runs", |w| status(w, "other", "hello")["image"].is_string()).await;
    // A deleted Function leaves no objects behind.
    world.delete_function("large");
    world.until_function("its Job is gone", |w| w.children("large", JOBS).is_empty()).await;
    numbers_are(&world, ["0", "0", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unschedulable_build_is_reported_at_its_deadline() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    world.functions.build_deadline = Duration::from_secs(3);
    world.start();
    world.function("hello", too_large());
    world.says("hello", "BuildReady", "False JobFailed").await;
    let said = world.said("hello", "BuildReady");
    assert!(said.contains("DeadlineExceeded") && said.contains("Unschedulable: 0/1 nodes are available"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_build_resources_replace_a_build_that_cannot_begin_and_no_other() {
    let mut world = World::with_functions().await;
    world.functions.requeue = NEVER;
    world.builds_wait();
    world.start();
    let resources = |memory: &str| json!({"spec": {"buildResources": {"limits": {"memory": memory}, "requests": {"memory": memory}}}});
    world.function("hello", too_large());
    world.until_function("it is held up", |w| w.said("hello", "BuildReady").contains("Unschedulable")).await;
    let names = |w: &World| {
        let jobs = w.children("hello", JOBS);
        jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = names(&world);
    world.edit_function("hello", resources("1Gi"));
    world.until_function("another one", |w| names(w).len() == 1 && names(w) != before).await;
    world.until_function("it works", |w| w.said("hello", "BuildReady").contains("still in progress")).await;
    world.quiet().await;
    // A working build keeps its resources.
    let second = names(&world);
    world.edit_function("hello", resources("1100Mi"));
    world.quiet().await;
    assert_eq!(names(&world), second);
    world.builds_succeed();
    world.runs("hello").await;
    assert_eq!(world.function_status("hello")["builds"], 2);
}
